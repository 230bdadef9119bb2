"""Errors understated by two: how often the learned factor is within 5 %, and its interval right.

    python benchmarks/learned_errors.py [seeds] [lowest error] [highest error]

Errors are said to lie between the lowest and the highest, evenly in their logarithm, in units of
the truth's standard deviation; they are twice as large. 5,000 rows of one column.
"""

import sys

import numpy as np

from deconflow import noise
from deconflow.errors import learn_errors
from deconflow.observations import Observations

ROWS = 5000


def truth(kind, rng):
    if kind == "skewed":
        v = np.exp(0.7 * rng.normal(size=(ROWS, 1)))
        return v / np.sqrt((np.exp(0.49) - 1) * np.exp(0.49))
    if kind == "two peaks":
        v = np.where(rng.random((ROWS, 1)) < 0.4, -1.0, 0.8) + 0.35 * rng.normal(size=(ROWS, 1))
        return v / v.std()
    return rng.normal(size=(ROWS, 1))


def learned(kind, seed, low, high):
    rng = np.random.default_rng(100 + seed)
    v = truth(kind, rng)
    sd = np.exp(rng.uniform(np.log(low), np.log(high), v.shape))
    free = noise.gaussian(sd=sd, scale="fit")
    data = Observations.from_arrays(v + 2 * sd * rng.normal(size=v.shape), free.said)
    found = learn_errors(free, data, ["x"], np.random.RandomState(0))
    return found.scale[0], found.scale_error[0]


def main(seeds=40, low=0.1, high=1.0):
    for kind in ("Gaussian", "skewed", "two peaks"):
        scale, error = np.array([learned(kind, seed, low, high) for seed in range(seeds)]).T
        near = np.mean(np.abs(scale / 2 - 1) < 0.05)
        held = np.mean(np.abs(scale - 2) < 1.645 * error)
        print(
            f"{kind:<10} factor {scale.mean():.3f} +- {scale.std():.3f} over seeds, standard error "
            f"{error.mean():.3f}; within 5 %: {near:.1%}; 90 % intervals hold it: {held:.1%}"
        )


if __name__ == "__main__":
    given = sys.argv[1:]
    main(*(kind(text) for kind, text in zip((int, float, float), given, strict=False)))
