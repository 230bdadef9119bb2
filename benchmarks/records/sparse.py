"""Sparse effects: most truths are zero; is there a false mode beside them?"""

from pathlib import Path

import numpy as np

from benchmarks.laws import Array, slab_density, sparse
from benchmarks.records import estimators
from benchmarks.records.section import Section, Task
from benchmarks.runs import Run

ROWS, ERRORS = 3000, (0.05, 0.3)
PLACES = np.array([0.2, -0.2])
#: The density at .2 must be within this factor of the truth.
FACTOR = 2.0


def rows_of(seed: int) -> tuple[Array, Array]:
    """Draw measurements and their errors, ``(3000, 1)`` each."""
    rng = np.random.default_rng(seed)
    v = sparse(ROWS, rng)
    sd = rng.uniform(*ERRORS, size=v.shape)
    return v + sd * rng.normal(size=v.shape), sd


def run(task: Task, folder: Path) -> Run:
    """Fit, and compare the density at .2 (and at -.2, for information) with that of the slab."""
    w, sd = rows_of(task["seed"])
    model, seconds = estimators.fit(task["estimator"], task["seed"], w, sd)
    truth = [slab_density(place) for place in PLACES]
    ratios = np.exp(model.score_samples(PLACES[:, None])) / truth
    each = estimators.log_densities(model, PLACES[:, None])
    return {
        **task, "ratio": ratios[0], "ratio_left": ratios[1], "seconds": seconds,
        "candidates": {name: np.exp(log_p[0]) / truth[0] for name, log_p in each.items()},
        "weights": estimators.shares(model),
    }  # fmt: skip


def is_wrong(ratio: float) -> bool:
    """Whether a density is off by more than the factor allowed."""
    return not 1 / FACTOR <= ratio <= FACTOR


SECTION = Section(
    "sparse", ("xd", "bayes", "spline", "quick", "deconvolver"), (0, 1, 2, 3, 4), {}, run
)
