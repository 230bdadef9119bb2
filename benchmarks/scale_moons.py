"""``Deconvolver`` by its default settings on moons of more and more rows: error, time, memory.

    python -m benchmarks.scale_moons [--rows 20000 200000 1000000] [--seeds 0] [--quick]

Moons and their noise are those of ``benchmarks.deconvolver``. The figure is the excess of
``-log p(v)`` over the truth's on 50,000 clean rows. Every fit runs in a process of its own, so
that its peak memory is its own, and reports the seconds on the clock and those of the processors:
where the second is well below twice the first on two processors, others were using them.

Writes ``results/scale_moons.json`` after every run; runs that this code has made are not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.record import RESULTS
from benchmarks.runs import Runs
from benchmarks.xd_choice import NOISE, moons, true_log_p

ROWS = (20_000, 200_000, 1_000_000)
TEST_ROWS = 50_000
BARS = {
    20_000: {"excess": 0.049, "seconds": 45.0, "gib": 1.0},
    200_000: {"excess": 0.021, "seconds": 120.0, "gib": 1.0},
    1_000_000: {"excess": 0.005, "seconds": 240.0, "gib": 1.0},
}
"""What must not be exceeded, on two processors that nobody else uses."""
KEYS = ("rows", "seed", "quick")
RECORD = "scale_moons"


def made(rows, seed):
    """Noisy rows, and clean ones to score: for 20,000 rows those of ``benchmarks.deconvolver``."""
    rng = np.random.default_rng(seed)
    w, test = moons(rows, rng), moons(TEST_ROWS, rng)
    root = np.sqrt(np.diag(NOISE["moons"]))
    for part in np.array_split(w, max(1, rows // 10_000)):  # views: no copy is the peak
        part += root * rng.normal(size=part.shape)
    return w, test


def run(rows, seed, *, quick):
    """Fit once, and say how good, how long and how large."""
    from deconflow import Deconvolver
    from deconflow.noise import gaussian

    w, test = made(rows, seed)
    load = os.getloadavg()[0]
    begin, processor = time.perf_counter(), processor_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        noise = gaussian(covariance=NOISE["moons"])
        model = Deconvolver(random_state=seed, quick=quick).fit(w, noise=noise)
    seconds, processor = time.perf_counter() - begin, processor_seconds() - processor
    peak = peak_gib()
    truth = -true_log_p("moons", test).mean()
    alone = {k: -each.log_prob(test).mean() - truth for k, each in model.candidates_.items()}
    return {
        "rows": rows, "seed": seed, "quick": quick,
        "excess": -model.score_samples(test).mean() - truth, "candidates": alone,
        "seconds": seconds, "processor_seconds": processor, "load_before": load,
        "peak_gib": peak, "plan": model.describe(), "weights": model.weights_,
        "selection": model.selection_,
    }  # fmt: skip


def processor_seconds():
    """Seconds of all processors that this process and its children have used."""
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def peak_gib():
    """Largest memory of this process, and of any one child."""
    used = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    self_, child = (resource.getrusage(who).ru_maxrss / 2**20 for who in used)
    return {"process": self_, "largest_child": child}


def apart(rows, seed, *, quick):
    """Run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale_moons", "--one", f"{rows}", f"{seed}"]
    done = subprocess.run(command + ["--quick"] * quick, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def as_text(runs):
    """The runs, to be read."""
    lines = ["     rows  seed  excess  seconds  processor     GiB"]
    for each in sorted(runs, key=lambda run: (run["quick"], run["rows"], run["seed"])):
        peak = max(each["peak_gib"].values())
        bar = {} if each["quick"] else BARS.get(each["rows"], {})
        got = {"excess": each["excess"], "seconds": each["seconds"], "gib": peak}
        missed = [f"{name} above {most:g}" for name, most in bar.items() if got[name] > most]
        line = f"{each['rows']:9d}  {each['seed']:4d}  {each['excess']:6.4f}  "
        line += f"{each['seconds']:7.1f}  {each['processor_seconds']:9.1f}  {peak:6.2f}"
        lines.append("  ".join([line, *(["quick"] * each["quick"]), *missed]))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--rows", type=int, nargs="+", default=list(ROWS))
    add("--seeds", "--seed", type=int, nargs="+", default=[0])
    add("--quick", action="store_true")
    add("--output", default=RECORD, help="name of the file")
    add("--results", type=Path, default=RESULTS, help="folder of the file")
    add("--keep", action="store_true", help="runs of other code count as done")
    add("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    quick = arguments.quick
    if arguments.one is not None:
        found = run(*arguments.one, quick=quick)
        print(json.dumps(found, default=lambda value: value.tolist()))
        return
    runs = Runs(arguments.results / f"{arguments.output}.json", KEYS, keep=arguments.keep)
    runs.content |= {"bars": BARS}
    for rows in arguments.rows:
        for seed in arguments.seeds:
            if not runs.done({"rows": rows, "seed": seed, "quick": quick}):
                runs.add(apart(rows, seed, quick=quick))
                print(as_text(runs.runs[-1:]), flush=True)
    print(as_text(runs.current()))


if __name__ == "__main__":
    main()
