r"""Standardising: to a scale on which the truth, not the measurement, has unit variance.

Networks have a change of units of their own, which adds noise to exact values.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import nnls

from deconflow._types import Array, BoolArray
from deconflow.checks import LARGEST, SMALLEST, first_bad, like, refuse_where
from deconflow.mixtures import GaussianMixture
from deconflow.noise import GaussianNoise, Noise
from deconflow.observations import Observations, OutOfReachError, noise_sizes
from deconflow.saving import refuse

#: The deconvolved variance is taken to be at least this share of the measured one.
SMALLEST_SHARE = 0.01

#: The same in units of the better half's spread: a few exact rows among noisy ones weigh so much
#: that without it the scale would shrink to nothing about them.
SMALLEST_VARIANCE = 0.0025

#: So many values suffice for a spread; a variance so many times larger than theirs is noise.
BEST_FEW, FAR_LARGER = 16, 2.0**14
#: Most rounds of reweighting, and how many standard deviations away a row is held back.
ROUNDS, FARTHEST = 100, 10.0
#: Of networks: exact values are taken to be known to this share of the truth's standard
#: deviation; noise beyond so many of these tells nothing.
SMALLEST_NOISE, LARGEST_NOISE = 1e-3, 1e9
#: Standard deviations of the truth whose squares a precision can add up.
PRECISE_TO = {"float32": 1e15, "float64": 1e140}

#: Medians over the first axis, NaN left out; of an even number of values the lower middle.
_low_median = partial(np.nanquantile, q=0.5, axis=0, method="lower")


@dataclass(frozen=True)
class Standardiser:
    r"""The change of units :math:`v = m + s z`, :math:`w = R m + t w'`, in float64.

    Attributes
    ----------
    location, scale : array
        ``(D,)``: ``m`` and ``s`` of the truth.
    measured_scale : array
        ``(M,)``: ``t`` of the measured values; the same as ``scale`` without a projection.
    """

    location: Array
    scale: Array
    measured_scale: Array

    @classmethod
    def fit(cls, data: Observations) -> "Standardiser":
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
        moments = _Moments(first.observations(data))
        location, variance = moments.start()
        for _ in range(ROUNDS):
            before = variance
            location, variance = moments.refine(location, variance)
            if np.allclose(variance, before, rtol=1e-10, atol=0):
                break
        scale = measured = np.sqrt(variance)
        if data.projection is not None:
            measured = moments.channel_scale(variance)
        location = first.from_standard(location)
        return cls(location, first.scale * scale, first.measured_scale * measured)

    def validate(self) -> None:
        """Raise unless these can be units: of what a file says that they are."""
        for name in ("location", "scale", "measured_scale"):
            numbers = getattr(self, name)
            refuse(name, numbers.ndim != 1 or not np.isfinite(numbers).all(), "finite numbers")
            refuse(name, name != "location" and (numbers <= 0).any(), "positive")

    @classmethod
    def powers_of_two(cls, data: Observations) -> "Standardiser":
        """Return units without a shift, in powers of two: changing to them and back is exact.

        The better half of each column's values has a spread of about one. Values with gigantic
        noise, be they nine of ten, or a few far outliers do not change that.
        """
        w = data.w
        variance = np.broadcast_to(data.noise.variance(), w.shape)
        seen = np.ones(w.shape, bool) if data.observed is None else data.observed
        columns = zip(w.T, variance.T, seen.T, strict=True)
        channel = _powers(np.array([_spread(x[use], s[use]) for x, s, use in columns]))
        _refuse_tiny("w", channel)
        latent = channel
        if data.projection is not None:
            slopes = data.projection / channel[:, None]
            used = np.maximum(1, (slopes != 0).sum((0, 1)))
            size = np.sqrt(np.square(slopes).sum((0, 1)) / used)
            latent = _powers(1.0 / np.where(size > 0, size, 1.0))
            _refuse_tiny("w over projection", latent)
        return cls(np.zeros_like(latent), latent, channel)

    @classmethod
    def of_mixture(cls, mixture: GaussianMixture, data: Observations) -> "Standardiser":
        """Return units in powers of two in which the mixture's usual component has width one.

        Those of what is measured are the rows' largest slopes of it.
        """
        log_sd = 0.5 * np.log(np.diagonal(mixture.covariances, axis1=1, axis2=2))
        latent = _powers(np.exp(mixture.weights @ log_sd))
        channel = latent
        if data.projection is not None:
            reach = np.abs(data.projection * latent).max((0, 2))
            channel = _powers(np.where(reach > 0, reach, 1.0))
        return cls(np.zeros_like(latent), latent, channel)

    def observations(self, data: Observations) -> Observations:
        """Change the units of observations, noise and projection included."""
        channel, projection = self.measured_scale, data.projection
        if projection is not None:
            projection = projection * self.scale / channel[:, None]
        w, noise = data.residual(self.location) / channel, data.noise.divide(channel)
        return replace(data, w=w, noise=noise, projection=projection)

    def measuring(self, data: Observations) -> "Standardiser":
        """Return these units of the truth, with others of what is measured: the rows' signal."""
        signal = np.sqrt(np.square(data.projections() * self.scale).sum(-1).max(0))
        return replace(self, measured_scale=np.where(signal > 0, signal, 1.0))

    def to_standard(self, v: Any) -> Any:
        """Change the units of true values ``v``, arrays or tensors, in float64."""
        return (v - like(self.location, v)) / like(self.scale, v)

    def from_standard(self, z: Any) -> Any:
        """Change standardised true values back, in float64."""
        z = z if isinstance(z, np.ndarray) else z.double()
        return like(self.location, z) + like(self.scale, z) * z

    def mixture_to_standard(self, mixture: GaussianMixture) -> GaussianMixture:
        """Change the units of a mixture of true values."""
        return mixture.in_units(-self.location / self.scale, 1.0 / self.scale)

    def mixture_from_standard(self, mixture: GaussianMixture) -> GaussianMixture:
        """Change a mixture of standardised true values back."""
        return mixture.in_units(self.location, self.scale)

    def log_observed_volume(self, data: Observations) -> Array:
        """Return ``log |dw / dw'|`` over each row's observed values, ``(N,)`` or ``(1,)``."""
        log_t = np.log(self.measured_scale)
        if data.observed is None:
            return log_t.sum(-1, keepdims=True)
        return np.where(data.observed, log_t, 0.0).sum(-1)


class _Moments:
    """Weighted moments of all measured values ``(N, M)``, with or without a projection."""

    def __init__(self, data: Observations) -> None:
        self.data = replace(data, w=data.w - data.noise.mean())
        self.S = np.broadcast_to(data.noise.variance(), data.w.shape)
        seen = np.ones_like(data.w) if data.observed is None else data.observed.astype(float)
        self.count = seen if data.weights is None else seen * data.weights[:, None]
        self.R2: Any = None if data.projection is None else np.square(data.projection)
        refuse_where(
            np.isnan(self._solve(self.count, 2))[None],
            "every dimension to be measured in at least one row of w (of positive weight)",
            got="none",
            advice="Drop it.",
            shared=True,
        )

    def start(self) -> tuple[Array, Array]:
        """Median and squared median deviation, which no single row can move."""
        if self.R2 is None:
            used = np.where(self.count > 0, self.data.w, np.nan)
            location = _low_median(used)
            spread = np.square(_low_median(np.abs(used - location))) / 0.4549
            plain = np.nanmean(np.square(used - location), 0)
            return location, _positive(np.where(spread > 0, spread, plain))
        sizes = (self.R2 * self.count[..., None]).sum((0, 1)) / self.count.sum()
        reach = (self.R2 / sizes).sum(-1)
        ratio = (np.square(self.data.w) / np.where(reach > 0, reach, 1.0))[self.count > 0]
        common = _low_median(ratio) / 0.4549 or ratio.mean()
        return np.zeros_like(sizes), _positive(common / sizes)

    def refine(self, location: Array, variance: Array) -> tuple[Array, Array]:
        """One round: precisions from the variance, then location and variance from those."""
        spread = (variance if self.R2 is None else self.R2 @ variance) + self.S
        limit = FARTHEST * np.sqrt(spread)
        held = np.clip(self.data.residual(location), -limit, limit)
        relative = spread / np.exp2(np.round(np.log2(spread.min())))  # whose squares are numbers
        location = location + self._solve(self.count / relative, 1, held)
        squares = np.square(np.clip(self.data.residual(location), -limit, limit))
        with np.errstate(over="ignore"):  # rows of infinite noise count for nothing
            counted = self.count / np.square(relative)
        total = self._solve(counted, 2, squares)
        deconvolved = self._solve(counted, 2, squares - self.S)
        variance = _positive(np.maximum(deconvolved, SMALLEST_SHARE * total))
        return location, np.maximum(variance, SMALLEST_VARIANCE)

    def channel_scale(self, variance: Array) -> Array:
        """Root mean square of each channel's signal; one for a channel never seen."""
        signal = (self.R2 @ variance * self.count).sum(0)
        count = self.count.sum(0)
        return np.sqrt(np.where(signal > 0, signal / np.where(count > 0, count, 1.0), 1.0))

    def _solve(self, counted: Array, power: int, targets: Array | None = None) -> Array:
        """Least squares of ``targets = R**power x``, NaN if unseen; squares are not negative."""
        targets = np.ones_like(counted) if targets is None else targets
        if self.R2 is None:
            with np.errstate(invalid="ignore"):
                return (counted * targets).sum(0) / counted.sum(0)
        R = self.data.projection if power == 1 else self.R2
        weighted = R * counted[..., None]
        gram = np.einsum("nmd,nme->de", weighted, R)
        units = np.sqrt(np.diagonal(gram))  # so that cut-offs know no units
        if not (units > 0).all():
            return np.where(units > 0, 0.0, np.nan)
        sums = np.einsum("nmd,nm->d", weighted, targets) / units
        values, vectors = np.linalg.eigh(gram / np.outer(units, units))
        kept = values > 1e-10 * values[-1]
        roots = np.sqrt(values[kept])
        A, b = roots[:, None] * vectors[:, kept].T, vectors[:, kept].T @ sums / roots
        x = vectors[:, kept] @ (b / roots)
        if power == 2 and (x < 0).any():
            x = nnls(A, b)[0]
        return x / units


def _positive(variance: Array) -> Array:
    """Replace the zeros of constant columns by a share of the others, or by one."""
    usual = variance[variance > 0]
    fallback = SMALLEST_SHARE * usual.mean() if len(usual) and len(usual) < len(variance) else 1.0
    return np.where(variance > 0, variance, fallback)


def _refuse_tiny(name: str, spread: Array) -> None:
    """Raise for columns whose squares vanish, or overflow."""
    refuse_where(
        ((spread < SMALLEST) | (spread > LARGEST))[None],
        f"columns of {name} that scatter by {SMALLEST:g} to {LARGEST:g}",
        spread[None],
        "{:.1g}",
        advice="Change the units.",
        shared=True,
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
    candidates = (
        np.median(np.abs(good - np.median(good))),
        top * (good / top).std(),
        top * (values / top).std(),
        np.sqrt(np.median(variance)),
        top,
    )
    return next(float(size) for size in candidates if size > 0)


def _powers(values: Array) -> Array:
    return np.exp2(np.round(np.log2(values)))


def standardised(standardiser: Standardiser, data: Observations) -> Observations:
    """Change the units of rows to those of networks.

    Exact values get a little noise. A value with noise beyond any use, which single precision
    does not hold, is divided by what there is too much of it: it says as little as before.
    """
    data = standardiser.observations(data)
    excess = too_much_noise(data.noise)
    if excess.max() > 1:
        data = replace(data, w=data.w / excess, noise=data.noise.divide(excess))
    return replace(data, noise=data.noise.floor(SMALLEST_NOISE))


def far_rows(data: Observations, dtype: str) -> BoolArray:
    """Say which standardised rows, or their noise, a precision does not hold, ``(N,)``."""
    sizes = (np.abs(data.w), noise_sizes(data.noise))
    largest = [size.reshape(len(size), -1).max(1) for size in sizes]
    return ~(np.maximum(*largest) <= PRECISE_TO[dtype])


def refuse_far(data: Observations, dtype: str) -> None:
    """Raise for standardised rows that networks cannot be trained on."""
    position = first_bad(far_rows(data, dtype))
    if position is not None:
        raise OutOfReachError(
            f"Expected w and noise within {PRECISE_TO[dtype]:g} times the spread of the truth; "
            f"got more in row {position[0]} of w. Leave that row out."
        )


def log_volume(standardiser: Standardiser, data: Observations) -> Array:
    """Return ``log |dw / dw'|`` of each row for what :func:`standardised` does, ``(N or 1,)``."""
    noise = data.noise.divide(standardiser.measured_scale)
    return standardiser.log_observed_volume(data) + np.log(too_much_noise(noise)).sum(-1)


def too_much_noise(noise: Noise) -> Array:
    """Return by how much noise exceeds the most of use, ``(N or 1, M)``; at least one."""
    if not isinstance(noise, GaussianNoise):
        return np.ones((1, noise.dim))
    sd = noise.factor if noise.diagonal else np.sqrt(noise.variance())
    return np.maximum(sd / LARGEST_NOISE, 1.0)
