"""The paper's figures, from draws that the runs have kept."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from deconflow.files import replacing
from paper import data
from paper.data import TEST_POINT, TOY_NOISE, Array, exact_posterior
from paper.protocols import PAPER
from paper.records import Records

SIGMAS = np.array([0.5, 1.0, 1.5, 2.0])
LEVELS = 1 - np.exp(-0.5 * SIGMAS**2)
"""Mass inside these contours of a Gaussian in two dimensions."""

DRAWS, BINS = 10_000, 60
MADE_OF = "Made of"
"""Where a picture says which draws it shows."""

FRAME = ((-4.5, 3.5), (-5.0, 5.0))
TOY_DATA, TOY_MODELS = "reproduction-toy-data.png", "reproduction-toy-models.png"
MODELS = {
    "XD-GMM": ("mixture", "xd"),
    "Flow, ELBO, K = 1": ("mixture", "elbo-1"),
    "Flow, ELBO, K = 50": ("mixture", "elbo-50"),
    "Flow, IW, K = 50": ("mixture", "iw-50"),
    "Deconvolver": ("mixture", "default"),
}
APPENDIX = {
    "reproduction-pretrained.png": ("pretraining", "pretrained"),
    "reproduction-after.png": ("pretraining", "after"),
    "reproduction-gmm-flow.png": ("pretraining", "gmm-flow"),
    "reproduction-gmm-exact.png": ("pretraining", "gmm-exact"),
}
PLACES: dict[str, tuple[tuple[str, str], ...]] = {
    TOY_DATA: (),
    TOY_MODELS: tuple(MODELS.values()),
    **{name: (place,) for name, place in APPENDIX.items()},
}
"""The rows whose draws each figure shows."""

_ELLIPSE = "the dashed ellipse is one sigma of the noise around the measurement"
CAPTIONS = {
    TOY_DATA: "The toy's training rows, with contours at 0.5, 1, 1.5 and 2 sigma: true values on "
    "the left, measurements on the right.",
    TOY_MODELS: "Draws of the fitted models, seed 0: priors above, posteriors of one measurement "
    f"below; {_ELLIPSE}. The posterior of importance weighting and of `Deconvolver` is resampled "
    "by weight, that of the ELBO is what the recognition network says.",
    "reproduction-pretrained.png": "Pretrained flows: the prior on clean rows, the posterior on "
    f"exact pairs; {_ELLIPSE}.",
    "reproduction-after.png": f"The same after variational fitting with K = 50; {_ELLIPSE}.",
    "reproduction-gmm-flow.png": "A Gaussian mixture fitted by the ELBO with K = 50 and a flow as "
    f"posterior; {_ELLIPSE}.",
    "reproduction-gmm-exact.png": "The same with the exact posterior.",
}


def folder_of(document: Path) -> Path:
    """Return the folder of a document's pictures."""
    return document.parent / "images"


def draw_all(results: Path, folder: Path, protocol: str) -> tuple[list[str], list[str]]:
    """Draw every figure whose runs are there; return what was drawn, and what is missing."""
    drawn, left = [TOY_DATA], []
    sources = {name: made_of(results, protocol, name) for name in CAPTIONS}
    _save(_toy_data(), folder / TOY_DATA, sources[TOY_DATA])
    panels = {title: _kept(results, protocol, *place) for title, place in MODELS.items()}
    there = {title: draws for title, draws in panels.items() if draws is not None}
    left += [f"{TOY_MODELS}: {title}" for title in panels if title not in there]
    if there:
        figure = _models({"Truth": _truth(), **there})
        _save(figure, folder / TOY_MODELS, sources[TOY_MODELS])
        drawn.append(TOY_MODELS)
    for name, place in APPENDIX.items():
        draws = _kept(results, protocol, *place)
        if draws is None:
            left.append(name)
            continue
        _save(_models({"": draws}, across=True), folder / name, sources[name])
        drawn.append(name)
    return drawn, left


def made_of(results: Path, protocol: str, name: str) -> str:
    """Return a digest of the draws that a figure shows, and of the drawing's settings."""
    digest = hashlib.sha256(repr((FRAME, BINS, SIGMAS.tolist(), TEST_POINT.tolist())).encode())
    for table, row in PLACES[name]:
        path = Records(results, table, protocol).draws_path("toy", row)
        digest.update(path.read_bytes() if path.is_file() else b"missing")
    return digest.hexdigest()


def is_up_to_date(results: Path, protocol: str, path: Path) -> bool:
    """Say whether a picture shows the draws that are kept now."""
    return made_of(results, protocol, path.name).encode() in path.read_bytes()


def _kept(results: Path, protocol: str, table: str, row: str) -> dict[str, Array] | None:
    path = Records(results, table, protocol).draws_path("toy", row)
    if not path.is_file():
        return None
    with np.load(path) as kept:
        return {name: kept[name].astype(float) for name in ("prior", "posterior")}


def _truth() -> dict[str, Array]:
    return {
        "prior": data.TRUTH.sample(DRAWS, random_state=0)[0],
        "posterior": exact_posterior(TEST_POINT).sample(DRAWS, random_state=0)[0],
    }


def _toy_data() -> Any:
    """Draw the training rows: true values and measurements."""
    import matplotlib.pyplot as plt

    rows = data.toy(PAPER.train_rows + PAPER.validation_rows, 1).train[: PAPER.train_rows]
    figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained", sharey=True)
    for ax, values, title in zip(axes, (rows.v, rows.w), ("latent v", "observed w"), strict=True):
        _panel(ax, values)
        ax.set_title(title)
    return figure


def _models(panels: dict[str, dict[str, Array]], *, across: bool = False) -> Any:
    """Draw priors above posteriors, one column per model; or side by side, for one model."""
    import matplotlib.pyplot as plt

    shape = (1, 2) if across else (2, len(panels))
    size = (8, 4) if across else (2.7 * len(panels), 5.6)
    figure, axes = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
    for place, (title, draws) in enumerate(panels.items()):
        column = axes[0] if across else axes[:, place]
        for ax, name in zip(column, ("prior", "posterior"), strict=True):
            _panel(ax, draws[name])
            ax.set_title(" ".join([title, name]).strip(), fontsize=9)
        _noise_ellipse(column[1])
    return figure


def _panel(ax: Any, values: Array) -> None:
    """Draw a histogram with its sigma contours, and the points outside."""
    import corner

    corner.hist2d(
        values[:, 0], values[:, 1], ax=ax, bins=BINS, range=FRAME, levels=LEVELS, smooth=1.0,
        data_kwargs={"ms": 1.0, "alpha": 0.3},
    )  # fmt: skip
    ax.set(xlim=FRAME[0], ylim=FRAME[1])


def _noise_ellipse(ax: Any) -> None:
    """Draw the one-sigma level of the noise around the test point."""
    from matplotlib.patches import Ellipse

    wide, high = 2 * np.sqrt(np.diag(TOY_NOISE))
    ax.add_patch(Ellipse(TEST_POINT[0], wide, high, fill=False, ec="#d1495b", ls="--", lw=1.5))
    ax.plot(*TEST_POINT[0], "x", color="#d1495b", ms=5)


def _save(figure: Any, path: Path, source: str) -> None:
    import matplotlib.pyplot as plt

    with replacing(path) as part:
        figure.savefig(part, dpi=90, format="png", metadata={MADE_OF: source})
    plt.close(figure)
