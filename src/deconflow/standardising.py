r"""Standardising: to a scale on which the truth, not the measurement, has unit variance."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from deconflow._types import Array
from deconflow.checks import LARGEST, SMALLEST, first_bad
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.saving import refuse

SMALLEST_SHARE = 0.01
"""The deconvolved variance is taken to be at least this share of the measured one."""

SMALLEST_VARIANCE = 0.0025
"""The same in units of the better half's spread: a few exact rows among noisy ones weigh so much
that without it the scale would shrink to nothing about them."""

BEST_FEW, FAR_LARGER = 16, 2.0**14
"""So many values suffice for a spread; a variance so many times larger than theirs is noise."""
ROUNDS, FARTHEST = 100, 10.0
"""Most rounds of reweighting, and how many standard deviations away a row is held back."""


@dataclass(frozen=True)
class Standardiser:
    r"""The change of units :math:`v = m + s z`, :math:`w = R m + t w'`, in float64.

    Attributes
    ----------
    location, scale : Tensor
        ``(D,)``: ``m`` and ``s`` of the truth.
    measured_scale : Tensor
        ``(M,)``: ``t`` of the measured values; the same as ``scale`` without a projection.
    """

    location: Tensor
    scale: Tensor
    measured_scale: Tensor

    @classmethod
    def fit(cls, data: Observations) -> Standardiser:
        r"""Estimate from observations.

        The location solves :math:`\min_m \sum_{ij} \omega_{ij} (w - E n - R m)_{ij}^2`; the
        variances :math:`s^2` are the least-squares answer, with weights :math:`\omega^2`, to
        :math:`E (w - R m)_j^2 - S_{jj} = \sum_d R_{jd}^2 s_d^2`. Each measured value counts by its
        precision :math:`\omega = 1 / (\sum_d R_{jd}^2 s_d^2 + S_{jj})`, found in rounds, so
        that a very noisy row changes nothing; outliers are held back at 10 standard deviations.
        With the same noise for all rows these are the mean and the variance of ``w`` less that of
        the noise.
        """
        first = cls.powers_of_two(data)  # so that no square overflows
        return first.then(cls._fit_usual(first.observations(data)))

    @classmethod
    def _fit_usual(cls, data: Observations) -> Standardiser:
        """Estimate from observations of usual sizes."""
        moments = _Moments(data)
        location, variance = moments.start()
        for _ in range(ROUNDS):
            before = variance
            location, variance = moments.refine(location, variance)
            if torch.allclose(variance, before, rtol=1e-10, atol=0):
                break
        scale = variance.sqrt()
        if data.projection is None:
            return cls(location, scale, scale.clone())
        return cls(location, scale, moments.channel_scale(variance))

    def then(self, second: Standardiser) -> Standardiser:
        """Return the change to these units, and from them to others."""
        return Standardiser(
            self.from_standard(second.location),
            self.scale * second.scale,
            self.measured_scale * second.measured_scale,
        )

    def validate(self) -> None:
        """Raise unless these can be units: of what a file says that they are."""
        for name in ("location", "scale", "measured_scale"):
            numbers = np.asarray(getattr(self, name))
            refuse(name, numbers.ndim != 1 or not np.isfinite(numbers).all(), "finite numbers")
            refuse(name, name != "location" and (numbers <= 0).any(), "positive")

    @classmethod
    def powers_of_two(cls, data: Observations) -> Standardiser:
        """Return units without a shift, in powers of two: changing to them and back is exact.

        The better half of each column's values has a spread of about one. Values with gigantic
        noise, be they nine of ten, or a few far outliers do not change that.
        """
        w = data.w.numpy()
        variance = np.broadcast_to(data.noise.variance().numpy(), w.shape)
        seen = np.ones(w.shape, bool) if data.observed is None else data.observed.numpy()
        columns = zip(w.T, variance.T, seen.T, strict=True)
        channel = _powers(np.array([_spread(x[use], s[use]) for x, s, use in columns]))
        _refuse_tiny("w", channel)
        latent = channel
        if data.projection is not None:
            slopes = data.projection.numpy() / channel[:, None]
            used = np.maximum(1, (slopes != 0).sum((0, 1)))
            size = np.sqrt(np.square(slopes).sum((0, 1)) / used)
            latent = _powers(1.0 / np.where(size > 0, size, 1.0))
            _refuse_tiny("w over projection", latent)
        return cls._without_shift(latent, channel)

    @classmethod
    def of_mixture(cls, mixture: GaussianMixture, data: Observations) -> Standardiser:
        """Return units in powers of two in which the mixture's usual component has width one.

        Those of what is measured are the rows' largest slopes of it.
        """
        log_sd = 0.5 * np.log(np.diagonal(mixture.covariances, axis1=1, axis2=2))
        latent = _powers(np.exp(mixture.weights @ log_sd))
        channel = latent
        if data.projection is not None:
            reach = np.abs(data.projection.numpy() * latent).max((0, 2))
            channel = _powers(np.where(reach > 0, reach, 1.0))
        return cls._without_shift(latent, channel)

    @classmethod
    def _without_shift(cls, latent: Array, channel: Array) -> Standardiser:
        tensors = (np.zeros_like(latent), latent, channel)
        return cls(*(torch.tensor(each, dtype=torch.float64) for each in tensors))

    def observations(self, data: Observations) -> Observations:
        """Change the units of observations, noise and projection included."""
        channel = self.measured_scale.to(data.w)
        centred = _residual(data, data.w, self.location.to(data.w))
        projection = data.projection
        if projection is not None:
            projection = projection * self.scale.to(data.w) / channel.unsqueeze(-1)
        noise = data.noise.divide(channel)
        return replace(data, w=centred / channel, noise=noise, projection=projection)

    def measuring(self, data: Observations) -> Standardiser:
        """Return these units of the truth, with others of what is measured: the rows' signal."""
        signal = (data.projections() * self.scale).square().sum(-1).amax(0).sqrt()
        return replace(self, measured_scale=torch.where(signal > 0, signal, 1.0))

    def to_standard(self, v: Tensor) -> Tensor:
        """Change the units of true values ``v``, in float64."""
        v = v.double()
        return (v - self.location.to(v)) / self.scale.to(v)

    def from_standard(self, z: Tensor) -> Tensor:
        """Change standardised true values back, in float64."""
        z = z.double()
        return self.location.to(z) + self.scale.to(z) * z

    def mixture_to_standard(self, mixture: GaussianMixture) -> GaussianMixture:
        """Change the units of a mixture of true values."""
        scale = self.scale.numpy()
        return mixture.in_units(-self.location.numpy() / scale, 1.0 / scale)

    def mixture_from_standard(self, mixture: GaussianMixture) -> GaussianMixture:
        """Change a mixture of standardised true values back."""
        return mixture.in_units(self.location.numpy(), self.scale.numpy())

    def log_latent_volume(self) -> Tensor:
        """Return ``log |dv / dz|``."""
        return self.scale.log().sum()

    def log_observed_volume(self, data: Observations) -> Tensor:
        """Return ``log |dw / dw'|`` over each row's observed values, ``(N,)`` or ``(1,)``."""
        log_t = self.measured_scale.log().to(data.w)
        if data.observed is None:
            return log_t.sum(-1, keepdim=True)
        return torch.where(data.observed, log_t, 0.0).sum(-1)


class _Moments:
    """Weighted moments of all measured values ``(N, M)``, with or without a projection."""

    def __init__(self, data: Observations) -> None:
        self.data = data
        self.w = data.w - data.noise.mean()
        self.S = data.noise.variance().expand_as(data.w)
        seen = torch.ones_like(data.w) if data.observed is None else data.observed.to(data.w)
        self.count = seen if data.weights is None else seen * data.weights.unsqueeze(-1)
        self.R2 = None if data.projection is None else data.projection.square()
        _refuse_unseen(self._solve(self.count, 2).isnan())

    def start(self) -> tuple[Tensor, Tensor]:
        """Median and squared median deviation, which no single row can move."""
        if self.R2 is None:
            used = torch.where(self.count > 0, self.w, torch.nan)
            location = used.nanmedian(0).values
            spread = (used - location).abs().nanmedian(0).values.square() / 0.4549
            plain = (used - location).square().nanmean(0)
            return location, _positive(torch.where(spread > 0, spread, plain))
        sizes = (self.R2 * self.count.unsqueeze(-1)).sum((0, 1)) / self.count.sum()
        reach = (self.R2 / sizes).sum(-1)
        ratio = (self.w.square() / torch.where(reach > 0, reach, 1.0))[self.count > 0]
        common = ratio.median() / 0.4549
        common = common if common > 0 else ratio.mean()
        return torch.zeros_like(sizes), _positive(common / sizes)

    def refine(self, location: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """One round: precisions from the variance, then location and variance from those."""
        spread = self._signal(variance) + self.S
        held = _residual(self.data, self.w, location)
        limit = FARTHEST * spread.sqrt()
        held = held.clamp(-limit, limit)
        relative = spread / torch.exp2(spread.amin().log2().round())  # whose squares are numbers
        location = location + self._solve(self.count / relative, 1, held)
        squares = _residual(self.data, self.w, location).clamp(-limit, limit).square()
        counted = self.count / relative.square()
        total = self._solve(counted, 2, squares)
        deconvolved = self._solve(counted, 2, squares - self.S)
        variance = _positive(deconvolved.maximum(SMALLEST_SHARE * total))
        return location, variance.clamp(min=SMALLEST_VARIANCE)

    def channel_scale(self, variance: Tensor) -> Tensor:
        """Root mean square of each channel's signal; one for a channel never seen."""
        signal = (self._signal(variance) * self.count).sum(0)
        count = self.count.sum(0)
        mean = signal / torch.where(count > 0, count, 1.0)
        return torch.where(mean > 0, mean, 1.0).sqrt()

    def _signal(self, variance: Tensor) -> Tensor:
        """Variance of ``R v``, ``(N, M)`` or ``(M,)``."""
        return variance if self.R2 is None else self.R2 @ variance

    def _solve(self, counted: Tensor, power: int, targets: Tensor | None = None) -> Tensor:
        """Least squares of ``targets = R**power x``, NaN if unseen; squares are not negative."""
        targets = torch.ones_like(counted) if targets is None else targets
        if self.R2 is None or self.data.projection is None:
            return (counted * targets).sum(0) / counted.sum(0)
        R = self.data.projection if power == 1 else self.R2
        weighted = R * counted.unsqueeze(-1)
        gram = torch.einsum("nmd,nme->de", weighted, R)
        units = gram.diagonal().sqrt()  # so that cut-offs know no units
        sums = torch.einsum("nmd,nm->d", weighted, targets) / units
        if not (units > 0).all():
            return torch.where(units > 0, units.new_zeros(()), torch.nan)
        values, vectors = torch.linalg.eigh(gram / torch.outer(units, units))
        kept = values > 1e-10 * values[-1]
        roots = values[kept].sqrt()
        A, b = roots.unsqueeze(-1) * vectors[:, kept].mT, vectors[:, kept].mT @ sums / roots
        x = vectors[:, kept] @ (b / roots)
        if power == 2 and (x < 0).any():
            x = torch.from_numpy(nnls(A.numpy(), b.numpy())[0])
        return x / units


def _residual(data: Observations, w: Tensor, location: Tensor) -> Tensor:
    if data.projection is not None:
        return w - data.projection @ location
    r = w - location
    return r if data.observed is None else torch.where(data.observed, r, 0.0)


def _positive(variance: Tensor) -> Tensor:
    """Replace the zeros of constant columns by a share of the others, or by one."""
    usual = variance[variance > 0]
    fallback = SMALLEST_SHARE * usual.mean() if len(usual) and len(usual) < len(variance) else 1.0
    return torch.where(variance > 0, variance, fallback)


def _refuse_unseen(unseen: Tensor) -> None:
    position = first_bad(unseen)
    if position is not None:
        raise ValueError(
            "Expected every dimension to be measured in at least one row of w (of positive "
            f"weight); got none for column {position[0]}. Drop it."
        )


def _refuse_tiny(name: str, spread: Array) -> None:
    """Raise for columns whose squares vanish, or overflow."""
    position = first_bad((spread < SMALLEST) | (spread > LARGEST))
    if position is not None:
        raise ValueError(
            f"Expected columns of {name} that scatter by {SMALLEST:g} to {LARGEST:g}; "
            f"got {spread[position]:.1g} in column {position[0]}. Change the units."
        )


def _spread(values: Array, variance: Array) -> float:
    """Spread of the better half of some values; the first measure of it that is positive.

    Of fewer, down to the best few, if most have a noise that is far larger than theirs.
    """
    if len(values) == 0:
        return 1.0
    best = np.sort(variance)[min(BEST_FEW, len(variance)) - 1]
    good = values[variance <= FAR_LARGER * min(best, np.median(variance) / FAR_LARGER)]
    top = np.abs(values).max() or 1.0  # squares of shares of it do not overflow
    for candidate in (
        np.median(np.abs(good - np.median(good))),
        top * (good / top).std(),
        top * (values / top).std(),
        np.sqrt(np.median(variance)),
        np.abs(values).max(),
    ):
        if candidate > 0:
            return float(candidate)
    return 1.0


def _powers(values: Array) -> Array:
    return np.exp2(np.round(np.log2(values)))
