"""Laws of two columns: the paper's toy, and moons with one noise or one of its own in every row."""

import numpy as np
from scipy.special import logsumexp

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
