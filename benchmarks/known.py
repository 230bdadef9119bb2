"""Truths that depend on their error: a published table, and ours beside it.

    python -m benchmarks.known [--estimator xd] [--rows 400]

Every fit is kept in ``results/known.json`` as soon as it is done; an interrupted run goes on.
``docs/truth.md`` shows the figures.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from benchmarks.laws import Array
from benchmarks.record import RESULTS
from benchmarks.runs import Run, Runs
from deconflow import XDGMM, Deconvolver

KEYS = ("section", "estimator", "law", "rows", "seed")
MAKERS: dict[str, Callable[[int], Any]] = {
    "xd": lambda seed: XDGMM("auto", random_state=seed, n_jobs=1),
    "quick": lambda seed: Deconvolver(quick=True, random_state=seed, n_jobs=1),
}
SEEDS = {"xd": 100, "quick": 10}
#: Best of seven published methods: Ghosh, Ignatiadis, Koehler, Lee (2025).
BEST = {
    400: {"c": 0.0084, "d": 0.0024, "e": 0.1539, "f": 0.0062, "g": 0.0577, "h": 0.3732,
          "i": 1.4518, "j": 0.9903},
    1600: {"c": 0.0036, "d": 0.0009, "e": 0.1513, "f": 0.0033, "g": 0.0479, "h": 0.3598,
           "i": 1.3739, "j": 0.9524},
}  # fmt: skip
#: Seeds that are fitted without covariates, too.
SOME = 20


def dependent(law: str, n: int, rng: np.random.Generator) -> tuple[Array, Array, Array, Any]:
    """Draw truths, measurements and errors of a law of the published table, and covariates."""
    x: Array | None = None
    A = rng.uniform(0.1, 1.0, n)
    v = A
    if law == "d":
        v = A = 1 / rng.chisquare(10, n)
    elif law == "e":
        A = np.where(rng.uniform(size=n) < 0.5, 0.1, 0.5)
        v = np.where(A == 0.1, 2.0, 0.0) + np.sqrt(A) * rng.normal(size=n)
    elif law == "g":
        A = rng.uniform(0.1, 0.5, n)
        v = np.where(rng.uniform(size=n) < 0.5, A, 10 * A)
    elif law == "h":
        v = rng.poisson(2 * A).astype(float)
    elif law == "i":
        A, x = rng.uniform(1.5, 2.5, n), rng.uniform(size=(n, 5))
        v = np.pi * x[:, 0] * x[:, 1] + 20 * (x[:, 2] - 0.5) ** 2 + 5 * x[:, 3]
        v = v + 2 * rng.normal(size=n)
    elif law == "j":
        x = rng.uniform(size=(n, 1))
        A = 2 * x[:, 0] ** 2 + 5 * x[:, 0] + 1
        v = rng.normal(2 * A + 0.5, np.sqrt(A / 4))
    s = np.sqrt(A)
    e = rng.uniform(-np.sqrt(3), np.sqrt(3), n) if law == "f" else rng.normal(size=n)
    return v[:, None], (v + s * e)[:, None], s[:, None], x


def run(task: Run) -> Run:
    """Score posterior means of the rows that were fitted, as the published table does."""
    rng = np.random.default_rng([task["seed"], ord(task["law"]), task["rows"]])
    v, w, s, x = dependent(task["law"], task["rows"], rng)
    given = "noise" if x is None else ("noise", x)
    model = MAKERS[task["estimator"]](task["seed"]).fit(w, noise=s, given=given)
    found = {"error": np.square(model.posterior(w, noise=s, given=given).mean - v).mean()}
    if task["seed"] < SOME:
        plain = MAKERS[task["estimator"]](task["seed"]).fit(w, noise=s)
        found["without"] = np.square(plain.posterior(w, noise=s).mean - v).mean()
    return found


def as_text(runs: list[Run]) -> str:
    """Return a line for each cell: the best published figure, ours, and ours without covariates."""
    lines = []
    for (n, best), name in product(BEST.items(), MAKERS):
        for law, bar in best.items():
            mine = [r for r in runs if (r["rows"], r["law"], r["estimator"]) == (n, law, name)]
            each = {key: [r[key] for r in mine if key in r] for key in ("error", "without")}
            words = (
                f"{key} {np.mean(values):.4f} +- {np.std(values) / len(values) ** 0.5:.4f}"
                for key, values in each.items() if values
            )  # fmt: skip
            lines.append(f"n = {n}, {law}, {name}: best published {bar:g}; {', '.join(words)}")
    return "\n".join(lines)


def main() -> None:
    """Make the runs that are missing, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--estimator", choices=MAKERS, nargs="+", default=list(MAKERS))
    parser.add_argument("--rows", type=int, choices=BEST, nargs="+", default=list(BEST))
    options = parser.parse_args()
    runs = Runs(RESULTS / "known.json", KEYS)
    for rows, law, name in product(options.rows, "cdefghij", options.estimator):
        for seed in range(SEEDS[name]):
            cell = ("dependent", name, law, rows, seed)
            task: Run = dict(zip(KEYS, cell, strict=True))
            if runs.done(task):
                continue
            begin = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what matters of them is in the scores
                found = run(task)
            runs.add({**task, **found, "seconds": round(time.perf_counter() - begin, 3)})
    print(as_text(runs.current()))


if __name__ == "__main__":
    main()
