"""Coverage of 90 % bands: how much of the true marginal density lies inside, and how wide they are.

    python -m benchmarks.bands [--estimator NAME ...] [--tasks NAME ...] [--seeds 0 ...]

Three laws of one column with 1,000 and 10,000 rows, errors of each row U(.2, .6), and moons with
3,000 rows, 20 replications each. A figure is the share of the truth, weighted by its density, at
which the band holds the true density. Writes ``results/bands.json`` after every run and goes on
where it was interrupted.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import cumulative_trapezoid
from scipy.stats import gamma, lognorm, norm
from tqdm.auto import tqdm

from benchmarks.planes import NOISE, SPREAD, crescent, moons
from benchmarks.record import RESULTS
from benchmarks.runs import Runs

Array = NDArray[np.float64]
LEVEL, REPLICATIONS, POINTS = 0.9, 20, 400
SHARES = (0.1, 0.5, 0.9)
KEYS = ("estimator", "task", "seed")
WORDS = {
    "deconvolver": "`Deconvolver`",
    "bayes": "`BayesianXDGMM`",
    "spline": "`LogSplineDeconvolver`",
}
ESTIMATORS = tuple(WORDS)


@dataclass(frozen=True)
class Law:
    """A law of the truth: how to draw ``(n, D)`` from it, and the density of each column."""

    draw: Callable[[int, np.random.Generator], Array]
    columns: Sequence[Callable[[Array], Array]]
    ends: Sequence[tuple[float, float]]


def two_normals(n: int, rng: np.random.Generator) -> Array:
    """Draw from two components that overlap a little."""
    first = rng.random(n) < 0.6
    return np.where(first, rng.normal(-1.2, 0.5, n), rng.normal(1.2, 0.7, n))[:, None]


def skewed(n: int, rng: np.random.Generator) -> Array:
    """Draw from a lognormal law beside a normal one."""
    first = rng.random(n) < 0.7
    return np.where(first, np.exp(0.5 * rng.normal(size=n)), rng.normal(4.0, 0.5, n))[:, None]


def _moons_column(d: int) -> Callable[[Array], Array]:
    """Return the density of a column of moons: an integral over the angle, by midpoints."""
    t = (np.arange(2000) + 0.5) * np.pi / 2000
    centres = np.concatenate([crescent(t, np.full(len(t), second)) for second in (False, True)])
    return lambda x: norm.pdf(x[:, None], centres[:, d], SPREAD).mean(1)


LAWS = {
    "two normals": Law(
        two_normals,
        [lambda x: 0.6 * norm.pdf(x, -1.2, 0.5) + 0.4 * norm.pdf(x, 1.2, 0.7)],
        [(-4.0, 4.5)],
    ),
    "Gamma(4)": Law(
        lambda n, rng: rng.gamma(4.0, 0.5, (n, 1)), [lambda x: gamma.pdf(x, 4, scale=0.5)], [(0, 9)]
    ),
    "skewed, two modes": Law(
        skewed,
        [lambda x: 0.7 * lognorm.pdf(x, 0.5) + 0.3 * norm.pdf(x, 4.0, 0.5)],
        [(0.0, 9.0)],
    ),
    "moons": Law(moons, [_moons_column(0), _moons_column(1)], [(-2.9, 2.9), (-3.0, 3.0)]),
}
TASKS = {
    f"{name}, {n:,} rows": (name, n)
    for n in (1000, 10_000)
    for name in ("two normals", "Gamma(4)", "skewed, two modes")
} | {"moons, 3,000 rows": ("moons", 3000)}


def measure(name: str, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return noisy rows of a law, and the standard deviations of their noise."""
    v = LAWS[name].draw(n, rng)
    if name == "moons":
        sd = np.broadcast_to(np.sqrt(np.diag(NOISE["moons"])), v.shape)
    else:
        sd = rng.uniform(0.2, 0.6, v.shape)
    return v + sd * rng.normal(size=v.shape), sd


def make(estimator: str, seed: int) -> Any:
    """Return an estimator with its settings."""
    from deconflow import BayesianXDGMM, Deconvolver, LogSplineDeconvolver

    if estimator == "deconvolver":
        return Deconvolver(random_state=seed)
    if estimator == "bayes":
        return BayesianXDGMM(random_state=seed)
    return LogSplineDeconvolver()


def run(estimator: str, task: str, seed: int) -> dict[str, Any]:
    """Fit one replication, and hold its bands against the truth."""
    name, n = TASKS[task]
    w, sd = measure(name, n, np.random.default_rng(seed))
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fit that is doubtful; its band is what is asked
        model = make(estimator, seed).fit(w, noise=sd)
    fitted = time.perf_counter()
    columns = [score(model.density_, d, LAWS[name]) for d in range(w.shape[1])]
    figures = {key: float(np.mean([each[key] for each in columns])) for key in columns[0]}
    seconds = {"fit": fitted - begin, "bands": time.perf_counter() - fitted}
    return {"estimator": estimator, "task": task, "seed": seed, **figures, "seconds": seconds}


def score(density: Any, d: int, law: Law) -> dict[str, float]:
    """Return coverage and width of a column's band, and coverage of its quantiles.

    Widths are relative: the mean width over the mean density, both weighted by the truth. For
    comparison, the range of the replicates, which is no band.
    """
    x = np.linspace(*law.ends[d], POINTS)
    truth = law.columns[d](x)
    weights = truth / truth.sum()
    band = density.band(x, column=d, level=LEVEL)
    part = density.marginal([d])
    curves = [np.exp(each.log_prob(x[:, None])) for each in part.replicates.densities]
    low, high = np.min(curves, axis=0), np.max(curves, axis=0)
    below = cumulative_trapezoid(truth, x, initial=0.0)
    quantiles = np.interp(SHARES, below / below[-1], x)
    interval = density.band(column=d, level=LEVEL, quantiles=SHARES)
    inside = (interval.lower <= quantiles) & (quantiles <= interval.upper)
    return {
        "coverage": float(weights @ ((band.lower <= truth) & (truth <= band.upper))),
        "width": float(weights @ (band.upper - band.lower) / (weights @ truth)),
        "coverage_of_the_range": float(weights @ ((low <= truth) & (truth <= high))),
        "coverage_of_quantiles": float(inside.mean()),
        "width_of_quantiles": float((interval.upper - interval.lower).mean()),
    }


def page(runs: list[dict[str, Any]]) -> str:
    """Return the figures as a table."""
    lines = [
        "| | task | replications | coverage of 90 % bands | their width | coverage of 90 % "
        "intervals of quantiles | coverage of the range of the replicates |",
        "|---|---|---|---|---|---|---|",
    ]
    for estimator in ESTIMATORS:
        for task in TASKS:
            mine = [r for r in runs if (r["estimator"], r["task"]) == (estimator, task)]
            if not mine:
                continue

            def mean(key: str, mine: list[dict[str, Any]] = mine) -> float:
                return float(np.mean([r[key] for r in mine]))

            error = np.std([r["coverage"] for r in mine]) / np.sqrt(max(1, len(mine) - 1))
            lines.append(
                f"| {WORDS[estimator]} | {task} | {len(mine)} "
                f"| {100 * mean('coverage'):.0f} % +- {100 * error:.0f} | {mean('width'):.2f} "
                f"| {100 * mean('coverage_of_quantiles'):.0f} % "
                f"| {100 * mean('coverage_of_the_range'):.0f} % |"
            )
    return "\n".join(lines)


def main() -> None:
    """Run what is missing of the record, and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--estimator", nargs="+", default=list(ESTIMATORS), choices=ESTIMATORS)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(REPLICATIONS)))
    arguments = parser.parse_args()
    runs = Runs(RESULTS / "bands.json", KEYS)
    runs.content |= {"level": LEVEL, "command": "python -m benchmarks.bands"}
    wanted = [
        dict(zip(KEYS, key, strict=True))
        for key in product(arguments.estimator, arguments.tasks, arguments.seeds)
    ]
    for task in tqdm([task for task in wanted if not runs.done(task)], "bands", unit="fit"):
        runs.add(run(**task))
    print(page(runs.current()))


if __name__ == "__main__":
    main()
