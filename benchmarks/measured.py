"""How rows were measured: what is promised of posterior samples and of a selection.

    python -m benchmarks.measured [selection samples]

Every fit is kept in ``results/measured.json`` as soon as it is done; an interrupted run goes on.
Limits have a file of their own, ``benchmarks/measured_limits.py``.

``samples``     posterior samples in place of exact Gaussian noise: the excess of each
``selection``   moons of which y <= 0 is not seen, beside as many rows of all, and beside the same
                rows with the selection ignored
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

from benchmarks import planes
from benchmarks.laws import Array
from benchmarks.record import RESULTS
from benchmarks.runs import Run, Runs
from deconflow import XDGMM, noise

KEYS = ("section", "law", "case", "rows", "seed")
TEST_ROWS, MASS_ROWS = 50_000, 400_000
#: Middle size of the errors of moons, which is the noise's reach, and the width of the rings.
ERROR, RING_SD = 0.15, 0.05


def fitted(w: Array, noise_of_rows: Any, seed: int, **how: Any) -> XDGMM:
    """Fit the mixture whose number of components is chosen by itself."""
    model = XDGMM("auto", random_state=seed, n_jobs=1)
    return model.fit(w, noise=noise_of_rows, names=["x", "y"][: w.shape[1]], **how)


def run_samples(task: Run) -> Run:
    """Fit rows with exact noise, or draws of their posteriors under a flat prior."""
    draw = planes.toy if task["law"] == "toy" else planes.moons
    rng = np.random.default_rng(task["seed"])
    v, fresh = draw(task["rows"], rng), draw(TEST_ROWS, rng)
    S = planes.NOISE[task["law"]]
    factor = np.linalg.cholesky(S)
    w = v + rng.normal(size=v.shape) @ factor.T
    law, said = noise.gaussian(covariance=S), []
    if task["case"] != "exact":
        count = int(task["case"].split()[0])
        draws = w[:, None] + rng.normal(size=(len(w), count, 2)) @ factor.T
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            w, law = noise.from_samples(draws)
        said = [f"{each.category.__name__}: {each.message}" for each in caught]
    log_p = planes.true_log_p(task["law"], fresh)
    excess = log_p.mean() - fitted(w, law, task["seed"]).score_samples(fresh).mean()
    return {"excess": excess, "warnings": said}


def half_moons(n: int, rng: np.random.Generator) -> Array:
    """Draw from two half rings in the plane."""
    t, upper = rng.uniform(0, np.pi, n), rng.uniform(size=(n, 1)) < 0.5
    ring = np.column_stack([np.cos(t), np.sin(t)])
    return np.where(upper, ring, np.array([1.0, 0.5]) - ring) + RING_SD * rng.normal(size=(n, 2))


def selected(n: int, rng: np.random.Generator, *, all_seen: bool) -> tuple[Array, Array]:
    """Return ``n`` rows of moons and their errors; if not all are seen, those of measured y > 0."""
    v = half_moons(3 * n, rng)
    sd = rng.uniform(0.5, 1.5, v.shape) * ERROR
    w = v + sd * rng.normal(size=v.shape)
    seen = np.flatnonzero(all_seen | (w[:, 1] > 0))[:n]
    return w[seen], sd[seen]


def half_rings() -> Array:
    """Return the middles of ``half_moons`` at even angles ``(2, 1000, 2)``."""
    t = (np.arange(1000) + 0.5) * np.pi / 1000
    ring = np.stack([np.cos(t), np.sin(t)], -1)
    return np.stack([ring, np.array([1.0, 0.5]) - ring])


@cache
def moons_truth() -> tuple[Array, Array]:
    """Return clean moons and their exact log density, the same in all runs."""
    fresh = half_moons(2 * TEST_ROWS, np.random.default_rng(1_000_003))
    middles = half_rings().reshape(-1, 2)
    log_p = [
        logsumexp(-((some[:, None] - middles) ** 2).sum(2) / (2 * RING_SD**2), axis=1)
        for some in np.array_split(fresh, 100)
    ]
    return fresh, np.concatenate(log_p) - np.log(len(middles) * 2 * np.pi * RING_SD**2)


def moons_masses() -> tuple[float, float]:
    """Return the exact masses of moons above zero, and within the noise's reach below it."""
    height = half_rings()[..., 1] / RING_SD
    above = norm.cdf(height).mean()
    return float(above), float(norm.cdf(height + ERROR / RING_SD).mean() - above)


def run_selection(task: Run) -> Run:
    """Score densities relative to the mass of the seen side, on it and in the noise's reach."""
    rng = np.random.default_rng([task["seed"], task["rows"]])
    w, sd = selected(task["rows"], rng, all_seen=task["case"] == "unselected")
    rule = {"selection": "y > 0"} if task["case"] == "selected" else {}
    model = fitted(w, sd, task["seed"], **rule)
    fresh, log_p = moons_truth()
    drawn = model.sample(MASS_ROWS, random_state=1)[:, 1]
    mass = ((drawn > 0).mean(), ((drawn > -ERROR) & (drawn < 0)).mean())
    true = moons_masses()
    gap = log_p - np.log(true[0]) - (model.score_samples(fresh) - np.log(mass[0]))
    y = fresh[:, 1]
    answer: Run = {}
    for name, where in (("seen", y > 0), ("reach", (y < 0) & (y > -ERROR))):
        answer[name] = gap[where].mean()
        answer[f"{name}_error"] = gap[where].std() / np.sqrt(where.sum())
    answer |= {"seen_mass": mass[0], "true_seen_mass": true[0]}
    return answer | {"reach_mass": mass[1] / mass[0], "true_reach_mass": true[1] / true[0]}


def tasks(
    section: str, laws: Iterable[str], rows: int, cases: Iterable[str], seeds: int
) -> list[Run]:
    """Return all runs of a section, seed by seed."""
    return [
        {"section": section, "law": law, "case": case, "rows": rows, "seed": seed}
        for seed, law, case in product(range(seeds), laws, cases)
    ]


SELECTION_CASES = ("selected", "unselected", "selection ignored")
SAMPLE_CASES = ("exact", "200 draws", "5 draws")
SECTIONS: dict[str, tuple[Callable[[Run], Run], list[Run]]] = {
    "selection": (run_selection, [
        *tasks("selection", ["moons"], 5000, SELECTION_CASES, 3),
        *tasks("selection", ["moons"], 20_000, SELECTION_CASES, 3),
    ]),
    "samples": (run_samples, tasks("samples", ["toy", "moons"], 5000, SAMPLE_CASES, 3)),
}  # fmt: skip


def as_text(runs: list[Run]) -> str:
    """Return a line for each case: the means of its figures over the seeds."""
    lines = []
    for cell in dict.fromkeys(tuple(run[key] for key in KEYS[:-1]) for run in runs):
        mine = [run for run in runs if tuple(run[key] for key in KEYS[:-1]) == cell]
        names = [name for name, value in mine[0].items() if isinstance(value, float)]
        figures = (f"{name} {np.mean([run[name] for run in mine]):.4f}" for name in names)
        lines.append(f"{', '.join(map(str, cell))}: {len(mine)} runs, {', '.join(figures)}")
    return "\n".join(lines)


def main() -> None:
    """Make the runs that are missing, and the summary of all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []])
    options = parser.parse_args()
    runs = Runs(RESULTS / "measured.json", KEYS)
    runs.content |= {
        "command": "python -m benchmarks.measured", "settings": {"n_components": "auto"},
        "test_rows": TEST_ROWS,
    }  # fmt: skip
    for name in options.sections or SECTIONS:
        make, planned = SECTIONS[name]
        left = [task for task in planned if not runs.done(task)]
        print(f"{name}: {len(planned)} runs, {len(left)} to make", file=sys.stderr)
        for task in left:
            begin = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what matters of them is in the scores
                found = make(task)
            runs.add({**task, **found, "seconds": round(time.perf_counter() - begin, 2)})
            print(runs.runs[-1], flush=True)
    print(as_text(runs.current()))


if __name__ == "__main__":
    main()
