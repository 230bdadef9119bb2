"""The demo: real measurements with real errors, deconvolved in a minute or two."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

from deconflow._types import Array
from deconflow.estimators import Deconvolver
from deconflow.files import replacing

FEATURES = ("smoothness", "compactness", "symmetry")
SET_ASIDE, SHOWN_ROWS, STARS = 60, 4, 300


@dataclass(frozen=True)
class Measurements:
    """Measured values ``w`` and their standard errors ``sd``, each ``(N, D)``, with names."""

    w: Array
    sd: Array
    names: tuple[str, ...]

    def __getitem__(self, rows: slice) -> "Measurements":
        return Measurements(self.w[rows], self.sd[rows], self.names)


def cell_nuclei() -> Measurements:
    """Return shapes of cell nuclei: means over each image, with their standard errors.

    The Wisconsin diagnostic breast cancer data, which ships with scikit-learn.
    """
    table = load_breast_cancer()
    column = {name: i for i, name in enumerate(table.feature_names)}
    w = table.data[:, [column[f"mean {name}"] for name in FEATURES]]
    sd = table.data[:, [column[f"{name} error"] for name in FEATURES]]
    order = np.random.default_rng(0).permutation(len(w))
    return Measurements(w[order], sd[order], FEATURES)


def run(output: str | Path, *, progress: bool = True) -> str:
    """Fit, write the model and a figure into ``output``, and return a summary."""
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    data = cell_nuclei()
    held_out, train = data[:SET_ASIDE], data[SET_ASIDE:]
    start = time.perf_counter()
    model = Deconvolver(random_state=0, verbose=progress)
    model.fit(train.w, noise=train.sd, names=train.names)
    seconds = time.perf_counter() - start
    model.save(output / "model")
    _draw(model, data, output / "deconvolved.png")
    scores = model.score_observations(held_out.w, noise=held_out.sd, n_samples=1000)
    size = model.posterior(held_out.w, noise=held_out.sd).effective_sample_size
    draws = f"worth {np.median(size):.0f} draws (median), at least {size.min():.0f}"
    error = scores.std(ddof=1) / np.sqrt(len(scores))
    blur = np.sqrt((train.sd**2).mean(0)) / train.w.std(0)
    ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in zip(train.names, blur, strict=True))
    return "\n".join([
        model.summary(),
        f"data                    cell nuclei: {ratios} (rms error / spread)",
        f"rows                    {len(train.w)} fitted, {len(held_out.w)} set aside",
        f"set-aside log p(w)      {scores.mean():.3f} +- {error:.3f} per row",
        f"their posteriors        {'exact' if np.isinf(size).all() else draws}",
        f"seconds                 {seconds:.0f}",
        f"picture                 {output / 'deconvolved.png'}",
        f"model                   {output / 'model'}",
    ])  # fmt: skip


def write_stars(path: Path) -> str:
    """Write the table of the documents' examples: two clumps in ``x`` and ``y``, with errors."""
    rng = np.random.default_rng(0)
    v = rng.normal(size=(STARS, 2)) * [1.0, 0.5] + rng.integers(2, size=(STARS, 1)) * [4.0, 2.0]
    sd = rng.uniform(0.1, 0.6, size=(STARS, 2))
    rows = np.column_stack([v + sd * rng.normal(size=(STARS, 2)), sd]).round(3).tolist()
    lines = ["name,x,y,x_err,y_err"]
    lines += [",".join([f"star {i}", *map(str, row)]) for i, row in enumerate(rows)]
    with replacing(path) as part:
        part.write_text("\n".join(lines) + "\n")
    return f"{STARS} simulated stars written to {path}."


def _draw(model: Deconvolver, data: Measurements, path: Path) -> None:
    blur = (data.sd / data.w.std(0)).sum(1)
    rows = np.argsort(blur)[(np.linspace(0.1, 0.95, SHOWN_ROWS) * len(blur)).astype(int)]
    model.plot("corner", data.w, data.sd, rows=rows)[0, 0].figure.savefig(path, dpi=110)
