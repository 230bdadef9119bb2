"""Limits: a line of which 79 of 100 rows are not detected. Do 90 % intervals hold its slope?

    python -m benchmarks.measured_limits [--runs 50] [--keep]

``y = 1 + x / 2`` with scatter 0.75 and ``x`` from N(-0.45, 1), both measured with small errors;
only ``y > 1.5`` is seen, the rest are upper limits at 1.5. Beside it what the rows without limits
say by themselves. Writes ``results/measured_limits.json`` after every run, and goes on where it was
interrupted with ``--keep``.
"""

import argparse
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from benchmarks.record import RESULTS
from benchmarks.runs import Runs

Array = NDArray[np.float64]
ROWS, LEVEL, REFITS = 100, 0.9, 50
INTERCEPT, SLOPE, SCATTER, MIDDLE = 1.0, 0.5, 0.75, -0.45
LIMIT, ERRORS = 1.5, (0.05, 0.1)
TASKS = ("limits", "rows with limits dropped")
KEYS = ("task", "seed")


def measure(seed: int, rows: int = ROWS) -> tuple[Array, Array]:
    """Return rows ``(N, 2)`` of x and y, and the flags of limits."""
    rng = np.random.default_rng(seed)
    x = rng.normal(MIDDLE, 1.0, rows)
    v = np.column_stack([x, INTERCEPT + SLOPE * x + SCATTER * rng.normal(size=rows)])
    w = v + np.array(ERRORS) * rng.normal(size=v.shape)
    flags = np.zeros(w.shape)
    flags[:, 1] = np.where(w[:, 1] > LIMIT, 0, -1)
    w[:, 1] = np.maximum(w[:, 1], LIMIT)
    return w, flags


def run(task: str, seed: int) -> dict[str, Any]:
    """Fit one table, and hold the interval of the slope against the truth."""
    from deconflow import XDGMM

    w, flags = measure(seed)
    share = float((flags[:, 1] != 0).mean())
    if task != "limits":
        w, flags = (each[flags[:, 1] == 0] for each in (w, flags))
    begin = time.perf_counter()
    model = XDGMM(1).fit(w, noise=ERRORS, limits=flags, names=["x", "y"])
    found = model.regress(
        "y", on="x", w=w, noise=ERRORS, limits=flags, n_refits=REFITS, random_state=seed
    )
    low, high = found.interval(LEVEL)
    return {
        "task": task,
        "seed": seed,
        "limits": share,
        "slope": float(found.slope[0]),
        "interval": [float(low[0]), float(high[0])],
        "held": bool(low[0] <= SLOPE <= high[0]),
        "seconds": time.perf_counter() - begin,
    }


def summary(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the share of intervals that hold the slope, and the mean slope, by task."""
    found = {}
    for task in TASKS:
        mine = [each for each in runs if each["task"] == task]
        if mine:
            found[task] = {
                "runs": len(mine),
                "limits": round(float(np.mean([each["limits"] for each in mine])), 3),
                "held": float(np.mean([each["held"] for each in mine])),
                "slope": round(float(np.mean([each["slope"] for each in mine])), 3),
                "spread of slopes": round(float(np.std([each["slope"] for each in mine])), 3),
            }
    return found


def main() -> None:
    """Run what is missing of the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50, help="tables")
    parser.add_argument("--output", default="measured_limits", help="name in results/")
    parser.add_argument("--keep", action="store_true", help="runs of other code count as done")
    arguments = parser.parse_args()
    runs = Runs(RESULTS / f"{arguments.output}.json", KEYS, keep=arguments.keep)
    runs.content |= {
        "command": "python -m benchmarks.measured_limits",
        "rows": ROWS, "level": LEVEL, "n_refits": REFITS, "errors": ERRORS,
        "truth": {"intercept": INTERCEPT, "slope": SLOPE, "scatter": SCATTER, "limit": LIMIT},
        "settings": {"n_components": 1},
    }  # fmt: skip
    wanted = [{"task": task, "seed": seed} for task in TASKS for seed in range(arguments.runs)]
    for each in tqdm([each for each in wanted if not runs.done(each)], "limits", unit="fit"):
        new = run(each["task"], each["seed"])
        runs.content["summary"] = summary([*runs.current(), new])
        runs.add(new)
    print(summary(runs.current()))


if __name__ == "__main__":
    main()
