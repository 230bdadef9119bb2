"""Covariances of torch distributions, finite for every law that has quantiles."""

from __future__ import annotations

import torch
from scipy.stats import t as student_t
from torch import Tensor
from torch.distributions import (
    Distribution,
    Independent,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    MultivariateNormal,
    StudentT,
)

CENTRAL = 0.8413447460685429
"""The normal law's probability of a value below its mean plus one standard deviation."""


def finite_mean(distribution: Distribution) -> Tensor:
    """Mean of each value, zero where the law has none."""
    mean = distribution.mean
    return torch.where(mean.isfinite(), mean, 0.0)


def finite_covariance(distribution: Distribution) -> Tensor:
    """Covariance of ``(N, D)`` values as ``(N, D, D)``.

    Where the variance is infinite or undefined, the squared half width of the central 68 %.
    """
    if isinstance(distribution, MultivariateNormal | LowRankMultivariateNormal):
        return distribution.covariance_matrix
    if isinstance(distribution, MixtureSameFamily) and distribution.event_shape:
        return _mixture_covariance(distribution)
    variance = _variance(distribution)
    finite = variance.isfinite()
    if not finite.all():
        variance = torch.where(finite, variance, _half_width(distribution).square())
    return torch.diag_embed(variance)


def _variance(distribution: Distribution) -> Tensor:
    try:
        return distribution.variance
    except NotImplementedError as error:
        law = distribution.base_dist if isinstance(distribution, Independent) else distribution
        raise ValueError(
            "Expected noise whose law knows its mean and variance; got a "
            f"{type(law).__name__}, which does not. Give it both, in a class of its own."
        ) from error


def _mixture_covariance(mixture: MixtureSameFamily) -> Tensor:
    weights = mixture.mixture_distribution.probs.unsqueeze(-1)
    parts = mixture.component_distribution
    offset = parts.mean - mixture.mean.unsqueeze(-2)
    spread = torch.einsum("...ki,...kj->...ij", weights * offset, offset)
    return spread + (weights.unsqueeze(-1) * finite_covariance(parts)).sum(-3)


def _half_width(distribution: Distribution) -> Tensor:
    if isinstance(distribution, Independent):
        return _half_width(distribution.base_dist)
    if isinstance(distribution, StudentT):
        quantile = student_t.ppf(CENTRAL, distribution.df.cpu().numpy())
        return distribution.scale * torch.as_tensor(quantile).to(distribution.scale)
    try:
        high = distribution.icdf(torch.tensor(CENTRAL))
        return (high - distribution.icdf(torch.tensor(1 - CENTRAL))) / 2
    except NotImplementedError as error:
        raise ValueError(
            "Expected noise with a finite variance or with quantiles (icdf); "
            f"got {type(distribution).__name__}, which has neither."
        ) from error
