"""Density error of XD averages on the toy, moons and hetero moons, with noisy rows only.

    python benchmarks/xd_choice.py [--seeds 0 1 2 3 4] [--data toy moons hetero] [--output NAME]

For every data set: 20,000 noisy rows go to ``XDGMM`` with several numbers of components and
floors; the figure is the excess of -log p(v) over the truth's on 50,000 clean rows.
Writes ``results/xd_choice.json``, after every run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np
from scipy.special import logsumexp

RESULTS = Path(__file__).parents[1] / "results"
BARS = {"toy": 0.010, "moons": 0.085, "hetero": 0.045}
SETTINGS = {
    "n_components": [3, 12], "floor": [0.05, 0.1, 0.2], "n_average": 12, "init": "kmeans",
    "tol": 1e-6, "max_iter": 300, "n_folds": 5,
}  # fmt: skip
ROWS, TEST_ROWS = 20_000, 50_000
NOISE = {"toy": np.diag([0.1, 1.0]), "moons": np.diag([0.025, 0.25])}
NOISE["hetero"] = NOISE["moons"]
SPREAD = 0.15


def toy(n, rng):
    means = np.array([[-2.0, 0.0], [0.0, -2.0], [0.0, 2.0]])
    sds = np.array([[0.3, 1.0], [1.0, 0.3], [1.0, 0.3]])
    which = rng.integers(3, size=n)
    return means[which] + sds[which] * rng.normal(size=(n, 2))


def moons(n, rng):
    t = rng.uniform(0, np.pi, n)
    return crescent(t, rng.integers(2, size=n)) + SPREAD * rng.normal(size=(n, 2))


def crescent(t, second):
    x = np.where(second, 1 - np.cos(t), np.cos(t))
    y = np.where(second, 0.5 - np.sin(t), np.sin(t))
    return (np.stack([x, y], -1) - [0.5, 0.25]) * [1.5, 3.0]


def true_log_p(name, v):
    if name == "toy":
        means = np.array([[-2.0, 0.0], [0.0, -2.0], [0.0, 2.0]])
        sds = np.array([[0.3, 1.0], [1.0, 0.3], [1.0, 0.3]])
    else:  # the integral over t by 1,000 midpoints
        t = (np.arange(1000) + 0.5) * np.pi / 1000
        means = np.concatenate(
            [crescent(t, np.zeros(1000, bool)), crescent(t, np.ones(1000, bool))]
        )
        sds = np.full_like(means, SPREAD)
    answer = np.empty(len(v))
    for lo in range(0, len(v), 2000):
        z = (v[lo : lo + 2000, None] - means) / sds
        log_p = -0.5 * np.square(z).sum(2) - np.log(2 * np.pi * sds.prod(1))
        answer[lo : lo + 2000] = logsumexp(log_p, axis=1) - np.log(len(means))
    return answer


def noises(name, n, rng):
    """One covariance, or for hetero moons a Wishart draw with that mean for every row."""
    S = NOISE[name]
    if name != "hetero":
        return S
    degrees = 4
    white = rng.normal(size=(n, degrees, 2)) @ np.linalg.cholesky(S / degrees).T
    return np.swapaxes(white, 1, 2) @ white


def run(name, seed):
    from deconflow import XDGMM
    from deconflow.noise import gaussian

    rng = np.random.default_rng(seed)
    draw = toy if name == "toy" else moons
    v, test = draw(ROWS, rng), draw(TEST_ROWS, rng)
    S = noises(name, ROWS, rng)
    w = v + (np.linalg.cholesky(S) @ rng.normal(size=(ROWS, 2, 1)))[..., 0]
    begin = time.perf_counter()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = XDGMM(random_state=seed, **SETTINGS).fit(w, noise=gaussian(covariance=S))
    seconds = time.perf_counter() - begin
    truth = -true_log_p(name, test).mean()
    ours = -model.score_samples(test).mean()
    table = {key: value.tolist() for key, value in model.selection_.items()}
    chosen = int(np.argmax(table["share"]))
    return {
        "data": name, "seed": seed, "truth": truth, "ours": ours, "excess": ours - truth,
        "bar": BARS[name], "seconds": seconds,
        "chosen": table["n_components"][chosen],
        "shares": [round(share, 2) for share in table["share"]], "table": table,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--data", nargs="+", default=list(BARS))
    parser.add_argument("--output", default="xd_choice.json", help="name in results/")
    arguments = parser.parse_args()
    runs = []
    for name in arguments.data:
        for seed in arguments.seeds:
            runs.append(run(name, seed))
            line = {key: value for key, value in runs[-1].items() if key != "table"}
            print(json.dumps(line), flush=True)
            write(runs, arguments.output)


def write(runs, name) -> None:
    import numba
    import sklearn

    record = {
        "command": " ".join(["python", *sys.argv]),
        "settings": SETTINGS | {"rows": ROWS, "test_rows": TEST_ROWS},
        "runs": runs,
        "versions": {"numpy": np.__version__, "numba": numba.__version__,
                     "scikit-learn": sklearn.__version__, "python": platform.python_version()},
        "machine": {"processor": platform.machine(), "cpus": os.cpu_count()},
    }  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / name).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
