"""Honest noise: rows with huge errors that say so must not change a fit."""

from pathlib import Path

import numpy as np

from benchmarks.laws import Array, clumps, clumps_log_p
from benchmarks.records import estimators
from benchmarks.records.section import Section, Task
from benchmarks.runs import Run

ROWS, TEST_ROWS, EVERY = 600, 20_000, 7
ERRORS = (0.2, 0.6)
#: Errors of every seventh row; 0 for the fit without these rows.
NOISES = (0.0, 30.0, 300.0)
BAR = 0.01


def rows_of(seed: int, noise: float) -> tuple[Array, Array, Array]:
    """Draw measurements, their errors and clean test rows; only the seventh rows differ."""
    rng = np.random.default_rng(seed)
    v, test = clumps(ROWS, rng), clumps(TEST_ROWS, rng)
    sd, unit = rng.uniform(*ERRORS, size=v.shape), rng.normal(size=v.shape)
    if noise:
        sd[::EVERY] = noise
        return v + sd * unit, sd, test
    precise = np.arange(ROWS) % EVERY > 0
    return (v + sd * unit)[precise], sd[precise], test


def run(task: Task, folder: Path) -> Run:
    """Fit, and score clean rows; the change against the fit without noisy rows is for the page."""
    w, sd, test = rows_of(task["seed"], task["noise"])
    model, seconds = estimators.fit(task["estimator"], task["seed"], w, sd)
    return {
        **task, "log_p": model.score_samples(test).mean(), "truth": clumps_log_p(test).mean(),
        "seconds": seconds,
    }  # fmt: skip


SECTION = Section(
    "honest",
    ("xd-2", "xd", "bayes", "quick", "deconvolver"),
    (0, 1, 2),
    {"noise": NOISES},
    run,
)
