"""``Deconvolver`` by its default settings on seven tasks, scored on clean rows it never sees.

    python -m benchmarks.deconvolver [--tasks white red toy ...] [--seeds 0 1 2 3 4] [--quick]

The toy, moons and hetero moons are simulated anew for every seed; white and red wine
(``../shared/data``, or what ``--data`` says) are shuffled by the seed, nine tenths blurred with
noise of variance 0.1 and fitted. XD beside it is ``XDGMM`` with the components and floor that the
fit's own cross-validation chose: the better of its 5-fold average and the fit's own average.
Writes ``results/deconvolver.json`` after every run; runs that are there are not repeated.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.record import write
from benchmarks.xd_choice import NOISE, moons, noises, toy, true_log_p

BARS = {"toy": 0.008, "moons": 0.075, "hetero": 0.035, "toy_t": 0.010, "toy_missing": 0.020,
        "white": -0.60, "red": -0.50}  # fmt: skip
WINE = ("white", "red")
ROWS = {"toy": 50_000, "toy_t": 50_000, "toy_missing": 50_000, "moons": 20_000, "hetero": 20_000}
TEST_ROWS = 50_000
WINE_VARIANCE = 0.1


def simulated(name, seed):
    """Noisy rows with their noise, clean test rows, and the truth's -log p(v) of these."""
    from deconflow.noise import gaussian, student_t

    rng = np.random.default_rng(seed)
    n = ROWS[name]
    if name in ("moons", "hetero"):
        v, test = moons(n, rng), moons(TEST_ROWS, rng)
        S = noises(name, n, rng)
        w = v + (np.linalg.cholesky(S) @ rng.normal(size=(n, 2, 1)))[..., 0]
        return w, gaussian(covariance=S), test, -true_log_p("moons", test).mean()
    v, test = toy(n, rng), toy(TEST_ROWS, rng)
    truth = -true_log_p("toy", test).mean()
    sd = np.sqrt(np.diag(NOISE["toy"]))
    if name == "toy_t":
        return v + sd * rng.standard_t(3, size=v.shape), student_t(sd, 3.0), test, truth
    w = v + sd * rng.normal(size=v.shape)
    if name == "toy_missing":
        w = np.where(rng.uniform(size=w.shape) < 0.3, np.nan, w)
        w = w[~np.isnan(w).all(1)]
    return w, gaussian(sd=sd), test, truth


def wine(name, seed, folder):
    """Noisy rows, their noise, clean test rows, and which of these have no copy in training."""
    rows = np.load(folder / f"wine_{name}.npy")
    rng = np.random.default_rng(seed)
    rows = rows[rng.permutation(len(rows))]
    n = round(0.9 * len(rows))
    v, test = rows[:n], rows[n:]
    w = v + np.sqrt(WINE_VARIANCE) * rng.normal(size=v.shape)
    known = {row.tobytes() for row in v}
    fresh = np.array([row.tobytes() not in known for row in test])
    return w, np.full(w.shape[1], np.sqrt(WINE_VARIANCE)), test, fresh


def xd_scores(model, w, noise, test, seed):
    """Log density of the test rows under XD, as well tuned as we can: the better of two."""
    from deconflow import XDGMM

    chosen = int(model.selection_["share"].argmax())
    count = int(model.selection_["n_components"][chosen])
    floor = float(model.selection_["floor"][chosen])
    average = {"n_average": 5, "average_over": "folds"}
    xd = XDGMM(count, floor=floor, max_iter=300, random_state=seed, **average)
    mine = model.xd_score_samples(test)
    return max(xd.fit(w, noise=noise).score_samples(test), mine, key=np.mean)


def run(name, seed, folder, *, quick):
    from deconflow import Deconvolver

    if name in WINE:
        w, noise, test, fresh = wine(name, seed, folder)
        truth = None
    else:
        w, noise, test, truth = simulated(name, seed)
    begin = time.perf_counter()
    model = Deconvolver(random_state=seed, quick=quick).fit(w, noise=noise)
    seconds = time.perf_counter() - begin
    ours, xd = model.score_samples(test), xd_scores(model, w, noise, test, seed)
    record = {
        "task": name, "seed": seed, "quick": quick, "bar": BARS[name], "seconds": seconds,
        "method": model.method_, "ours": -ours.mean(), "xd": -xd.mean(), "truth": truth,
        "figure": -ours.mean() - (-xd.mean() if truth is None else truth),
        "less_xd": xd.mean() - ours.mean(),
        "selection": {key: value.tolist() for key, value in model.selection_.items()},
        "certificate": model.certificate_.as_dict(),
    }  # fmt: skip
    if name in WINE:
        record |= {"without_copy": {"ours": -ours[fresh].mean(), "xd": -xd[fresh].mean(),
                                    "share": fresh.mean()}}  # fmt: skip
    return json.loads(json.dumps(record, default=float))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=list(BARS), choices=list(BARS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", default="deconvolver", help="name in results/")
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    arguments = parser.parse_args()
    path = Path(__file__).parents[1] / "results" / f"{arguments.output}.json"
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    done = {(r["task"], r["seed"], r["quick"]) for r in runs}
    warnings.simplefilter("ignore")
    for name in arguments.tasks:
        for seed in arguments.seeds:
            if (name, seed, arguments.quick) in done:
                continue
            runs.append(run(name, seed, arguments.data, quick=arguments.quick))
            write(arguments.output, show=False, bars=BARS, runs=runs)
            keys = ("task", "seed", "quick", "method", "figure", "bar", "less_xd", "seconds")
            print(json.dumps({key: runs[-1][key] for key in keys}), flush=True)


if __name__ == "__main__":
    main()
