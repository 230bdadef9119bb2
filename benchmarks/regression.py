"""Errors-in-variables regression: do 90 % intervals of slopes, and 90 % bands of curves, hold?

    python -m benchmarks.regression [--tasks NAME ...] [--runs 20] [--keep]

Lines ``y = 1 + 2 x`` with scatter 0.5, errors of both columns that differ by row, U(.2, 1), and
2,000 rows; curves with errors U(.1, .5). Of lines a figure is the share of runs whose interval
holds the slope; of curves the share of a curve's points, between the 1 % and the 99 % quantile of
``x``, whose interval holds ``E[y given x]``. Beside it what least squares says of the same rows,
which knows no errors. Writes ``results/regression.json`` after every run and goes on where it was
interrupted.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t
from tqdm.auto import tqdm

from benchmarks.record import RESULTS
from benchmarks.runs import Runs

Array = NDArray[np.float64]
ROWS, LEVEL, REFITS = 2000, 0.9, 50
SLOPE, INTERCEPT, SCATTER = 2.0, 1.0, 0.5
KEYS = ("task", "seed")


def normal(n: int, rng: np.random.Generator) -> Array:
    """Draw a truth of ``x`` that one Gaussian describes."""
    return rng.normal(size=n)


def even(n: int, rng: np.random.Generator) -> Array:
    """Draw evenly from -3 to 3."""
    return rng.uniform(-3, 3, n)


@dataclass(frozen=True)
class Task:
    """How to draw ``x``, the mean of ``y`` there, its scatter, the errors, and what is fitted."""

    draw: Callable[[int, np.random.Generator], Array]
    curve: Callable[[Array], Array]
    scatter: float
    errors: tuple[float, float]
    settings: dict[str, Any]
    runs: int
    line: bool = True


def straight(x: Array) -> Array:
    """Return the line."""
    return INTERCEPT + SLOPE * x


MANY = {"n_components": 8, "floor": 0.1}
TASKS = {
    "line, XDGMM(1)": Task(normal, straight, SCATTER, (0.2, 1.0), {"n_components": 1}, 200),
    "sine, XDGMM(8)": Task(even, np.sin, 0.2, (0.1, 0.5), MANY, 8, line=False),
    "parabola, XDGMM(8)": Task(normal, np.square, 0.3, (0.1, 0.5), MANY, 8, line=False),
    "parabola, XDGMM('auto')": Task(
        normal, np.square, 0.3, (0.1, 0.5), {"n_components": "auto"}, 4, line=False
    ),
}


def measure(task: Task, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return rows ``(N, 2)`` of x and y, and the standard deviations of their noise."""
    x = task.draw(ROWS, rng)
    v = np.column_stack([x, task.curve(x) + task.scatter * rng.normal(size=ROWS)])
    sd = rng.uniform(*task.errors, v.shape)
    return v + sd * rng.normal(size=v.shape), sd


def least_squares(w: Array) -> tuple[float, float]:
    """Return the slope of least squares, and half its 90 % interval."""
    x, y = (w - w.mean(0)).T
    slope = float(x @ y / (x @ x))
    error = np.sqrt(np.square(y - slope * x).sum() / (len(x) - 2) / (x @ x))
    return slope, float(t.ppf(0.5 + 0.5 * LEVEL, len(x) - 2) * error)


def run(name: str, seed: int) -> dict[str, Any]:
    """Fit one table, and hold the regression against the truth."""
    from deconflow import XDGMM

    task = TASKS[name]
    w, sd = measure(task, np.random.default_rng(seed))
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = XDGMM(**task.settings, random_state=seed).fit(w, noise=sd)
    fitted = time.perf_counter()
    found = model.regress(1, on=0, w=w, noise=sd, n_refits=REFITS, random_state=seed)
    figures = of_line(found, w) if task.line else of_curve(found, w, sd, task)
    seconds = {"fit": fitted - begin, "regression": time.perf_counter() - fitted}
    return {"task": name, "seed": seed, **figures, "seconds": seconds}


def of_line(found: Any, w: Array) -> dict[str, float]:
    """Say whether the intervals hold slope, intercept and scatter, and what least squares says."""
    low, high = found.interval(LEVEL)
    reach = (high[0] - low[0]) / 2 / found.slope_error[0]
    naive, half = least_squares(w)
    return {
        "slope": found.slope[0],
        "slope_error": found.slope_error[0],
        "coverage": float(low[0] <= SLOPE <= high[0]),
        "coverage_of_intercept": float(
            abs(found.intercept - INTERCEPT) <= reach * found.intercept_error
        ),
        "scatter": found.scatter,
        "coverage_of_scatter": float(abs(found.scatter - SCATTER) <= reach * found.scatter_error),
        "least_squares": naive,
        "coverage_of_least_squares": float(abs(naive - SLOPE) <= half),
    }


def of_curve(found: Any, w: Array, sd: Array, task: Task) -> dict[str, float]:
    """Say which share of a curve lies in its band, and how far off it is.

    Beside it the same of a model that takes the measurements for exact.
    """
    from deconflow import XDGMM

    band = found.band(level=LEVEL)
    truth = task.curve(band.points)
    settings = {"n_components": 8}
    naive = XDGMM(**settings, random_state=0).fit(w, noise=0.0)
    blind = naive.regress(1, on=0, w=w, noise=0.0, n_refits=20).band(band.points, LEVEL)
    return {
        "coverage": float(np.mean((band.lower <= truth) & (truth <= band.upper))),
        "rms_error": float(np.sqrt(np.mean(np.square(band.value - truth)))),
        "width": float(np.mean(band.upper - band.lower)),
        "coverage_without_errors": float(np.mean((blind.lower <= truth) & (truth <= blind.upper))),
        "rms_error_without_errors": float(np.sqrt(np.mean(np.square(blind.value - truth)))),
    }


def page(runs: list[dict[str, Any]]) -> str:
    """Return the figures as tables."""
    lines = [
        "| | runs | slope (true 2) | coverage of its 90 % interval | of the intercept's "
        "| of the scatter's | least squares | its coverage |",
        "|---|---|---|---|---|---|---|---|",
    ]
    curves = [
        "| | runs | coverage of the 90 % band | its mean width | rms error | coverage if errors "
        "are ignored | rms error then |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, task in TASKS.items():
        mine = [each for each in runs if each["task"] == name]
        if not mine:
            continue
        mean = {
            key: float(np.mean([each[key] for each in mine]))
            for key in mine[0]
            if isinstance(mine[0][key], float)
        }
        error = np.std([each["coverage"] for each in mine]) / np.sqrt(max(1, len(mine) - 1))
        share = f"{100 * mean['coverage']:.0f} % +- {100 * error:.0f}"
        if task.line:
            lines.append(
                f"| {name} | {len(mine)} | {mean['slope']:.3f} | {share} "
                f"| {100 * mean['coverage_of_intercept']:.0f} % "
                f"| {100 * mean['coverage_of_scatter']:.0f} % | {mean['least_squares']:.2f} "
                f"| {100 * mean['coverage_of_least_squares']:.0f} % |"
            )
        else:
            curves.append(
                f"| {name} | {len(mine)} | {share} | {mean['width']:.2f} "
                f"| {mean['rms_error']:.3f} | {100 * mean['coverage_without_errors']:.0f} % "
                f"| {mean['rms_error_without_errors']:.3f} |"
            )
    return "\n".join([*lines, "", *curves])


def main() -> None:
    """Run what is missing of the record, and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--runs", type=int, default=None, help="at most so many of each")
    arguments = parser.parse_args()
    runs = Runs(RESULTS / "regression.json", KEYS)
    runs.content |= {
        "command": "python -m benchmarks.regression",
        "rows": ROWS, "level": LEVEL, "n_refits": REFITS,
        "settings": {name: TASKS[name].settings for name in TASKS},
    }  # fmt: skip
    wanted = [
        {"task": name, "seed": seed}
        for name in arguments.tasks
        for seed in range(min(arguments.runs or TASKS[name].runs, TASKS[name].runs))
    ]
    for task in tqdm([each for each in wanted if not runs.done(each)], "regression", unit="fit"):
        runs.add(run(task["task"], task["seed"]))
    print(page(runs.current()))


if __name__ == "__main__":
    main()
