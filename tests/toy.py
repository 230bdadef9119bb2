"""The paper's mixture of three Gaussians, with its closed forms."""

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

WEIGHTS = np.full(3, 1 / 3)
MEANS = np.array([[-2.0, 0.0], [0.0, -2.0], [0.0, 2.0]])
VARIANCES = np.array([[0.09, 1.0], [1.0, 0.09], [1.0, 0.09]])
COVARIANCES = VARIANCES[:, :, None] * np.eye(2)
NOISE = np.diag([0.1, 1.0])


def log_prob(points, noise=None):
    """Log density of v, or of w if a noise covariance is given; as ``(N,)``."""
    spread = np.sqrt(VARIANCES if noise is None else VARIANCES + np.diag(noise))
    each = norm.logpdf(np.asarray(points)[:, None], MEANS, spread).sum(2)
    return logsumexp(each, axis=1, b=WEIGHTS)


def draw(n, seed):
    """True values and measurements, each ``(n, 2)``."""
    rng = np.random.default_rng(seed)
    part = rng.integers(3, size=n)
    v = MEANS[part] + np.sqrt(VARIANCES)[part] * rng.normal(size=(n, 2))
    return v, v + np.sqrt(np.diag(NOISE)) * rng.normal(size=(n, 2))
