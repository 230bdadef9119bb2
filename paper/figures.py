"""The paper's figures, from draws that the runs have kept."""

import hashlib
from io import BytesIO
from pathlib import Path
from typing import Any

import corner
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Ellipse

from paper import data
from paper.data import TEST_POINT, TOY_NOISE, Array, exact_posterior
from paper.protocols import PAPER
from paper.runs import Records, write

SIGMAS = np.array([0.5, 1.0, 1.5, 2.0])
#: Mass inside these contours of a Gaussian in two dimensions.
LEVELS = 1 - np.exp(-0.5 * SIGMAS**2)

DRAWS, BINS = 10_000, 60
FRAME = ((-4.5, 3.5), (-5.0, 5.0))


_MODELS = {
    "XD-GMM": "xd",
    "Flow, ELBO": "elbo-1",
    "Flow, IW, K = 10": "iw-10",
    "Flow, IW, K = 50": "iw-50",
    "Deconvolver": "default",
}
#: The rows (table and name) whose draws each figure shows, by their titles.
PICTURES: dict[str, dict[str, tuple[str, str]]] = {
    "reproduction-toy-data.png": {},
    "reproduction-toy-models.png": {title: ("mixture", row) for title, row in _MODELS.items()},
    **{
        f"reproduction-{row}.png": {"": ("pretraining", row)}
        for row in ("pretrained", "after", "gmm-flow", "gmm-exact")
    },
}

PARTS = ("prior", "posterior")


def draws_path(results: Path, protocol: str, table: str, row: str) -> Path:
    """Return where a row's draws are kept."""
    return Records(results, table, protocol).draws_path("toy", row)


def draw_all(results: Path, folder: Path, protocol: str) -> tuple[list[str], list[str]]:
    """Draw every figure whose runs are there; return what was drawn, and what is missing."""
    drawn, left = [], []
    for name, rows in PICTURES.items():
        panels = {}
        for title, row in rows.items():
            path = draws_path(results, protocol, *row)
            if path.is_file():
                with np.load(path) as kept:
                    panels[title] = {part: kept[part].astype(float) for part in PARTS}
            else:
                left.append(f"{name}: {title}" if title else name)
        if panels or not rows:
            source = made_of(results, protocol, name)
            _save(_models(panels) if panels else _toy_data(), folder / name, source)
            drawn.append(name)
    return drawn, left


def made_of(results: Path, protocol: str, name: str) -> str:
    """Return a digest of the draws that a figure shows, and of the drawing's settings."""
    digest = hashlib.sha256(repr((FRAME, BINS, SIGMAS.tolist(), TEST_POINT.tolist())).encode())
    for row in PICTURES[name].values():
        path = draws_path(results, protocol, *row)
        digest.update(path.read_bytes() if path.is_file() else b"missing")
    return digest.hexdigest()


def is_up_to_date(results: Path, protocol: str, path: Path) -> bool:
    """Say whether a picture shows the draws that are kept now."""
    return made_of(results, protocol, path.name).encode() in path.read_bytes()


def _toy_data() -> Any:
    """Draw the training rows: true values and measurements."""
    rows = data.toy(PAPER.train_rows + PAPER.validation_rows, 1).train[: PAPER.train_rows]
    figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained", sharey=True)
    _panel(axes[0], rows.v, "latent v")
    _panel(axes[1], rows.w, "observed w")
    return figure


def _models(panels: dict[str, dict[str, Array]]) -> Any:
    """Draw priors above posteriors, one column per model; one model without a title across."""
    across = list(panels) == [""]
    if not across:
        truth = {
            "prior": data.TRUTH.sample(DRAWS, random_state=0),
            "posterior": exact_posterior(TEST_POINT).sample(DRAWS, random_state=0)[0],
        }
        panels = {"Truth": truth, **panels}
    shape = (1, 2) if across else (2, len(panels))
    size = (8, 4) if across else (2.7 * len(panels), 5.6)
    figure, axes = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
    for place, (title, draws) in enumerate(panels.items()):
        column = axes[0] if across else axes[:, place]
        for ax, part in zip(column, PARTS, strict=True):
            _panel(ax, draws[part], f"{title} {part}".strip(), fontsize=9)
        _noise_ellipse(column[1])
    return figure


def _panel(ax: Any, values: Array, title: str, **options: Any) -> None:
    """Draw a histogram with its sigma contours, and the points outside."""
    corner.hist2d(
        values[:, 0], values[:, 1], ax=ax, bins=BINS, range=FRAME, levels=LEVELS, smooth=1.0,
        data_kwargs={"ms": 1.0, "alpha": 0.3},
    )  # fmt: skip
    ax.set(xlim=FRAME[0], ylim=FRAME[1])
    ax.set_title(title, **options)


def _noise_ellipse(ax: Any) -> None:
    """Draw the one-sigma level of the noise around the test point."""
    wide, high = 2 * np.sqrt(np.diag(TOY_NOISE))
    ax.add_patch(Ellipse(TEST_POINT[0], wide, high, fill=False, ec="#d1495b", ls="--", lw=1.5))
    ax.plot(*TEST_POINT[0], "x", color="#d1495b", ms=5)


def _save(figure: Any, path: Path, source: str) -> None:
    buffer = BytesIO()
    figure.savefig(buffer, dpi=90, format="png", metadata={"Made of": source})
    plt.close(figure)
    write(path, buffer.getvalue())
