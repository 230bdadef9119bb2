"""Small data sets with every kind of noise, projection and missing value, by name."""

import numpy as np

from deconflow import GaussianMixture
from deconflow.noise import gaussian

N, D, K = 61, 3, 3


def full_covariances(rng, n, dim):
    factor = 0.4 * rng.normal(size=(n, dim, dim))
    return factor @ factor.transpose(0, 2, 1) + 0.05 * np.eye(dim)


def values(rng, n=N, dim=D):
    return rng.normal(size=(n, dim)) * np.linspace(1, 2, dim) + 3.0 * rng.integers(2, size=(n, 1))


def start(rng, dim=D, components=K):
    weights = rng.uniform(1, 2, components)
    covariances = full_covariances(rng, components, dim) + np.eye(dim)
    means = rng.normal(size=(components, dim)) * 2
    return GaussianMixture(weights / weights.sum(), means, covariances)


def shared(rng):
    return {"w": values(rng), "noise": gaussian(covariance=full_covariances(rng, 1, D)[0])}


def diagonal(rng):
    return {"w": values(rng), "noise": rng.uniform(0.1, 1, (N, D))}


def full(rng):
    return {"w": values(rng), "noise": full_covariances(rng, N, D)}


def exact(rng):
    return {"w": values(rng), "noise": 0.0}


def some_exact(rng):
    sd = rng.uniform(0.1, 1, (N, D))
    sd[::3] = 0.0
    return {"w": values(rng), "noise": sd}


def missing(rng):
    case = full(rng)
    case["w"][::3, 1] = np.nan
    case["w"][::5, 0] = np.nan
    return case


def rare_patterns(rng):
    w = values(rng, N, 6)
    w[rng.uniform(size=w.shape) < 0.5] = np.nan
    w[:, 0] = 1.0 + rng.normal(size=N)
    return {"w": w, "noise": full_covariances(rng, N, 6), "dim": 6}


def one_projection(rng):
    return {
        "w": values(rng, N, 2),
        "noise": full_covariances(rng, N, 2),
        "projection": rng.normal(size=(2, D)),
    }


def own_projections(rng):
    return {
        "w": values(rng, N, 2),
        "noise": full_covariances(rng, N, 2),
        "projection": rng.normal(size=(N, 2, D)),
    }


def projection_and_missing(rng):
    case = own_projections(rng)
    case["w"][::4, 1] = np.nan
    return case


def weighted(rng):
    return full(rng) | {"weights": rng.uniform(0, 2, N)}


def twelve_dimensions(rng):
    return {"w": values(rng, N, 12), "noise": full_covariances(rng, N, 12), "dim": 12}


def twelve_shared(rng):
    return {"w": values(rng, N, 12), "noise": np.full(12, 0.3), "dim": 12}


def twelve_diagonal(rng):
    return {"w": values(rng, N, 12), "noise": rng.uniform(0.1, 1, (N, 12)), "dim": 12}


def one_dimension(rng):
    return {"w": values(rng, N, 1), "noise": rng.uniform(0.1, 1, (N, 1)), "dim": 1}


CASES = {
    f.__name__: f
    for f in (
        shared, diagonal, full, exact, some_exact, missing, rare_patterns, one_projection,
        own_projections, projection_and_missing, weighted, twelve_dimensions, twelve_shared,
        twelve_diagonal, one_dimension,
    )
}  # fmt: skip


def make(name, seed=0):
    """Observations' arguments, the same rows as lists for the reference, and a start."""
    rng = np.random.default_rng(seed)
    case = CASES[name](rng)
    dim = case.pop("dim", D)
    w, projection = case["w"], case.get("projection")
    n, size = w.shape
    noise = case["noise"]
    if hasattr(noise, "covariance"):
        S = np.broadcast_to(noise.covariance(), (n, size, size))
    elif np.ndim(noise) == 3:
        S = noise
    else:
        S = np.square(np.broadcast_to(noise, (n, size)))[..., None] * np.eye(size)
    R = np.eye(size)[None] if projection is None else projection
    R = np.broadcast_to(R, (n, size, dim))
    seen = [np.flatnonzero(~np.isnan(row)) for row in w]
    rows = (
        [w[i, o] for i, o in enumerate(seen)],
        [R[i][o] for i, o in enumerate(seen)],
        [S[i][np.ix_(o, o)] for i, o in enumerate(seen)],
    )
    return case, rows, start(rng, dim)
