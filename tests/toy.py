"""The paper's mixture of three Gaussians, with its closed forms."""

import numpy as np
import torch
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

WEIGHTS = torch.full((3,), 1 / 3, dtype=torch.float64)
MEANS = torch.tensor([[-2.0, 0.0], [0.0, -2.0], [0.0, 2.0]], dtype=torch.float64)
COVARIANCES = torch.diag_embed(
    torch.tensor([[0.09, 1.0], [1.0, 0.09], [1.0, 0.09]], dtype=torch.float64)
)
NOISE = np.diag([0.1, 1.0])


def truth(noise=None):
    """The law of v, or of w if a noise covariance is given."""
    spread = COVARIANCES if noise is None else COVARIANCES + torch.as_tensor(noise)
    return MixtureSameFamily(Categorical(probs=WEIGHTS), MultivariateNormal(MEANS, spread))


def draw(n, seed):
    """True values and measurements, each ``(n, 2)``."""
    rng = np.random.default_rng(seed)
    part = rng.integers(3, size=n)
    sd = np.sqrt(np.diagonal(COVARIANCES.numpy(), axis1=1, axis2=2))
    v = MEANS.numpy()[part] + sd[part] * rng.normal(size=(n, 2))
    return v, v + np.sqrt(np.diag(NOISE)) * rng.normal(size=(n, 2))
