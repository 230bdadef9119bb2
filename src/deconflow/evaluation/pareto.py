r"""Pareto ``k``: how heavy the tail of importance weights is."""

import math

import torch
from torch import Tensor


def pareto_k(log_weights: Tensor) -> Tensor:
    r"""Fit a generalised Pareto law to each column's largest weights; return its shape ``k``.

    ``log_weights`` is ``(K, N)``. Below 0.7 means of these weights can be trusted; above, a few
    draws decide. The tail is the largest fifth, at most :math:`3 \sqrt K` draws.

    References
    ----------
    Vehtari et al. (2024), "Pareto smoothed importance sampling", https://arxiv.org/abs/1507.02646;
    Zhang and Stephens (2009), "A new and efficient estimation method for the generalized Pareto
    distribution".
    """
    count = len(log_weights)
    tail = min(count // 5, int(3 * math.sqrt(count)))
    if tail < 5:
        raise ValueError(f"Expected at least 25 draws for the tail of the weights; got {count}.")
    top = torch.topk(log_weights.double(), tail + 1, dim=0).values
    weights = (top - top[0]).exp()
    excess = (weights[:-1] - weights[-1:]).flip(0)  # ascending, (T, N)
    return _shape_of(excess.clamp_min(1e-300))


def _shape_of(x: Tensor) -> Tensor:
    """Estimate the shape by the profile-likelihood average of Zhang and Stephens."""
    n = len(x)
    grid = 30 + int(math.sqrt(n))
    steps = torch.arange(1, grid + 1, dtype=x.dtype).unsqueeze(-1) - 0.5
    quartile = x[max(0, int(n / 4 + 0.5) - 1)]
    theta = 1 / x[-1] + (1 - (grid / steps).sqrt()) / (3 * quartile)  # (G, N)
    ks = torch.stack([torch.log1p(-each * x).mean(0) for each in theta])
    log_l = n * ((-theta / ks).log() - ks - 1)
    log_l = torch.where(log_l.isfinite(), log_l, -torch.inf)
    best = (torch.softmax(log_l, 0) * theta).sum(0)
    k = torch.log1p(-best * x).mean(0)
    return (k * n + 5.0) / (n + 10.0)  # drawn towards one half, where there is little tail
