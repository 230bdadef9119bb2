"""Simulated tables: Gamma truths (Pessoa et al. 2025), sparse effects, and honest noise."""

from pathlib import Path

import numpy as np

from benchmarks.laws import Array, clumps, clumps_log_p, gamma_log_p, slab_density, sparse
from benchmarks.records import estimators
from benchmarks.records.section import Section, Task
from benchmarks.runs import Run

# Gamma truths in one column under Gaussian noise: 35 cells.

SHAPES = (3, 4, 5, 6, 7, 8, 9)
GAMMA_ROWS = (100, 316, 1000, 3160, 10_000)
SHIFT, GAMMA_SD = 10.0, 1.0
POINTS = 10_000


def gamma_rows(shape: int, rows: int, seed: int) -> Array:
    """Draw ``w = v + n``, ``v ~ Gamma(k, 1)``, ``n ~ N(10, 1)``, as ``(rows, 1)``."""
    rng = np.random.default_rng([seed, shape, rows])
    return (rng.gamma(shape, 1.0, rows) + rng.normal(SHIFT, GAMMA_SD, rows))[:, None]


def grid_of(w: Array) -> Array:
    """Return the published grid: 10,000 points from ``min(w) - 13`` to ``max(w) - 7``."""
    return np.linspace(w.min() - SHIFT - 3 * GAMMA_SD, w.max() - SHIFT + 3 * GAMMA_SD, POINTS)[
        :, None
    ]


def divergence(shape: int, grid: Array, log_q: Array) -> float:
    r"""``KL = sum_j p(v_j) log(p(v_j) / q(v_j)) dv`` over the points where ``p`` is positive."""
    log_p = gamma_log_p(shape, grid[:, 0])
    inside = np.isfinite(log_p)
    terms = np.exp(log_p[inside]) * (log_p[inside] - log_q[inside])
    return float(terms.sum() * (grid[1, 0] - grid[0, 0]))


def run_gamma(task: Task, folder: Path) -> Run:
    """Fit one cell; the known mean of the noise is taken off the rows."""
    w = gamma_rows(task["shape"], task["rows"], task["seed"])
    grid = grid_of(w)
    model, seconds = estimators.fit(task["estimator"], task["seed"], w - SHIFT, [GAMMA_SD])
    alone = estimators.log_densities(model, grid)
    each = {name: divergence(task["shape"], grid, log_q) for name, log_q in alone.items()}
    kl = divergence(task["shape"], grid, model.score_samples(grid))
    loss = kl - min(each.values()) if each else None
    weights = estimators.shares(model)
    return {**task, "kl": kl, "seconds": seconds, "candidates": each, "weights": weights,
            "loss": loss}  # fmt: skip


GAMMA = Section(
    "gamma",
    ("deconvolver", "spline", "bayes"),
    (0, 1, 2),
    {"rows": GAMMA_ROWS, "shape": SHAPES},
    run_gamma,
)


# Sparse effects: most truths are zero; is there a false mode beside them?

SPARSE_ROWS, SPARSE_ERRORS = 3000, (0.05, 0.3)
PLACES = np.array([0.2, -0.2])


def sparse_rows(seed: int) -> tuple[Array, Array]:
    """Draw measurements and their errors, ``(3000, 1)`` each."""
    rng = np.random.default_rng(seed)
    v = sparse(SPARSE_ROWS, rng)
    sd = rng.uniform(*SPARSE_ERRORS, size=v.shape)
    return v + sd * rng.normal(size=v.shape), sd


def run_sparse(task: Task, folder: Path) -> Run:
    """Fit, and compare the density at .2 (and at -.2, for information) with that of the slab."""
    w, sd = sparse_rows(task["seed"])
    model, seconds = estimators.fit(task["estimator"], task["seed"], w, sd)
    truth = [slab_density(place) for place in PLACES]
    ratios = np.exp(model.score_samples(PLACES[:, None])) / truth
    each = estimators.log_densities(model, PLACES[:, None])
    return {
        **task, "ratio": ratios[0], "ratio_left": ratios[1], "seconds": seconds,
        "candidates": {name: np.exp(log_p[0]) / truth[0] for name, log_p in each.items()},
        "weights": estimators.shares(model),
    }  # fmt: skip


SPARSE = Section(
    "sparse", ("xd", "bayes", "spline", "quick", "deconvolver"), (0, 1, 2, 3, 4), {}, run_sparse
)


# Honest noise: rows with huge errors that say so must not change a fit.

HONEST_ROWS, TEST_ROWS, EVERY = 600, 20_000, 7
HONEST_ERRORS = (0.2, 0.6)
#: Errors of every seventh row; 0 for the fit without these rows.
NOISES = (0.0, 30.0, 300.0)


def honest_rows(seed: int, noise: float) -> tuple[Array, Array, Array]:
    """Draw measurements, their errors and clean test rows; only the seventh rows differ."""
    rng = np.random.default_rng(seed)
    v, test = clumps(HONEST_ROWS, rng), clumps(TEST_ROWS, rng)
    sd, unit = rng.uniform(*HONEST_ERRORS, size=v.shape), rng.normal(size=v.shape)
    if noise:
        sd[::EVERY] = noise
        return v + sd * unit, sd, test
    precise = np.arange(HONEST_ROWS) % EVERY > 0
    return (v + sd * unit)[precise], sd[precise], test


def run_honest(task: Task, folder: Path) -> Run:
    """Fit, and score clean rows; the change against the fit without noisy rows is for the page."""
    w, sd, test = honest_rows(task["seed"], task["noise"])
    model, seconds = estimators.fit(task["estimator"], task["seed"], w, sd)
    return {
        **task, "log_p": model.score_samples(test).mean(), "truth": clumps_log_p(test).mean(),
        "seconds": seconds,
    }  # fmt: skip


HONEST = Section(
    "honest",
    ("xd-2", "xd", "bayes", "quick", "deconvolver"),
    (0, 1, 2),
    {"noise": NOISES},
    run_honest,
)
