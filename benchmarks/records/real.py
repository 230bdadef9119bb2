"""Tables without a known truth: z-values and counts by held-out ``log p(w)``, and batting."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.laws import Array
from benchmarks.records import estimators
from benchmarks.records.section import Section, Task
from benchmarks.runs import Run

DRAWS, HELD_OUT = 200_000, 5
QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class Table:
    """A table: how it is read, and what is counted as near zero."""

    read: Callable[[Path], tuple[Array, Array]]
    near_zero: float


def prostate(folder: Path) -> tuple[Array, Array]:
    """Return 6,033 z-values, each with error 1."""
    z = np.loadtxt(folder / "prostate_z.txt", skiprows=1)
    return z, np.ones_like(z)


def surgery(folder: Path) -> tuple[Array, Array]:
    """Return ``y = asin sqrt((s + 3/8) / (n + 3/4))`` with error ``1 / (2 sqrt(n + 1/2))``.

    Anscombe's transform of s positive nodes among n: nearly normal, with a variance that hardly
    depends on the share; not for n of one or two, where counts need their binomial likelihood.
    """
    n, s = np.loadtxt(folder / "surgery.csv", delimiter=",", skiprows=1).T
    return np.arcsin(np.sqrt((s + 3 / 8) / (n + 3 / 4))), 0.5 / np.sqrt(n + 0.5)


def neighborhoods(folder: Path) -> tuple[Array, Array]:
    """Return effect and error of the commuting zones that have one."""
    with (folder / "neighborhoods.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["p25_coef"] and row["p25_se"]]
    effect, error = (np.array([float(r[name]) for r in rows]) for name in ("p25_coef", "p25_se"))
    return effect, error


TABLES = {
    "prostate": Table(prostate, 0.5),
    "surgery": Table(surgery, float(np.arcsin(np.sqrt(0.05)))),
    "neighborhoods": Table(neighborhoods, 0.1),
}


def run(task: Task, folder: Path) -> Run:
    """Fit four fifths of a table and score the rest; fit all of it and describe the truth."""
    table, name, seed = TABLES[task["table"]], task["estimator"], task["seed"]
    w, sd = (column[:, None] for column in table.read(folder))
    test = np.random.default_rng(seed).permutation(len(w)) % HELD_OUT == 0
    part, _ = estimators.fit(name, seed, w[~test], sd[~test])
    held_out = part.score_observations(w[test], sd[test])
    normal, _ = estimators.fit("xd-1", seed, w[~test], sd[~test])
    gain = held_out - normal.score_observations(w[test], sd[test])
    model, seconds = estimators.fit(name, seed, w, sd)
    return {
        **task, "rows_fitted": len(w), "seconds": seconds,
        "held_out": held_out.mean(), "held_out_error": _error(held_out),
        "gain": gain.mean(), "gain_error": _error(gain),
        "spread_by_moments": _by_moments(w, sd),
    } | _described(model, table)  # fmt: skip


def _error(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _by_moments(w: Array, sd: Array) -> float:
    """``sqrt(var(w) - mean(sd^2))``: a spread of the truth that needs no density."""
    return float(np.sqrt(max(w.var(ddof=1) - np.square(sd).mean(), 0.0)))


def _described(model: Any, table: Table) -> Run:
    """Describe the density of the truth by draws."""
    v = model.sample(DRAWS, random_state=0)[:, 0]
    return {
        "near_zero": (np.abs(v) < table.near_zero).mean(), "mean": v.mean(), "spread": v.std(),
        "quantiles": np.quantile(v, QUANTILES),
    }  # fmt: skip


REAL = Section(
    "real", ("xd", "bayes", "spline", "quick", "deconvolver"), (0,), {"table": tuple(TABLES)}, run
)


# Normal means: batting in 2022 (``woba.csv``), by the likelihood of the fitted prior.


def run_batting(task: Task, folder: Path) -> Run:
    """Fit all rows, and sum ``log p(w)`` over the same rows, as the published figures do."""
    table = np.genfromtxt(folder / "woba.csv", delimiter=",", names=True)
    w, sd = table["x"][:, None], table["s"][:, None]
    model, seconds = estimators.fit(task["estimator"], task["seed"], w, sd)
    estimate = model.log_marginal(w, sd)
    total, error = estimate.log_p.sum(), np.sqrt(np.square(estimate.error).sum())
    return {**task, "total": total, "error": error, "seconds": seconds, "rows_fitted": len(w)}


BATTING = Section(
    "batting", ("xd-1", "xd", "bayes", "spline", "quick", "deconvolver"), (0,), {}, run_batting
)
