"""How rows were measured: what is promised of posterior samples, selection, errors, replicates.

    python -m benchmarks.measured [selection cost samples replicates errors] [--rows 5000]

Every fit is kept in ``results/measured.json`` as soon as it is done; an interrupted run goes on.
The summary in that file has the figures beside their bars. Limits have a file of their own,
``benchmarks/measured_limits.py``.

``samples``     posterior samples in place of exact Gaussian noise: the excess of each
``selection``   moons of which y <= 0 is not seen, beside as many rows of all, and beside the same
                rows with the selection ignored
``errors``      errors understated by two: the factor that ``learned_errors.py`` finds
``replicates``  blood pressure: standard deviation of the truth by replicates and by known errors
``cost``        seconds of an older commit and of now, in turn; the commit is in a worktree of its
                own: ``git worktree add --detach ../old dfef39f``, or elsewhere with ``--old``
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

from benchmarks import known, xd_choice
from benchmarks.laws import Array
from benchmarks.learned_errors import learned
from benchmarks.record import RESULTS
from benchmarks.runs import DATA, ROOT, Run, Runs
from deconflow import XDGMM, noise

KEYS = ("section", "law", "case", "rows", "seed")
BARS = {
    "samples": {"200 draws: excess more than exact": 0.02},
    "selection": {"seen: excess more than unselected": 0.03, "reach: excess": 0.15},
    "errors": {"factor off by": 0.05},
    "replicates": {"off the standard deviation by known errors": 0.02},
    "cost": {"ratio": 1.03},
}
TEST_ROWS, MASS_ROWS = 50_000, 400_000
ERROR, RING_SD = 0.15, 0.05
"""Middle size of the errors of moons, which is the noise's reach, and the width of the rings."""
UNDERSTATED, LOWEST, HIGHEST = 2.0, 0.1, 1.0
OLD = "dfef39f"
REPEATS, ROUNDS = 5, 20
IMPORTS = ("import deconflow", "import XDGMM")
BUSY = 1.5
"""Timings at a higher load of the machine are marked."""


def fitted(w: Array, noise_of_rows: Any, seed: int, **how: Any) -> XDGMM:
    """Fit the mixture whose number of components is chosen by itself."""
    model = XDGMM("auto", random_state=seed, n_jobs=1).name_columns(["x", "y"][: w.shape[1]])
    return model.fit(w, noise=noise_of_rows, **how)


def run_samples(task: Run) -> Run:
    """Fit rows with exact noise, or draws of their posteriors under a flat prior."""
    draw = xd_choice.toy if task["law"] == "toy" else xd_choice.moons
    rng = np.random.default_rng(task["seed"])
    v, fresh = draw(task["rows"], rng), draw(TEST_ROWS, rng)
    S = xd_choice.NOISE[task["law"]]
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
    log_p = xd_choice.true_log_p(task["law"], fresh)
    excess = log_p.mean() - fitted(w, law, task["seed"]).score_samples(fresh).mean()
    return {"excess": excess, "warnings": said}


def selected(n: int, rng: np.random.Generator, *, all_seen: bool) -> tuple[Array, Array]:
    """Return ``n`` rows of moons and their errors; if not all are seen, those of measured y > 0."""
    v = known.moons(3 * n, rng)
    sd = rng.uniform(0.5, 1.5, v.shape) * ERROR
    w = v + sd * rng.normal(size=v.shape)
    seen = np.flatnonzero(all_seen | (w[:, 1] > 0))[:n]
    return w[seen], sd[seen]


def half_rings() -> Array:
    """Return the middles of ``known.moons`` at even angles ``(2, 1000, 2)``."""
    t = (np.arange(1000) + 0.5) * np.pi / 1000
    ring = np.stack([np.cos(t), np.sin(t)], -1)
    return np.stack([ring, np.array([1.0, 0.5]) - ring])


@cache
def moons_truth() -> tuple[Array, Array]:
    """Return clean moons and their exact log density, the same in all runs."""
    fresh = known.moons(2 * TEST_ROWS, np.random.default_rng(1_000_003))
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
    begin = time.perf_counter()
    model = fitted(w, sd, task["seed"], **rule)
    seconds = time.perf_counter() - begin
    fresh, log_p = moons_truth()
    drawn = model.sample(MASS_ROWS, random_state=1)[:, 1]
    mass = ((drawn > 0).mean(), ((drawn > -ERROR) & (drawn < 0)).mean())
    true = moons_masses()
    gap = log_p - np.log(true[0]) - (model.score_samples(fresh) - np.log(mass[0]))
    y = fresh[:, 1]
    answer: Run = {"fit_seconds": round(seconds, 1), "said": list(model.known_)}
    for name, where in (("seen", y > 0), ("reach", (y < 0) & (y > -ERROR))):
        answer[name] = gap[where].mean()
        answer[f"{name}_error"] = gap[where].std() / np.sqrt(where.sum())
    answer |= {"seen_mass": mass[0], "true_seen_mass": true[0]}
    return answer | {"reach_mass": mass[1] / mass[0], "true_reach_mass": true[1] / true[0]}


def run_errors(task: Run) -> Run:
    """Learn the factor of errors that are twice what was said."""
    scale, error = learned(task["law"], task["seed"], LOWEST, HIGHEST)
    return {"factor": scale, "factor_error": error}


def run_replicates(task: Run) -> Run:
    """Find the standard deviation of the truth: exams of 1,615 men as ``log(pressure - 50)``."""
    table = np.genfromtxt(DATA / "framingham.csv", delimiter=",", names=True)
    exams = [(table[f"SBP{exam}1"] + table[f"SBP{exam}2"]) / 2 for exam in (2, 3)]
    x = np.log(np.stack(exams, 1) - 50)[:, :, None]
    variance = np.square(x[:, 0] - x[:, 1]).mean() / 4
    w: Array = x.mean(1)
    if task["case"] == "variance components":
        return {"sd": np.sqrt(w.var(ddof=1) - variance)}
    if task["case"] == "errors ignored":
        return {"sd": w.std(ddof=1)}
    law: Any = noise.gaussian(sd=[np.sqrt(variance)])
    if task["case"] != "known errors":
        w, law = noise.from_replicates(x, how=task["case"])
    return {"sd": fitted(w, law, 0).sample(MASS_ROWS, random_state=0).std()}


_WORKER = """
import json, sys, time
def clocks(): return time.perf_counter(), time.process_time()
def since(begin): return [after - before for after, before in zip(clocks(), begin)]
begin = clocks(); import deconflow; found = {"import deconflow": since(begin)}
begin = clocks(); from deconflow import XDGMM; found["import XDGMM"] = since(begin)
import numpy as np
rng = np.random.default_rng(0)
n = 20_000
v = rng.normal(size=(n, 3)) + 4 * rng.integers(3, size=(n, 1))
sd = rng.uniform(.3, 1., v.shape)
w = v + sd * rng.normal(size=v.shape)
make = lambda: XDGMM(10, random_state=0, n_jobs=1)
model = make().fit(w, noise=sd)  # compiles
model.posterior(w, noise=sd)
found["answer"] = float(model.score_samples(v).mean())
found["source"] = deconflow.__file__
print(json.dumps(found), flush=True)
for _ in sys.stdin:
    begin = clocks(); model = make().fit(w, noise=sd); fit = since(begin)
    begin = clocks(); model.posterior(w, noise=sd); posterior = since(begin)
    print(json.dumps({"fit": fit, "posterior": posterior}), flush=True)
"""


class Worker:
    """A process with the package of one source, which fits when it is told to."""

    def __init__(self, source: Path) -> None:
        settings = {**os.environ, "PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-W", "ignore", "-c", _WORKER]
        pipe = subprocess.PIPE
        # there, so that no folder of this checkout is in the way of the other
        self.process = subprocess.Popen(
            command, env=settings, cwd=source, stdin=pipe, stdout=pipe, text=True
        )
        self.first = self._answer()
        if Path(self.first["source"]).parents[2] != source.resolve():
            raise RuntimeError(f"Expected the package of {source}; got {self.first['source']}.")

    def fit(self) -> Run:
        """Return wall and processor seconds of a fit and of a posterior."""
        assert self.process.stdin is not None
        self.process.stdin.write("fit\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Run:
        assert self.process.stdout is not None
        found: Run = json.loads(self.process.stdout.readline())
        return found


def run_cost(task: Run) -> Run:
    """Time both sources in turn, so that what else the machine does meets both alike."""
    places = {"old": task["old"], "now": ROOT}
    order = list(places) if task["seed"] % 2 else list(places)[::-1]
    workers = {name: Worker(places[name]) for name in order}
    rounds = []
    for _ in range(ROUNDS):
        rounds.append({name: workers[name].fit() for name in order})
        order = order[::-1]
    found: Run = {}
    for name in places:
        workers[name].process.communicate()  # ends it
        found[name] = {step: workers[name].first[step] for step in IMPORTS}
        for step in ("fit", "posterior"):
            found[name][step] = np.median([each[name][step] for each in rounds], axis=0)
    for step in ("fit", "posterior"):
        ratios = [np.divide(each["now"][step], each["old"][step]) for each in rounds]
        found[f"{step} ratio"] = np.median(ratios, axis=0)
    answers = [workers[name].first["answer"] for name in places]
    return {**found, "same_answer": answers[0] == answers[1]}


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
REPLICATE_CASES = ("known errors", "pooled", "mean", "variance components", "errors ignored")
SECTIONS: dict[str, tuple[Callable[[Run], Run], list[Run]]] = {
    "selection": (run_selection, [
        *tasks("selection", ["moons"], 5000, SELECTION_CASES, 3),
        *tasks("selection", ["moons"], 20_000, SELECTION_CASES, 3),
    ]),
    "cost": (run_cost, tasks("cost", ["three clumps"], 20_000, [OLD], REPEATS)),
    "samples": (run_samples, tasks("samples", ["toy", "moons"], 5000, SAMPLE_CASES, 3)),
    "replicates": (run_replicates, tasks("replicates", ["framingham"], 1615, REPLICATE_CASES, 1)),
    "errors": (run_errors, tasks("errors", ["Gaussian", "skewed", "two peaks"], 5000,
                                 ["scale"], 40)),
}  # fmt: skip


def summary(runs: list[Run]) -> dict[str, Any]:
    """Return the figures of each section, and which of its runs are missing."""
    found: dict[str, Any] = {}
    for name, (_, planned) in SECTIONS.items():
        mine = [run for run in runs if run["section"] == name]
        if mine:
            found[name] = {"bars": BARS[name], **SUMMARIES[name](mine)}
            found[name]["runs"] = f"{len(mine)} of {len(planned)}"
    return found


def _by(runs: list[Run], *keys: str) -> dict[tuple[Any, ...], list[Run]]:
    """Put runs together that agree in some keys."""
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(run[key] for key in keys), []).append(run)
    return groups


def _mean(runs: list[Run], name: str) -> float:
    return round(float(np.mean([run[name] for run in runs])), 4)


def _of_samples(runs: list[Run]) -> Run:
    found = {}
    for (law,), mine in _by(runs, "law").items():
        excess = {case: _mean(some, "excess") for (case,), some in _by(mine, "case").items()}
        more = {
            f"{case}: more than exact": round(value - excess["exact"], 4)
            for case, value in excess.items() if case != "exact" and "exact" in excess
        }  # fmt: skip
        warned = sorted({each["case"] for each in mine if each["warnings"]})
        found[law] = {**excess, **more, "warned": warned}
    return found


def _of_selection(runs: list[Run]) -> Run:
    found: Run = {}
    names = ("seen", "reach", "reach_mass", "true_reach_mass", "seen_mass", "true_seen_mass")
    for (rows,), mine in _by(runs, "rows").items():
        cases = {case: some for (case,), some in _by(mine, "case").items()}
        found[f"{rows} rows"] = here = {
            case: {**{name: _mean(some, name) for name in names}, "runs": len(some)}
            for case, some in cases.items()
        }
        plain = {run["seed"]: run["seen"] for run in cases.get("unselected", [])}
        more = [
            run["seen"] - plain[run["seed"]]
            for run in cases.get("selected", []) if run["seed"] in plain
        ]  # fmt: skip
        if more:
            here["seen: selected more than unselected, by seed"] = [round(m, 4) for m in more]
        reach = [round(run["reach"], 4) for run in cases.get("selected", [])]
        here["reach: selected, by seed"] = reach
    return found


def _of_errors(runs: list[Run]) -> Run:
    found = {}
    for (law,), mine in _by(runs, "law").items():
        factor, error = (np.array([r[name] for r in mine]) for name in ("factor", "factor_error"))
        off = np.abs(factor / UNDERSTATED - 1)
        held = np.abs(factor - UNDERSTATED) < norm.ppf(0.95) * error
        found[law] = {
            "factor": round(factor.mean(), 3), "over seeds": round(factor.std(ddof=1), 3),
            "largest off by": round(off.max(), 4), "within the bar": float((off < 0.05).mean()),
            "90 % intervals hold it": float(held.mean()), "runs": len(mine),
        }  # fmt: skip
    return found


def _of_replicates(runs: list[Run]) -> Run:
    sd = {run["case"]: run["sd"] for run in runs}
    base = sd.get("known errors", np.nan)
    return {
        case: {"sd": round(value, 4), "ratio to known errors": round(value / base, 4)}
        for case, value in sd.items()
    }


def _of_cost(runs: list[Run]) -> Run:
    found: Run = {"same answer": all(run["same_answer"] for run in runs)}
    for step, (which, name) in product(
        (*IMPORTS, "fit", "posterior"), enumerate(("wall", "processor"))
    ):
        old, now = (np.array([run[key][step][which] for run in runs]) for key in ("old", "now"))
        # imports once in a process; else the median of neighbouring pairs
        ratios = now / old
        if step not in IMPORTS:
            ratios = np.array([run[f"{step} ratio"][which] for run in runs])
        found[f"{step}, {name} seconds"] = {
            "old": round(float(np.median(old)), 4), "now": round(float(np.median(now)), 4),
            "ratio": round(float(np.median(ratios)), 4),
            "ratios of runs": sorted(np.round(ratios, 3).tolist()),
        }  # fmt: skip
    busy = sum(run["busy"] for run in runs)
    return found | {"under load": f"{busy} of {len(runs)} runs"}


SUMMARIES: dict[str, Callable[[list[Run]], Run]] = {
    "samples": _of_samples, "selection": _of_selection, "errors": _of_errors,
    "replicates": _of_replicates, "cost": _of_cost,
}  # fmt: skip


def made(make: Callable[[Run], Run], task: Run, old: Path) -> Run:
    """Make a run, with its seconds and the load of the machine."""
    begin, load = time.perf_counter(), os.getloadavg()[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what matters of them is in the scores
        found = make({**task, "old": old})
    seconds = round(time.perf_counter() - begin, 2)
    load = max(load, os.getloadavg()[0])
    return {**task, **found, "seconds": seconds, "load": round(load, 1), "busy": load > BUSY}


def main() -> None:
    """Make the runs that are missing, and the summary of all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []])
    parser.add_argument("--rows", type=int, help="Only tables of so many rows.")
    parser.add_argument("--old", type=Path, default=ROOT.parent / "old", help="Its worktree.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--keep", action="store_true", help="Runs of other code count as done.")
    options = parser.parse_args()
    runs = Runs(options.results / "measured.json", KEYS, keep=options.keep)
    runs.content |= {
        "command": "python -m benchmarks.measured", "settings": {"n_components": "auto"},
        "test_rows": TEST_ROWS,
    }  # fmt: skip
    for name in options.sections or SECTIONS:
        make, planned = SECTIONS[name]
        planned = [task for task in planned if options.rows in (None, task["rows"])]
        left = [task for task in planned if not runs.done(task)]
        print(f"{name}: {len(planned)} runs, {len(left)} to make", file=sys.stderr)
        for task in left:
            runs.add(made(make, task, options.old))
            print(runs.runs[-1], flush=True)
    runs.say(summary=summary(runs.current()))
    print(json.dumps(runs.content["summary"], indent=1))


if __name__ == "__main__":
    main()
