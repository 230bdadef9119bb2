"""Noise of independent values, each with a distribution out of the table, or a mixture."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from deconflow._types import Array, Complex
from deconflow.checks import (
    SMALLEST,
    array_namespace,
    as_array,
    as_parameter,
    first_bad,
    like,
    log_sum_exp,
    place,
    solve_lower,
)
from deconflow.noise.base import KeptDraws, Noise, flatten_cholesky
from deconflow.noise.distributions import STANDARD, Standard, parts_of
from deconflow.noise.gaussian_noise import checked_factor, gaussian_waves, psd_cholesky
from deconflow.noise.gaussian_parts import IndependentMixture, JointMixture
from deconflow.randomness import normal, own_rng

PARTS_FOR_DIMENSION = {1: 12, 2: 6, 3: 5, 4: 4, 5: 3}
#: Gaussians for each value: in few dimensions so few that all their products are kept.
PARTS_BEYOND = 4
#: Widths whose inverse squares single precision can add up.
NARROWEST = 1e-15


class OtherNoise(Noise):
    """What all noise has in common that is not Gaussian: its features, and its precision."""

    def features(self) -> Any:
        """Flattened Cholesky factors of the covariances, then the means."""
        mean, factor = as_array(self.mean()), as_array(self.cholesky())
        return like(np.concatenate([flatten_cholesky(factor), mean], -1), self.mean())

    def to(self, *, dtype: Any = None, device: Any = None) -> Self:
        """Return the law as tensors; an error if single precision does not hold it."""
        variance = as_array(self.variance())
        position = first_bad(variance < NARROWEST**2)
        if position is not None and "32" in str(dtype):
            raise ValueError(
                f"Expected noise wider than {NARROWEST:g} times the spread of w, for single "
                f"precision; got less at {place(position)}. Use noise.gaussian, or 0.0."
            )
        return super().to(dtype=dtype, device=device)


@dataclass(frozen=True, repr=False)
class TableNoise(OtherNoise):
    """Noise whose values are independent, all of one distribution of the table.

    Attributes
    ----------
    kind : str
        Name of the distribution in the table.
    scale, q : array
        ``(N or 1, D)``; the latter are the parameters of its shape, 0 for none.
    location : array or None
        ``(N or 1, D)``; None for zero.
    observed : array or None
        Boolean ``(N, D)``: the values that :meth:`log_prob` looks at; None for all.
    """

    kind: str
    scale: Any
    q: Any
    shared: bool
    n_rows: int | None
    location: Any = None
    observed: Any = None
    kept: KeptDraws | None = None
    by_row = ("scale", "q", "location")
    independent = True  # type: ignore[assignment]

    @property
    def dim(self) -> int:  # type: ignore[override]
        """Number of measured values per row."""
        return self.scale.shape[-1]

    @property
    def standard(self) -> Standard:
        """Row of the table."""
        return STANDARD[self.kind]

    def log_prob(self, residual: Any) -> Any:
        """Log density of residuals ``(..., N, D)``, as ``(..., N)``."""
        xp = array_namespace(residual)
        scale, q = like(self.scale, residual), like(self.q, residual)
        x = residual if self.location is None else residual - like(self.location, residual)
        x = x / scale
        log_p = self.standard.log_prob(xp, x, q) - xp.log(scale)
        if self.standard.half_width < np.inf:
            rounding = 50 * xp.finfo(residual.dtype).eps / scale
            log_p = xp.where(xp.abs(x) <= self.standard.half_width + rounding, log_p, -xp.inf)
        return total(log_p, self.observed)

    def sample(self, k: int) -> Any:
        """Draw ``(k, N, D)``."""
        size, q = (k, self.n_rows or len(self.scale), self.dim), as_array(self.q)
        if self.standard.draw is not None:
            drawn = self.standard.draw(own_rng(), q, size)
        else:
            drawn = self.standard.quantile(own_rng().random(size), q)
        return self._moved(like(drawn, self.scale))

    def from_uniform(self, share: Array) -> Array:
        """Make noise ``(K, N, D)`` of as many uniform numbers."""
        return self._moved(self.standard.quantile(share, self.q))

    def _moved(self, x: Any) -> Any:
        """Bring standard values ``(K, N, D)`` to location and scale."""
        return x * self.scale if self.location is None else self.location + x * self.scale

    def mean(self) -> Any:
        """Means ``(N or 1, D)``."""
        return self._moved(like(self.standard.mean(as_array(self.q)), self.scale))

    def variance(self) -> Any:
        """Variances ``(N or 1, D)``; finite also for laws without one."""
        return self.scale**2 * like(self.standard.variance(as_array(self.q)), self.scale)

    def as_mixture(self) -> IndependentMixture:
        """Write the law as a mixture of Gaussians."""
        parts, step = PARTS_FOR_DIMENSION.get(self.dim, PARTS_BEYOND), self.standard.step
        q = as_array(self.q)
        different, which = np.unique(np.round(q * step) / step if step else q, return_inverse=True)
        fits = [parts_of(self.kind, float(each), parts) for each in different]
        weights, means, variances = (np.stack(column) for column in zip(*fits, strict=True))
        location = None if self.location is None else as_array(self.location)
        return IndependentMixture(
            (weights, means, variances), which.reshape(q.shape), location, as_array(self.scale)
        )

    def value_characteristics(self, t: Array) -> Complex:
        """Characteristic functions ``(N or 1, T, D)`` of each value by itself."""
        waves = self.standard.characteristic(self.scale[:, None] * t, self.q[:, None])
        return waves if self.location is None else np.exp(1j * self.location[:, None] * t) * waves

    def value_law(self) -> tuple[Any, dict[str, Array]]:
        """Return a function that makes the law of single values, and its parameters by name."""
        names = ("scale", "q", "location")
        own = {name: x for name in names if (x := getattr(self, name)) is not None}
        return partial(TableNoise, self.kind, shared=False, n_rows=None), own

    def divide(self, scale: Any) -> Self:
        """Return the law of ``n / scale``."""
        location = None if self.location is None else self.location / scale
        return replace(self, scale=self.scale / scale, location=location, kept=None)

    def support_map(self) -> tuple[Any, Any, Any] | None:
        """Return how to reach an interval: the map, its unit, and where it starts."""
        if self.standard.half_width == np.inf:
            return None
        from torch.distributions import biject_to, constraints

        noise = self.to()
        middle, ones = noise.mean(), 1.0 + 0 * noise.scale[0]
        low, high = (middle + sign * self.standard.half_width * noise.scale for sign in (-1, 1))
        return biject_to(constraints.interval(low, high)), ones, 0 * ones


@dataclass(frozen=True, repr=False)
class ValueMixtures(OtherNoise):
    """Noise of independent values, each a mixture of Gaussians of its own.

    Attributes
    ----------
    weights, means, sd : array
        ``(N or 1, D, J)``.
    observed : array or None
        Boolean ``(N, D)``: the values that :meth:`log_prob` looks at; None for all.
    """

    weights: Any
    means: Any
    sd: Any
    shared: bool
    n_rows: int | None
    observed: Any = None
    kept: KeptDraws | None = None
    by_row = ("weights", "means", "sd")
    independent = True  # type: ignore[assignment]

    @property
    def dim(self) -> int:  # type: ignore[override]
        """Number of measured values per row."""
        return self.weights.shape[1]

    def log_prob(self, residual: Any) -> Any:
        """Log density of residuals ``(..., N, D)``, as ``(..., N)``."""
        weights, means, sd = (like(x, residual) for x in (self.weights, self.means, self.sd))
        white = (residual[..., None] - means) / sd
        return total(log_sum_exp(log_of(weights / sd) + _normal_log_prob(white)), self.observed)

    def sample(self, k: int) -> Any:
        """Draw ``(k, N, D)``."""
        shape = (k, len(self), self.dim)
        edges = np.cumsum(as_array(self.weights), -1)
        which = (edges[..., :-1] < own_rng().random(shape)[..., None]).sum(-1)
        means, sd = (picked(each, which) for each in (self.means, self.sd))
        return means + sd * normal(shape, self.means)

    def mean(self) -> Any:
        """Means ``(N or 1, D)``."""
        return (self.weights * self.means).sum(-1)

    def variance(self) -> Any:
        """Variances ``(N or 1, D)``."""
        spread = (self.means - self.mean()[..., None]) ** 2 + self.sd**2
        return (self.weights * spread).sum(-1)

    def as_mixture(self) -> IndependentMixture:
        """Return the mixtures themselves: every value has a shape of its own."""
        shape, count = self.weights.shape[:2], self.weights.shape[-1]
        table = (as_array(x).reshape(-1, count) for x in (self.weights, self.means, self.sd**2))
        weights, means, variances = table
        which = np.arange(shape[0] * shape[1]).reshape(shape)
        return IndependentMixture((weights, means, variances), which, None, np.ones(shape))

    def value_characteristics(self, t: Array) -> Complex:
        """Characteristic functions ``(N or 1, T, D)`` of each value by itself."""
        t = t[..., None]
        waves = np.exp(1j * self.means[:, None] * t - 0.5 * np.square(self.sd[:, None] * t))
        return (self.weights[:, None] * waves).sum(-1)

    def divide(self, scale: Any) -> Self:
        """Return the law of ``n / scale``."""
        by = scale[..., None]
        return replace(self, means=self.means / by, sd=self.sd / by, kept=None)


@dataclass(frozen=True, repr=False)
class MixtureNoise(OtherNoise):
    """Noise of whole rows with a mixture of Gaussians; make one with :func:`gaussian_mixture`.

    Attributes
    ----------
    weights, means, factors : array
        ``(N or 1, J)``, ``(N or 1, J, D)`` and, of the covariances, ``(N or 1, J, D, D)``.
    """

    weights: Any
    means: Any
    factors: Any
    shared: bool
    n_rows: int | None
    observed: Any = None
    kept: KeptDraws | None = None
    by_row = ("weights", "means", "factors")
    independent = False  # type: ignore[assignment]

    @property
    def dim(self) -> int:  # type: ignore[override]
        """Number of measured values per row."""
        return self.means.shape[-1]

    def log_prob(self, residual: Any) -> Any:
        """Log density of residuals ``(..., N, D)``, as ``(..., N)``."""
        xp = array_namespace(residual)
        weights, means, factors = (
            like(x, residual) for x in (self.weights, self.means, self.factors)
        )
        flat = residual.reshape(-1, *residual.shape[-2:])
        offset = xp.moveaxis(flat, 0, -1)[:, None] - means[..., None]  # (N, J, D, K)
        log_p = xp.sum(_normal_log_prob(solve_lower(factors, offset)), axis=-2)
        log_tops = log_of(weights) - xp.sum(xp.log(xp.linalg.diagonal(factors)), axis=-1)
        log_p = log_sum_exp(xp.moveaxis(log_p + log_tops[..., None], 1, -1))
        return xp.moveaxis(log_p, 0, -1).reshape(residual.shape[:-1])

    def sample(self, k: int) -> Any:
        """Draw ``(k, N, D)``."""
        edges = np.cumsum(as_array(self.weights), -1)
        which = (edges[:, :-1] < own_rng().random((k, len(self), 1))).sum(-1)
        row = np.arange(len(self)) * (len(self.weights) > 1)
        means, factors = self.means[row, which], self.factors[row, which]
        return means + (factors @ normal(tuple(means.shape), means)[..., None])[..., 0]

    def mean(self) -> Any:
        """Means ``(N or 1, D)``."""
        return (self.weights[..., None] * self.means).sum(1)

    def covariance(self) -> Any:
        """Covariances ``(N or 1, D, D)``."""
        offset = self.means - self.mean()[:, None]
        each = self.factors @ self.factors.swapaxes(-1, -2)
        each = each + offset[..., None] * offset[..., None, :]
        return (self.weights[..., None, None] * each).sum(1)

    def variance(self) -> Any:
        """Variances ``(N or 1, D)``."""
        return array_namespace(self.means).linalg.diagonal(self.covariance())

    def cholesky(self) -> Any:
        """Cholesky factors ``(N or 1, D, D)`` of the covariances."""
        return like(psd_cholesky(as_array(self.covariance())), self.means)

    def as_mixture(self) -> JointMixture:
        """Return the mixture itself."""
        factors = as_array(self.factors)
        covariances = factors @ factors.swapaxes(-1, -2)
        return JointMixture(as_array(self.weights), as_array(self.means), covariances)

    def characteristic(self, t: Array) -> Complex:
        """Characteristic functions ``(N or 1, T)`` of rows."""
        mixture = self.as_mixture()
        waves = [
            mixture.weights[:, j, None]
            * np.exp(1j * self.means[:, j] @ t.T)
            * gaussian_waves(mixture.covariances[:, j], t)
            for j in range(mixture.n_parts)
        ]
        return np.sum(waves, 0)

    def restrict(self, observed: Any) -> Noise:
        """Refuse: a law over whole rows is not restricted to some values."""
        raise whole_rows(type(self).__name__)

    def divide(self, scale: Any) -> Self:
        """Return the law of ``n / scale``."""
        factors = self.factors / scale[..., None]
        return replace(self, means=self.means / scale, factors=factors, kept=None)


def whole_rows(name: str) -> ValueError:
    """Make the error for a law over whole rows where values are missing."""
    return ValueError(
        "Expected noise whose values are independent, because w has missing values; "
        f"got a law over whole rows ({name})."
    )


def total(per_value: Any, observed: Any) -> Any:
    """Sum over the values of a row that were observed."""
    xp = array_namespace(per_value)
    if observed is not None:
        per_value = xp.where(like(observed, per_value), per_value, 0.0)
    return xp.sum(per_value, axis=-1)


def log_of(weights: Any) -> Any:
    """Logarithm of weights, some of which may be zero."""
    xp = array_namespace(weights)
    return xp.where(weights > 0, xp.log(xp.where(weights > 0, weights, 1.0)), -xp.inf)


def picked(values: Any, which: Any) -> Any:
    """Values ``(N or 1, D, J)`` of the parts ``which``, ``(k, N, D)``."""
    rows = np.arange(which.shape[1])[:, None] * (len(values) > 1)
    return values[rows, np.arange(which.shape[2]), which]


def _normal_log_prob(white: Any) -> Any:
    return -0.5 * white**2 - 0.5 * np.log(2 * np.pi)


# -- what users call ------------------------------------------------------------------------------


def student_t(scale: ArrayLike, df: ArrayLike) -> TableNoise:
    """Student-t noise with ``df`` degrees of freedom, independent in each value.

    ``scale`` and its kin have shape ``(D,)`` for all rows, or ``(N, D)`` row by row.

    Examples
    --------
    >>> student_t(scale=[0.1, 0.2], df=3.0)
    TableNoise(rows=any number of, dim=2, shared=True)
    """
    (scale, df), shared = _positive(scale=scale, df=df)
    return table_noise("student_t", scale, df, shared)


def laplace(scale: ArrayLike) -> TableNoise:
    """Laplace noise with density proportional to ``exp(-|n| / scale)``."""
    (scale,), shared = _positive(scale=scale)
    return table_noise("laplace", scale, 0 * scale, shared)


def uniform(half_width: ArrayLike) -> TableNoise:
    """Noise uniform between ``-half_width`` and ``half_width``, as from rounding."""
    (half_width,), shared = _positive(half_width=half_width)
    return table_noise("uniform", half_width, 0 * half_width, shared)


def split_normal(lower: ArrayLike, upper: ArrayLike) -> TableNoise:
    """Asymmetric error bars: the measurement ``w`` with ``+upper`` and ``-lower``.

    The true value lies above ``w`` by about ``upper``, or below it by about ``lower``. Since
    ``n = w - v``, the noise itself is ``upper`` wide on its negative side.
    """
    (lower, upper), shared = _positive(lower=lower, upper=upper)
    return table_noise("split_normal", lower + upper, np.log(lower / upper), shared)


def gaussian_mixture(weights: ArrayLike, means: ArrayLike, covariances: ArrayLike) -> MixtureNoise:
    """Noise whose law is a mixture of ``J`` Gaussians.

    Parameters
    ----------
    weights
        ``(J,)`` for all rows, or ``(N, J)``; each row sums to one.
    means
        ``(J, D)`` or ``(N, J, D)``.
    covariances
        ``(J, D, D)`` or ``(N, J, D, D)``, positive definite.
    """
    arrays = {"weights": weights, "means": means, "covariances": covariances}
    weights, means, covariances = (as_parameter(x, name) for name, x in arrays.items())
    if weights.ndim not in (1, 2):
        raise ValueError(f"Expected weights of shape (J,) or (N, J); got {weights.shape}.")
    shared = weights.ndim == 1
    if shared:
        weights, means, covariances = weights[None], means[None], covariances[None]
    rows, parts = weights.shape
    dim = means.shape[-1] if means.ndim else 0
    if means.shape != (rows, parts, dim) or covariances.shape != (rows, parts, dim, dim):
        raise ValueError(
            "Expected weights (J,), means (J, D) and covariances (J, D, D), or each with a leading "
            f"row axis; got {weights.shape}, {means.shape} and {covariances.shape}."
        )
    for name, x in (("weights", weights), ("means", means), ("covariances", covariances)):
        refuse_rows(~np.isfinite(x).reshape(rows, -1).all(-1), shared, f"finite {name} as noise",
                    "NaN or inf")  # fmt: skip
    bad = (weights < 0).any(-1) | (np.abs(weights.sum(-1) - 1) > 1e-6)
    refuse_rows(bad, shared, "noise weights that sum to one", "others")
    factors = np.stack([checked_factor(covariances[:, j], shared) for j in range(parts)], 1)
    singular = (np.diagonal(factors, axis1=2, axis2=3) <= 0).reshape(rows, -1).any(1)
    refuse_rows(singular, shared, "positive definite covariances", "a singular one")
    weights = weights / weights.sum(-1, keepdims=True)
    return MixtureNoise(weights, means.copy(), factors, shared, None if shared else rows)


def table_noise(
    kind: str, scale: Array, q: Array, shared: bool, location: Any = None
) -> TableNoise:
    """Make noise out of the table, of parameters ``(N or 1, D)``."""
    rows = None if shared else len(scale)
    noise = TableNoise(kind, scale, q, shared, rows, location)
    position = first_bad(~(noise.variance() > 0))
    if position is not None:
        where = "" if shared else f" at {place(position)}"
        raise ValueError(
            f"Expected noise wider than {SMALLEST:g}; got the scale {scale[position]:g}{where}. "
            "Change the units."
        )
    return noise


def refuse_rows(bad: Any, shared: bool, expected: str, got: str) -> None:
    """Raise for the first row that is flagged."""
    position = first_bad(bad)
    if position is not None:
        where = "" if shared else f" in {place(position)}"
        raise ValueError(f"Expected {expected}; got {got}{where}.")


def _positive(**parameters: ArrayLike) -> tuple[list[Array], bool]:
    """Bring positive parameters to ``(1, D)`` or ``(N, D)``, and whether all rows share them."""
    arrays = {name: as_parameter(value, name) for name, value in parameters.items()}
    first = next(iter(arrays))
    try:
        shape = np.broadcast_shapes(*(value.shape for value in arrays.values()))
    except ValueError as error:
        shapes = {name: value.shape for name, value in arrays.items()}
        raise ValueError(f"Expected shapes that fit together; got {shapes}.") from error
    if len(shape) not in (1, 2):
        raise ValueError(f"Expected {first} of shape (D,) or (N, D); got {shape}.")
    for name, value in arrays.items():
        position = first_bad(~(value > 0) | ~np.isfinite(value))
        if position is not None:
            where = f" at {place(position)}" if value.ndim == 2 else ""
            raise ValueError(
                f"Expected positive, finite values of {name} as noise; "
                f"got {value[position]:g}{where}."
            )
    full = [np.array(np.broadcast_to(value, shape)) for value in arrays.values()]
    return [x[None] if len(shape) == 1 else x for x in full], len(shape) == 1
