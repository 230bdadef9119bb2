"""One column: Gamma truths under Gaussian noise, 35 cells (Pessoa et al. 2025)."""

from pathlib import Path

import numpy as np

from benchmarks.laws import Array, gamma_log_p
from benchmarks.records import estimators
from benchmarks.records.section import Section, Task
from benchmarks.runs import Run

SHAPES = (3, 4, 5, 6, 7, 8, 9)
ROWS = (100, 316, 1000, 3160, 10_000)
SHIFT, SD = 10.0, 1.0
POINTS = 10_000
BAR, WORST_BAR = 0.0075, 0.3
#: A divergence below this is rounding, and would spoil a geometric mean.
LEAST = 1e-6

SOURCE = "Pessoa et al. 2025, [arXiv 2501.08288](https://arxiv.org/abs/2501.08288)"
#: Geometric means over the 35 cells.
PUBLISHED = {
    "their normalizing flow": 0.0104,
    "Bayes with 20 Gaussians": 0.0243,
    "Bayes that knows the Gamma family": 0.00086,
}
#: Of their flow: geometric means over the seven shapes.
PUBLISHED_BY_ROWS = {100: 0.058, 316: 0.021, 1000: 0.0062, 3160: 0.0045, 10_000: 0.0034}


def rows_of(shape: int, rows: int, seed: int) -> Array:
    """Draw ``w = v + n``, ``v ~ Gamma(k, 1)``, ``n ~ N(10, 1)``, as ``(rows, 1)``."""
    rng = np.random.default_rng([seed, shape, rows])
    return (rng.gamma(shape, 1.0, rows) + rng.normal(SHIFT, SD, rows))[:, None]


def grid_of(w: Array) -> Array:
    """Return the published grid: 10,000 points from ``min(w) - 13`` to ``max(w) - 7``."""
    return np.linspace(w.min() - SHIFT - 3 * SD, w.max() - SHIFT + 3 * SD, POINTS)[:, None]


def divergence(shape: int, grid: Array, log_q: Array) -> float:
    r"""``KL = sum_j p(v_j) log(p(v_j) / q(v_j)) dv`` over the points where ``p`` is positive."""
    log_p = gamma_log_p(shape, grid[:, 0])
    inside = np.isfinite(log_p)
    terms = np.exp(log_p[inside]) * (log_p[inside] - log_q[inside])
    return float(terms.sum() * (grid[1, 0] - grid[0, 0]))


def run(task: Task, folder: Path) -> Run:
    """Fit one cell; the known mean of the noise is taken off the rows."""
    w = rows_of(task["shape"], task["rows"], task["seed"])
    grid = grid_of(w)
    model, seconds = estimators.fit(task["estimator"], task["seed"], w - SHIFT, [SD])
    alone = estimators.log_densities(model, grid)
    each = {name: divergence(task["shape"], grid, log_q) for name, log_q in alone.items()}
    kl = divergence(task["shape"], grid, model.score_samples(grid))
    loss = kl - min(each.values()) if each else None
    weights = estimators.shares(model)
    return {**task, "kl": kl, "seconds": seconds, "candidates": each, "weights": weights,
            "loss": loss}  # fmt: skip


def geometric_mean(values: list[float]) -> float:
    """``exp(mean(log x))``."""
    return float(np.exp(np.log(np.maximum(values, LEAST)).mean()))


SECTION = Section(
    "gamma",
    ("deconvolver", "spline", "bayes"),
    (0, 1, 2),
    {"rows": ROWS, "shape": SHAPES},
    run,
)
