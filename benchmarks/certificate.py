"""The certificate put to the test: wrong cases that it must name, right ones that it must leave.

    python -m benchmarks.certificate [--parts wrong right calibration coverage] [--count 2]

*wrong*: ten scenarios of three blobs in two columns, N = 2,000, errors U(.2, .7) by row, of which
nine are wrong in one way each. *right*: fifteen other laws, whose fits are right. *calibration*:
300 right fits, whose p-values should be uniform. *coverage*: how often 50 and 90 % intervals of row
posteriors hold the truth, on eleven tasks. Writes ``results/certificate.json`` after every run and
goes on where it was interrupted.
"""

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from benchmarks.laws import explog, ring
from benchmarks.planes import moons
from benchmarks.record import RESULTS
from benchmarks.runs import Runs

Array = NDArray[np.float64]
#: Measurements, the errors that are said, and the truth.
Data = tuple[Array, Array, Array]
ROWS = 2000
KEYS = ("part", "task", "seed")
#: Seeds from here on: thresholds and constants were set on others.
FRESH = 50


def blobs(n: int, rng: np.random.Generator) -> Array:
    """Draw from three blobs, one of which leans."""
    which = rng.integers(3, size=n)
    means = np.array([[-2.0, 0.0], [1.5, 1.5], [1.0, -2.0]])
    sds = np.array([[0.4, 0.9], [0.8, 0.4], [0.4, 0.4]])
    v = means[which] + sds[which] * rng.normal(size=(n, 2))
    return v + (which == 2)[:, None] * rng.exponential(0.6, size=(n, 2))


def measured(v: Array, low: float, high: float, rng: np.random.Generator) -> Data:
    """Add Gaussian noise with an error of its own for every value."""
    sd = rng.uniform(low, high, size=v.shape)
    return v + sd * rng.normal(size=v.shape), sd, v


def right(n: int, rng: np.random.Generator) -> Data:
    return measured(blobs(n, rng), 0.2, 0.7, rng)


def understated(n: int, rng: np.random.Generator) -> Data:
    w, sd, v = right(n, rng)
    return w, sd / 2, v


def overstated(n: int, rng: np.random.Generator) -> Data:
    w, sd, v = right(n, rng)
    return w, 1.5 * sd, v


def _with(noise: Callable[[np.random.Generator, tuple[int, ...]], Array]) -> Callable[..., Data]:
    def made(n: int, rng: np.random.Generator) -> Data:
        v = blobs(n, rng)
        sd = rng.uniform(0.2, 0.7, size=v.shape)
        return v + sd * noise(rng, v.shape), sd, v

    return made


def _correlated(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], size=shape[0])


def truncated(n: int, rng: np.random.Generator) -> Data:
    w, sd, v = right(4 * n, rng)
    seen = np.flatnonzero(w[:, 0] > -1.8)[:n]
    return w[seen], sd[seen], v[seen]


def copies(n: int, rng: np.random.Generator) -> Data:
    w, sd, v = right(n // 5, rng)
    order = rng.permutation(np.repeat(np.arange(n // 5), 5))
    return w[order], sd[order], v[order]


def clusters(n: int, rng: np.random.Generator) -> Data:
    return measured(np.repeat(blobs(40, rng), n // 40, axis=0), 0.2, 0.7, rng)


def outliers(n: int, rng: np.random.Generator) -> Data:
    w, sd, v = right(n, rng)
    odd = rng.uniform(size=n) < 0.02
    w[odd] = rng.uniform(-10, 10, size=(odd.sum(), 2))
    return w, sd, v


def equal(n: int, rng: np.random.Generator) -> Data:
    v = blobs(n, rng)
    sd = np.full(v.shape, 0.45)
    return v + sd * rng.normal(size=v.shape), sd, v


#: What is wrong, how to make it, and the check that should name it.
WRONG: dict[str, tuple[Callable[[int, np.random.Generator], Data], str]] = {
    "errors understated twofold": (understated, "factor"),
    "errors overstated by half": (overstated, "factor"),
    "t(3) noise said to be Gaussian": (_with(lambda r, s: r.standard_t(3, size=s)), "tails"),
    "truncated sample": (truncated, "edges"),
    "every row five times": (copies, "copies"),
    "40 objects, 50 rows each": (clusters, "order"),
    "correlated noise (.8)": (_with(_correlated), "correlation"),
    "2 % outliers": (outliers, "outliers"),
    "skewed noise": (_with(lambda r, s: r.exponential(size=s) - 1), "skewness"),
    "all errors equal": (equal, ""),
}


def heavy(n: int, rng: np.random.Generator) -> Array:
    """Draw five columns with heavy tails that go together."""
    scale = np.sqrt(4 / rng.chisquare(4, size=(n, 1)))
    mix = np.eye(5) + 0.4 * np.tri(5, k=-1)
    return scale * (rng.normal(size=(n, 5)) @ mix.T)


def spiral(n: int, rng: np.random.Generator) -> Array:
    t = rng.uniform(0.5, 2.5 * np.pi, n)
    return np.c_[t * np.cos(t), t * np.sin(t)] / 3 + 0.1 * rng.normal(size=(n, 2))


def checkerboard(n: int, rng: np.random.Generator) -> Array:
    a, b = rng.integers(4, size=n), 2 * rng.integers(2, size=n)
    return np.c_[a, b + a % 2] + rng.uniform(size=(n, 2)) - 2


def line(n: int, rng: np.random.Generator) -> Array:
    """Draw from a tight relation."""
    x = rng.normal(size=n)
    return np.c_[x, 2 * x + 0.02 * rng.normal(size=n)]


def needles(n: int, rng: np.random.Generator) -> Array:
    """Draw exact zeros, and a few effects."""
    return np.where(rng.uniform(size=(n, 1)) < 0.7, 0.0, rng.normal(0, 2, size=(n, 1)))


#: Fifteen laws with noise that is what it is said to be.
LAWS: dict[str, Callable[[int, np.random.Generator], Data]] = {
    "blobs": right,
    "ring": lambda n, r: measured(ring(n, r), 0.15, 0.6, r),
    "moons": lambda n, r: measured(moons(n, r), 0.1, 0.5, r),
    "spiral": lambda n, r: measured(spiral(n, r), 0.1, 0.5, r),
    "checkerboard": lambda n, r: measured(checkerboard(n, r), 0.1, 0.5, r),
    "exponential x lognormal": lambda n, r: measured(explog(n, r), 0.1, 0.6, r),
    "heavy tails, five columns": lambda n, r: measured(heavy(n, r), 0.2, 0.8, r),
    "Gamma(3), one column": lambda n, r: measured(r.gamma(3, size=(n, 1)), 0.3, 1.5, r),
    "t(4), two columns": lambda n, r: measured(r.standard_t(4, size=(n, 2)), 0.2, 0.7, r),
    "uniform square": lambda n, r: measured(r.uniform(-2, 2, size=(n, 2)), 0.2, 0.6, r),
    "t(2.5), two columns": lambda n, r: measured(r.standard_t(2.5, size=(n, 2)), 0.2, 0.7, r),
    "tight line": lambda n, r: measured(line(n, r), 0.1, 0.4, r),
    "half normal, one column": lambda n, r: measured(abs(r.normal(size=(n, 1))), 0.1, 0.5, r),
    "whole numbers": lambda n, r: measured(r.poisson(3.0, size=(n, 2)) + 0.0, 0.2, 0.6, r),
    "zeros and effects": lambda n, r: measured(needles(n, r), 0.5, 1.5, r),
}


def with_missing(n: int, rng: np.random.Generator) -> Data:
    """Leave 30 % of the values of two columns out, but never both of a row."""
    w, sd, v = measured(blobs(n, rng), 0.2, 0.7, rng)
    missing = rng.uniform(size=w.shape) < 0.3
    missing[missing.all(1)] = False
    return np.where(missing, np.nan, w), sd, v


#: Eleven tasks of row posteriors.
TASKS = LAWS | {"blobs, 30 % missing": with_missing}


def fitted(make: Callable[[int, np.random.Generator], Data], seed: int, quick: bool) -> Any:
    """Fit a table with the default estimator, and time the fit and its certificate."""
    from deconflow import Deconvolver, models

    spent = 0.0
    plain = models.certified

    def timed(*arguments: Any) -> Any:
        nonlocal spent
        begin = time.perf_counter()
        answer = plain(*arguments)
        spent += time.perf_counter() - begin
        return answer

    w, sd, v = make(ROWS, np.random.default_rng([seed, 18]))
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cautions are what is asked for
        models.certified = timed
        try:
            model = Deconvolver(quick=quick, random_state=seed).fit(w, noise=sd)
        finally:
            models.certified = plain
    seconds = {"fit": time.perf_counter() - begin - spent, "certificate": spent}
    return model, (w, sd, v), seconds


def judged(part: str, task: str, seed: int) -> dict[str, Any]:
    """Fit one table, and keep what its certificate says."""
    make = WRONG[task][0] if part == "wrong" else LAWS[task]
    several = task in ("exponential x lognormal", "heavy tails, five columns")
    quick = part == "calibration" or several
    model, (w, sd, v), seconds = fitted(make, seed, quick)
    certificate = model.certificate_
    return {
        "part": part, "task": task, "seed": seed, "quick": quick, "rows": ROWS,
        "cautions": [each.check for each in certificate.cautions],
        "p": {each.check: each.p for each in certificate.findings},
        "reasons": {each.check: each.reason for each in certificate.findings if each.reason},
        "numbers": {each.check: each.numbers for each in certificate.cautions},
        "coverage": coverage(model, w[:500], sd[:500], v[:500]) if part == "wrong" else None,
        "seconds": seconds,
    }  # fmt: skip


def coverage(model: Any, w: Array, sd: Array, v: Array) -> dict[str, list[float]]:
    """Share of true values within intervals of the row posteriors, by column.

    Of 199 draws the truth is the 1st, 2nd, ... or 200th with the same probability.
    """
    draws = model.posterior(w, noise=sd).sample(199, random_state=0)
    rank = (draws < v[:, None]).sum(1)
    return {
        f"{level:g}": ((rank >= edge) & (rank < 200 - edge)).mean(0).tolist()
        for level, edge in ((0.5, 50), (0.9, 10))
    }


def covered(part: str, task: str, seed: int) -> dict[str, Any]:
    """Fit one table, and count how often intervals of the truth hold it."""
    several = task in ("exponential x lognormal", "heavy tails, five columns")
    model, data, seconds = fitted(TASKS[task], seed, several)
    inside = coverage(model, *data)
    return {"part": part, "task": task, "seed": seed, "quick": several, "rows": ROWS,
            "coverage": inside, "seconds": seconds}  # fmt: skip


#: How to make a run of a part, of which tasks, with how many seeds each.
PARTS: dict[str, tuple[Callable[..., dict[str, Any]], Any, int]] = {
    "right": (judged, LAWS, 5),
    "wrong": (judged, WRONG, 10),
    "coverage": (covered, TASKS, 2),
    "calibration": (judged, LAWS, 20),
}


def work(parts: list[str], count: int | None) -> Iterator[tuple[str, str, int]]:
    """Yield what is to be run; no two parts share a table."""
    for number, part in enumerate(PARTS):
        if part in parts:
            _, tasks, usual = PARTS[part]
            for seed in range(count or usual):
                for k, task in enumerate(tasks):
                    yield part, task, FRESH + 10_000 * number + 100 * k + seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--count", type=int, help="seeds of each task")
    options = parser.parse_args()
    runs = Runs(RESULTS / "certificate.json", KEYS)
    todo = [key for key in work(options.parts, options.count)
            if not runs.done(dict(zip(KEYS, key, strict=True)))]  # fmt: skip
    for key in tqdm(todo):
        runs.add(PARTS[key[0]][0](*key))
    print(as_text(runs.current()))


def as_text(runs: list[dict[str, Any]]) -> str:
    """Return a line for each task: cautions, the first of them, and what intervals cover."""
    lines = []
    for part, (_, tasks, _) in PARTS.items():
        for task in tasks:
            mine = [run for run in runs if run["part"] == part and run["task"] == task]
            first = Counter(run["cautions"][0] for run in mine if run.get("cautions"))
            cover = [run["coverage"]["0.9"] for run in mine if run.get("coverage")]
            words = f"{part:<12} {task:<32} {len(mine):>3} fits; cautions {dict(first) or 'none'}"
            if cover:
                words += f"; 90 % intervals cover {np.mean(cover):.1%}"
            lines.append(words)
        spent = [run["seconds"]["certificate"] for run in runs if run["part"] == part]
        if spent:
            lines.append(f"{part}: {np.median(spent):.1f} s (median), at most {max(spent):.1f} s")
    return "\n".join(lines + p_values([run for run in runs if run["part"] == "calibration"]))


def p_values(runs: list[dict[str, Any]]) -> list[str]:
    """Return a line for each check: the share of right fits with a small p-value."""
    lines = []
    for check in dict.fromkeys(name for run in runs for name in run["p"]):
        p = np.array([run["p"][check] for run in runs if run["p"].get(check) is not None])
        if len(p):
            lines.append(f"p of {check:<12} below .05 in {(p < 0.05).mean():.1%} of {len(p)}")
    return lines


if __name__ == "__main__":
    main()
