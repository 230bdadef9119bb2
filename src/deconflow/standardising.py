r"""Standardising: to a scale on which the truth, not the measurement, has unit variance."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from deconflow.checks import first_bad
from deconflow.observations import Observations

SMALLEST_SHARE = 0.01
"""The deconvolved variance is taken to be at least this share of the measured one."""


@dataclass(frozen=True)
class Standardiser:
    r"""The change of units :math:`v = m + s z`, :math:`w = R m + t w'`.

    Attributes
    ----------
    location, scale : Tensor
        ``(D,)``: ``m`` and ``s`` of the truth.
    channel : Tensor
        ``(M,)``: ``t`` of the measured values; the same as ``scale`` without a projection.
    """

    location: Tensor
    scale: Tensor
    channel: Tensor

    @classmethod
    def fit(cls, data: Observations) -> Standardiser:
        r"""Estimate from observations.

        The location solves :math:`\min_m \sum_i |w_i - E n_i - R_i m|^2`; the variances
        :math:`s^2` are the least-squares answer to
        :math:`E (w - R m)_j^2 - S_{jj} = \sum_d R_{jd}^2 s_d^2`. Without a projection these are
        the mean and the variance of ``w`` less the mean noise variance.
        """
        centred = data.w - data.noise.mean()
        seen = torch.ones_like(data.w) if data.observed is None else data.observed.to(data.w)
        location = _solve(data, centred * seen, power=1)
        spread = _projected_residual(data, centred, location).square() * seen
        noise = data.noise.variance() * seen
        total = _solve(data, spread, power=2)
        variance = _solve(data, spread - noise, power=2).maximum(SMALLEST_SHARE * total)
        scale = torch.where(variance > 0, variance, 1.0).sqrt()
        if data.projection is None:
            return cls(location, scale, scale.clone())
        channel = _channel_scale(_weighted(data, spread).sum(0), _weighted(data, seen).sum(0))
        return cls(location, scale, channel)

    def observations(self, data: Observations) -> Observations:
        """Change the units of observations, noise and projection included."""
        channel = self.channel.to(data.w)
        centred = _projected_residual(data, data.w, self.location.to(data.w))
        projection = data.projection
        if projection is not None:
            projection = projection * self.scale.to(data.w) / channel.unsqueeze(-1)
        noise = data.noise.divide(channel)
        return replace(data, w=centred / channel, noise=noise, projection=projection)

    def latent(self, v: Tensor) -> Tensor:
        """Change the units of true values ``v``."""
        return (v - self.location.to(v)) / self.scale.to(v)

    def restore(self, z: Tensor) -> Tensor:
        """Change standardised true values back."""
        return self.location.to(z) + self.scale.to(z) * z

    def log_latent_volume(self) -> Tensor:
        """Return ``log |dv / dz|``."""
        return self.scale.log().sum()

    def log_observed_volume(self, data: Observations) -> Tensor:
        """Return ``log |dw / dw'|`` over each row's observed values, ``(N,)`` or ``(1,)``."""
        log_t = self.channel.log().to(data.w)
        if data.observed is None:
            return log_t.sum(-1, keepdim=True)
        return torch.where(data.observed, log_t, 0.0).sum(-1)


def _projected_residual(data: Observations, w: Tensor, location: Tensor) -> Tensor:
    if data.projection is not None:
        return w - data.projection @ location
    r = w - location
    return r if data.observed is None else torch.where(data.observed, r, 0.0)


def _weighted(data: Observations, values: Tensor) -> Tensor:
    return values if data.weights is None else values * data.weights.unsqueeze(-1)


def _solve(data: Observations, targets: Tensor, power: int) -> Tensor:
    """Least squares of ``targets = R**power x`` over all observed values."""
    if data.projection is None:
        seen = torch.ones_like(data.w) if data.observed is None else data.observed.to(data.w)
        count = _weighted(data, seen).sum(0)
        _refuse_unseen(count == 0)
        return _weighted(data, targets).sum(0) / count
    R = data.projection.pow(power)
    weighted = R if data.weights is None else R * data.weights[:, None, None]
    gram = torch.einsum("nmd,nme->de", weighted, R)
    _refuse_unseen(gram.diagonal() == 0)
    sums = torch.einsum("nmd,nm->d", weighted, targets)
    units = gram.diagonal().sqrt()  # so that the cut-off knows no units
    inverse = torch.linalg.pinv(gram / torch.outer(units, units), rtol=1e-10, hermitian=True)
    return inverse @ (sums / units) / units


def _channel_scale(total: Tensor, count: Tensor) -> Tensor:
    """Root mean square of each channel; one for a channel that is constant or never seen."""
    mean = total / torch.where(count > 0, count, 1.0)
    return torch.where(mean > 0, mean, 1.0).sqrt()


def _refuse_unseen(unseen: Tensor) -> None:
    position = first_bad(unseen)
    if position is not None:
        raise ValueError(
            "Expected every dimension to be measured in at least one row (of positive weight); "
            f"got none for column {position[0]}. Drop it."
        )
