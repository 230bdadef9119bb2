"""The numbers that the paper prints, its grid, and what it chose from that."""

from typing import Any, NamedTuple

V, W = "minus_log_p_v", "minus_log_p_w"
#: The scores, as they are called in the records; the last two are of the wines alone.
V_WITHOUT_COPY, V_FITTED = f"{V}_without_copy", f"{V}_fitted"

#: Ends the name of a wine whose rows are split in the order of the file.
FILE_ORDER = "-file"


class Figure(NamedTuple):
    """A mean over some runs, and their standard deviation."""

    mean: float
    sd: float


_XD = {"white": (9.903, 0.112), "red": (8.775, 0.152)}
#: By data and row: mean and standard deviation of -log p(v) and, on the toy, of -log p(w).
PRINTED: dict[str, dict[str, tuple[float, ...]]] = {
    "toy": {
        "xd": (2.667, 0.000, 3.600, 0.000),
        "elbo-1": (2.897, 0.046, 3.609, 0.002),
        "elbo-10": (3.015, 0.228, 3.607, 0.002),
        "elbo-25": (2.858, 0.077, 3.606, 0.004),
        "elbo-50": (2.913, 0.174, 3.605, 0.001),
        "iw-10": (2.854, 0.083, 3.604, 0.002),
        "iw-25": (2.871, 0.045, 3.604, 0.001),
        "iw-50": (3.070, 0.499, 3.603, 0.001),
        "pretrained": (2.675, 0.017, 3.601, 0.002),
        "after": (2.729, 0.035, 3.602, 0.001),
        "gmm-flow": (2.731, 0.008, 3.602, 0.000),
        "gmm-exact": (2.666, 0.001, 3.600, 0.000),
    },
    "white": {
        "xd": _XD["white"],
        "xd-paper": _XD["white"],
        "iw-50": (8.685, 0.082),
        "noisy": (9.544, 0.184),
    },
    "red": {
        "xd": _XD["red"],
        "xd-paper": _XD["red"],
        "iw-50": (8.083, 0.128),
        "noisy": (8.611, 0.254),
    },
}

#: The paper's grid for the wines, for flows and for XD.
GRID: dict[str, dict[str, tuple[float, ...]]] = {
    "flow": {
        "learning_rate": (0.001, 0.0005, 0.0001),
        "n_layers": (3, 4, 5),
        "posterior_layers": (3, 4, 5),
        "hidden": (64, 128),
        "n_blocks": (1, 2),
    },
    "xd": {"learning_rate": (0.01, 0.005, 0.001), "n_components": (20, 50, 100, 200, 300)},
}

_FLOW = {"learning_rate": 0.001, "hidden": 128, "n_blocks": 1}
#: What the paper chose from its grid.
CHOSEN: dict[tuple[str, str], dict[str, Any]] = {
    ("white", "flow"): {**_FLOW, "n_layers": 3, "posterior_layers": 4},
    ("red", "flow"): {**_FLOW, "n_layers": 5, "posterior_layers": 5},
    ("white", "xd"): {"learning_rate": 0.01, "n_components": 300},
    ("red", "xd"): {"learning_rate": 0.005, "n_components": 20},
}


def printed(dataset: str, row: str, score: str) -> Figure | None:
    """Return what the paper prints, which may be nothing.

    On the wines its numbers are of the rows that were fitted, in the order of the file: in
    ``experiments/flows/train_final_alt.py`` of its repository, lines 98 and 99, training and test
    rows are the same ``data[:n_train]``. XD's script is not published; it is taken to be alike.
    """
    of_fitted_rows = dataset.endswith(FILE_ORDER)
    if (score == V_FITTED) != of_fitted_rows or (dataset != "toy" and not of_fitted_rows):
        return None
    numbers = PRINTED[dataset.removesuffix(FILE_ORDER)].get(row, ())
    pair = numbers[2:] if score == W else numbers[:2]
    return Figure(*pair) if pair else None
