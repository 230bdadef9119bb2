"""Kernels and wavelets against Gaussian mixtures, where the truth is known.

    python -m benchmarks.classical [--seeds 0 1 2 3 4]

A density in one dimension (two Gaussians and a skewed part) under Gaussian and Laplace noise of
the same variance, and the paper's mixture of three Gaussians in two dimensions. For each
estimator: integrated squared error, and the excess of -log p(v) over the truth's on clean rows.
Writes ``results/classical.json``.
"""

import argparse
import warnings

import numpy as np
from scipy.stats import gamma, norm

from benchmarks.planes import toy, true_log_p
from benchmarks.record import write
from deconflow import XDGMM, DeconvolvingKDE, WaveletDeconvolver, noise

ROWS = {"line, Gaussian noise": 10_000, "line, Laplace noise": 10_000, "toy": 20_000}
TEST_ROWS = 20_000
SD = 0.4
SHARES = np.array([0.35, 0.3, 0.35])
TOY_NOISE = np.diag([0.1, 1.0])


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


def errors(model, test, log_p, points, cell):
    """Integrated squared error, and excess of -log p(v) on clean rows."""
    gaps = np.exp(model.score_samples(points)) - np.exp(log_p(points))
    excess = log_p(test).mean() - model.score_samples(test).mean()
    return {"squared_error": np.square(gaps).sum() * cell, "excess": excess}


def run(name, seed):
    """All estimators on one data set."""
    w, law, *truth = problem(name, ROWS[name], np.random.default_rng(seed))
    estimators = {
        "DeconvolvingKDE": (DeconvolvingKDE(), law),
        "DeconvolvingKDE without the noise": (DeconvolvingKDE(), 0.0),
        "XDGMM": (XDGMM("auto", random_state=seed), law),
    }
    if name != "toy":
        estimators["WaveletDeconvolver"] = (WaveletDeconvolver(), law)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            label: errors(model.fit(w, noise=known), *truth)
            for label, (model, known) in estimators.items()
        }


def mean_over_seeds(runs):
    """Mean of each figure of each estimator."""
    return {
        label: {key: round(float(np.mean([run[label][key] for run in runs])), 5) for key in figures}
        for label, figures in runs[0].items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    seeds = parser.parse_args().seeds
    write(
        "classical",
        command="python -m benchmarks.classical",
        settings={"seeds": seeds, "rows": ROWS, "noise_sd": SD, "test_rows": TEST_ROWS},
        tables={name: mean_over_seeds([run(name, seed) for seed in seeds]) for name in ROWS},
    )


if __name__ == "__main__":
    main()
