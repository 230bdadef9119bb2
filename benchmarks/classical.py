"""Classical deconvolution against Gaussian mixtures, where the truth is known.

    python -m benchmarks.classical [--seeds 0 1 2 3 4]

A density in one dimension (two Gaussians and a skewed part) under Gaussian and Laplace noise of
the same variance, and the paper's mixture of three Gaussians in two dimensions. For each
estimator: integrated squared error, and the excess of -log p(v) over the truth's on clean rows.
Writes ``results/classical.json``.
"""

import argparse
import time
import warnings

import numpy as np
from scipy.stats import gamma, norm

from benchmarks.record import write
from benchmarks.xd_choice import toy, true_log_p
from deconflow import XDGMM, DeconvolvingKDE, WaveletDeconvolver, noise

ROWS = {"line": (1000, 10_000), "toy": (2000, 20_000)}
TEST_ROWS = 20_000
SD = 0.4
SHARES = np.array([0.35, 0.3, 0.35])
TOY_NOISE = np.diag([0.1, 1.0])
LINE_ESTIMATORS = {
    "DeconvolvingKDE, plug-in": lambda seed: DeconvolvingKDE(),
    "DeconvolvingKDE, cv, flat top": lambda seed: DeconvolvingKDE("cv", kernel="flat_top"),
    "DeconvolvingKDE without the noise": lambda seed: Blind(DeconvolvingKDE()),
    "WaveletDeconvolver, linear": lambda seed: WaveletDeconvolver(None),
    "WaveletDeconvolver, hard": lambda seed: WaveletDeconvolver("hard"),
    "XDGMM": lambda seed: XDGMM(
        [1, 3, 6], floor=[0.05, 0.2], n_average=4, tol=1e-5, max_iter=200, random_state=seed
    ),
}
TOY_ESTIMATORS = {name: make for name, make in LINE_ESTIMATORS.items() if "Wavelet" not in name}


class Blind:
    """An estimator that is not told of the noise."""

    def __init__(self, model):
        self.model = model

    def fit(self, w, noise):
        self.model.fit(w, noise=0.0)
        return self.model


def line(n, rng):
    parts = rng.normal(-2, 0.4, n), rng.normal(0.5, 0.6, n), 1 + rng.gamma(3, 0.5, n)
    return np.stack(parts)[rng.choice(3, p=SHARES, size=n), np.arange(n)][:, None]


def line_log_p(v):
    x = v[:, 0]
    parts = norm.pdf(x, -2, 0.4), norm.pdf(x, 0.5, 0.6), gamma.pdf(x, 3, loc=1, scale=0.5)
    return np.log(SHARES @ parts)


def toy_log_p(v):
    return true_log_p("toy", v)


def problem(name, n, rng):
    """Measurements, their noise, clean rows, the true log density, and points to integrate over."""
    if name == "toy":
        w = toy(n, rng) + rng.normal(size=(n, 2)) * np.sqrt(np.diag(TOY_NOISE))
        axis = np.linspace(-8, 8, 321)
        points = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
        return w, TOY_NOISE, toy(TEST_ROWS, rng), toy_log_p, points, 0.05**2
    v, test = line(n, rng), line(TEST_ROWS, rng)
    points = np.linspace(-8, 12, 4001)[:, None]
    if name == "line, Gaussian noise":
        return v + SD * rng.normal(size=v.shape), [SD], test, line_log_p, points, 0.005
    w = v + rng.laplace(0, SD / np.sqrt(2), v.shape)
    return w, noise.laplace([SD / np.sqrt(2)]), test, line_log_p, points, 0.005


def run(name, n, seed):
    """All estimators on one data set."""
    w, law, test, log_p, points, cell = problem(name, n, np.random.default_rng(seed))
    truth, best = np.exp(log_p(points)), log_p(test).mean()
    answers = {}
    for label, make in (TOY_ESTIMATORS if name == "toy" else LINE_ESTIMATORS).items():
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make(seed).fit(w, noise=law)
        seconds = time.perf_counter() - begin
        error = np.square(np.exp(model.score_samples(points)) - truth).sum() * cell
        excess = best - model.score_samples(test).mean()
        answers[label] = {"squared_error": error, "excess": excess, "seconds": seconds}
    return answers


def mean_over_seeds(runs):
    """Mean and standard error of each figure of each estimator."""
    table = {}
    for label in runs[0]:
        columns = {key: [run[label][key] for run in runs] for key in runs[0][label]}
        table[label] = {key: round(float(np.mean(column)), 5) for key, column in columns.items()}
        for key in ("squared_error", "excess"):
            error = np.std(columns[key], ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else 0.0
            table[label][f"{key}_se"] = round(float(error), 5)
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    seeds = parser.parse_args().seeds
    XDGMM().fit(np.random.default_rng(0).normal(size=(50, 1)), noise=0.1)  # compiles its kernels
    XDGMM().fit(np.random.default_rng(0).normal(size=(50, 2)), noise=0.1)
    tables = {}
    for name in ("line, Gaussian noise", "line, Laplace noise", "toy"):
        for n in ROWS[name.split(",")[0]]:
            tables[f"{name}, {n} rows"] = mean_over_seeds([run(name, n, seed) for seed in seeds])
            print(name, n, "done", flush=True)
    write(
        "classical",
        command="python -m benchmarks.classical",
        settings={"seeds": seeds, "noise_sd": SD, "toy_noise": TOY_NOISE.tolist(),
                  "test_rows": TEST_ROWS},
        tables=tables,
    )  # fmt: skip


if __name__ == "__main__":
    main()
