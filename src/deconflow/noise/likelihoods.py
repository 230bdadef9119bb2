r"""Measurements by their likelihoods: counts, shares, errors that multiply, or any other.

Each is a :class:`~deconflow.noise.Reading`, which becomes a law once the values are known. A row's
likelihood :math:`L(v)` is taken as a density of the truth by itself: ``log p(w)`` of a model is
that of the row but for a number that depends on what was measured alone. A row's location is the
mean of that density, and its noise has the law of ``location - v``. So rows look as those of any
noise, whose law depends on what was measured.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, softmax, xlog1py, xlogy

from deconflow._types import Array, IntArray
from deconflow.checks import (
    as_array,
    as_floats,
    as_parameter,
    is_torch_array,
    like,
    refuse_if,
    refuse_where,
)
from deconflow.noise.base import Ends, Noise, OtherNoise, Reading, RowIndex, total
from deconflow.noise.coerce import as_noise, rows_in_law, rows_of_law
from deconflow.noise.gaussian_noise import GaussianNoise
from deconflow.noise.mixture_fits import images
from deconflow.noise.mixture_noise import IndependentMixture
from deconflow.noise.value_likelihoods import Measuring, ValueLikelihoods, different
from deconflow.randomness import isolated_rng, own_rng

#: Gaussians for the likelihood of a value, in rows of one value and of several.
PARTS_OF_ONE, PARTS_OF_MANY = 4, 3
EPS = float(np.finfo(float).eps)
#: Of derivatives, in widths of the likelihood.
STEP = 1e-4
#: Looks at values ``(N, M)`` and parameters of that shape, and raises for one that cannot be.
Check = Callable[[Array, Mapping[str, Array]], None]
TINY = 1e-300


@dataclass(frozen=True, repr=False)
class LikelihoodNoise(Noise):
    """Noise of rows with likelihoods; made by a :class:`Reading` such as that of ``poisson()``.

    Attributes
    ----------
    laws : ValueLikelihoods
        All different likelihoods of single values.
    which : array
        ``(N, M)`` numbers of these.
    location : array
        ``(N, M)``, in the units of the truth.
    unit : array
        ``(M,)``: this is the law of ``(location - v) / unit``.
    signs : array or None
        ``(N, M)`` of mirrored rows, whose law is that of ``signs * (location - v) / unit``. Theirs
        reaches beyond the ends of the truth: folded there it is the likelihood.
    """

    laws: ValueLikelihoods
    which: IntArray
    location: Array
    unit: Any
    signs: Array | None = None
    by_row = ("which", "location", "signs")
    additive = False
    without_waves = "values with a likelihood, as counts"

    @classmethod
    def of(
        cls, measuring: Measuring, w: Array, parameters: Mapping[str, Array], low: Any, high: Any
    ) -> "LikelihoodNoise":
        """Look at values ``(N, M)``, with parameters of that shape, and ends ``(M,)`` or one."""
        laws, which = different(measuring, w, parameters, low, high)
        return cls(laws, which, laws.grids.mean[which], np.ones(w.shape[1]), n_rows=len(w))

    @property
    def truth_ends(self) -> Ends | None:  # type: ignore[override]
        """Ends of the truth, ``(M,)`` each; None without any."""
        if not np.isfinite([self.laws.low, self.laws.high]).any() or not len(self.which):
            return None
        return self.laws.low[self.which].max(0), self.laws.high[self.which].min(0)

    def within(self, low: Array, high: Array) -> "LikelihoodNoise":
        """Return the same with narrower ends ``(M,)`` of the truth."""
        ends = self.truth_ends
        if ends is not None and (low == ends[0]).all() and (high == ends[1]).all():
            return self
        own = self.laws[self.which]
        laws, which = different(own.measuring, own.w, own.parameters, low, high)
        return replace(self, laws=laws, which=which)

    def log_prob(self, residual: Any) -> Any:
        """Log density of residuals ``(..., N, M)``, as ``(..., N)``.

        Exact: by the likelihood itself, with slopes by differences.
        """
        if not is_torch_array(residual):
            return total(self._per_value(residual), self.observed)
        from deconflow.torch_modes import ByDifferences

        step = STEP * self.laws.grids.width[self.which] / as_array(self.unit)
        eps = float(np.finfo(str(residual.dtype).removeprefix("torch.")).eps)
        return total(
            ByDifferences.apply(residual, lambda r: self._per_value(r, eps), step), self.observed
        )

    def _per_value(self, residual: Array, eps: float = EPS) -> Array:
        """Log density of every value; residuals were rounded by ``eps``."""
        v = self._truth(residual, eps)
        log_p = self._log_prob_of(v) if self.signs is None else self._log_prob_beyond(v)
        return log_p + np.log(as_array(self.unit))

    def sample(self, k: int) -> Any:
        """Draw ``(k, N, M)``: noise of truths with nothing else known of them."""
        v = self.laws.quantiles(self.which, own_rng().random((k, *self.which.shape)))
        return self._residual(v if self.signs is None else self._one_image(v))

    def from_uniform(self, share: Array) -> Array | None:
        """Make noise ``(K, N, M)`` of as many uniform numbers."""
        if self.signs is not None:
            return None
        return self._residual(self.laws.quantiles(self.which, share))

    def measure(self, clean: Any, w: Any) -> "tuple[Any, LikelihoodNoise]":
        """Measure clean values anew, as their rows were, which now have the values ``w``."""
        rng = np.random.default_rng(int(own_rng().integers(2**62)))
        own = self.laws[self.which]
        new = own.simulate(self._truth(as_array(w - clean)), rng)
        made = LikelihoodNoise.of(own.measuring, new, own.parameters, own.low, own.high)
        noise = replace(made, unit=self.unit, signs=self.signs, observed=self.observed)
        shift = self._signed(made.location - self.location) / as_array(self.unit)
        return w + like(shift, w), noise

    def mean(self) -> Any:
        """Means ``(N, M)`` of the noise."""
        return self._residual(self.laws.grids.mean[self.which])

    def variance(self) -> Any:
        """Variances ``(N, M)``."""
        return like(self.laws.grids.variance[self.which] / as_array(self.unit) ** 2, self.unit)

    def features(self) -> Any:
        """Standard deviations, then means."""
        sd = as_array(self.variance()) ** 0.5
        return like(np.concatenate([sd, as_array(self.mean())], -1), self.unit)

    def as_mixture(self) -> IndependentMixture:
        """Write the law as a mixture of Gaussians, folded at the ends of the truth.

        An approximation: at the mean over a likelihood of counts, the mixture's logarithm is less
        by at most 0.005 nats in rows of one value, and 0.01 in others.
        """
        shapes, shape_of = self._gaussians()
        grids, unit = self.laws.grids, as_array(self.unit)
        location = as_array(self._residual(grids.mode[self.which]))
        return IndependentMixture(
            shapes, shape_of[self.which], location, -self._signed(grids.width[self.which]) / unit
        )

    def mirrored(self, signs: Array) -> "LikelihoodNoise":
        """Return the law of rows mirrored where ``signs``, ``(N, M)``, are negative."""
        return replace(self, signs=signs)

    def divide(self, scale: Any) -> Self:
        """Return the law of ``n / scale``."""
        return replace(self, unit=self.unit * scale)

    def _changed(self, change: Callable[[Any], Any]) -> Self:
        """Move ``unit`` alone, which answers follow: likelihoods stay in double precision."""
        return replace(self, unit=change(self.unit))

    # -- truths and residuals -------------------------------------------------------------------

    def _signed(self, values: Array) -> Array:
        return values if self.signs is None else self.signs * values

    def _residual(self, v: Array) -> Any:
        return like(self._signed(self.location - v) / as_array(self.unit), self.unit)

    def _truth(self, residual: Array, eps: float = EPS) -> Array:
        """Return truths of residuals; one that rounding has moved across an end is at the end."""
        unit = as_array(self.unit)
        v = self.location - self._signed(residual * unit)
        rounding = 50 * eps * (unit + np.abs(self.location))
        low, high = self._ends()
        near = (v >= low - rounding) & (v <= high + rounding)
        return np.where(near, np.clip(v, low, high), v)

    def _ends(self) -> Ends:
        return self.laws.low[self.which], self.laws.high[self.which]

    def _log_prob_of(self, v: Array) -> Array:
        low, high = self._ends()
        inside = (v >= low) & (v <= high)
        which = np.broadcast_to(self.which, v.shape)
        log_p = self.laws.log_prob(which, np.where(inside, v, self.laws.grids.mean[which]))
        return np.where(inside, log_p, -np.inf)

    # -- beyond the ends ------------------------------------------------------------------------

    def _log_prob_beyond(self, v: Array) -> Array:
        r"""Log density of truths ``v`` on both sides of the ends, whose folded form is exact.

        :math:`L(x) \, m(v) / \sum_s m(R_s x)` with ``v`` folded to ``x`` and the mixture ``m``.
        """
        low, high = self._ends()
        x = np.where(v < low, 2 * low - v, np.where(v > high, 2 * high - v, v))
        inside = (x >= low) & (x <= high)  # not so from one mirror image on
        shares = logsumexp(self._log_mixture(images(x, low, high)), axis=0)
        with np.errstate(invalid="ignore"):
            log_p = self._log_prob_of(x) + self._log_mixture(v) - shares
        return np.where(inside, log_p, -np.inf)

    def _one_image(self, x: Array) -> Array:
        """Move truths to one of their images each, by the mixture's shares."""
        each = images(x, *self._ends())
        shares = softmax(self._log_mixture(each), axis=0)
        chosen = (np.cumsum(shares, 0) < own_rng().random(x.shape)).sum(0)
        return np.take_along_axis(each, np.minimum(chosen, len(each) - 1)[None], 0)[0]

    def _gaussians(self) -> tuple[Any, IntArray]:
        return self.laws.gaussians(PARTS_OF_ONE if self.dim == 1 else PARTS_OF_MANY)

    def _log_mixture(self, v: Array) -> Array:
        """Log of the mixture in the units of its likelihood; minus infinity at infinity."""
        table, shape_of = self._gaussians()
        grids = self.laws.grids
        z = ((v - grids.mode[self.which]) / grids.width[self.which])[..., None]
        finite = np.isfinite(z)
        c, b, S = (x[shape_of[self.which]] for x in table)
        with np.errstate(divide="ignore"):
            log_p = np.log(c) - 0.5 * (np.log(S) + np.square(np.where(finite, z, 0.0) - b) / S)
        return np.where(finite[..., 0], logsumexp(log_p, axis=-1), -np.inf)


# -- what users say -------------------------------------------------------------------------------


@dataclass(frozen=True)
class LikelihoodReading(Reading):
    """Values that have a likelihood each, given their truth.

    Attributes
    ----------
    measuring : Measuring
        How values are measured.
    parameters : dict
        What else that depends on: numbers, one per column or row, or ``(N, M)``.
    truth_ends : tuple
        Where the truth ends, None for nowhere.
    check : callable or None
        Looks at values and parameters.
    """

    measuring: Measuring
    parameters: Mapping[str, Array]
    truth_ends: tuple[float | None, float | None] = (None, None)
    check: Check | None = None

    @property
    def n_rows(self) -> int | None:  # type: ignore[override]
        """Number of rows whose parameters these are; None if these are for any."""
        most = max((len(x) for x in self.parameters.values() if x.ndim), default=1)
        return most if most > 1 else None

    def _take(self, rows: RowIndex) -> Self:
        return replace(
            self,
            parameters={
                name: x[rows] if x.ndim and len(x) == self.n_rows else x
                for name, x in self.parameters.items()
            },
        )

    def read(self, w: Array) -> tuple[Array, LikelihoodNoise]:
        """Return locations ``(N, M)`` in the units of the truth, and the law of their noise."""
        own = {name: _spread(x, name, w.shape) for name, x in self.parameters.items()}
        seen = ~np.isnan(w)
        refuse_if(
            not seen.any(),
            "Expected values in w; got none but missing ones.",
        )
        first = tuple(np.argwhere(seen)[0])  # a value that is missing has the law of any other
        values = np.where(seen, w, w[first])
        own = {name: np.where(seen, x, x[first]) for name, x in own.items()}
        if self.check is not None:
            self.check(values, own)
        low, high = self.truth_ends
        noise = LikelihoodNoise.of(
            self.measuring,
            values,
            own,
            -np.inf if low is None else low,
            np.inf if high is None else high,
        )
        return np.where(seen, noise.location, np.nan), noise


def likelihood(
    log_prob: Callable[..., Any],
    simulate: Callable[..., Any],
    *,
    ends: tuple[float | None, float | None] = (None, None),
    **parameters: ArrayLike,
) -> LikelihoodReading:
    """Measurements with any likelihood; values of a row are independent given its truth.

    Parameters
    ----------
    log_prob
        ``log_prob(w, v)``: the log density, or log probability, of measuring ``w`` where the truth
        is ``v``, for numpy arrays of one shape, value by value; what does not depend on ``v`` may
        be left out. As a function of ``v`` it has one bump, and an integral.
    simulate
        ``simulate(v, rng)``: measurements of truths, by a numpy generator.
    ends
        Where the truth ends, if it does: ``(0, None)`` for what cannot be negative.
    **parameters
        What else both depend on, for every value, row or column, or one number: passed on by
        keyword, in the shape of ``v``.

    Notes
    -----
    To be sent to another process, as by ``n_jobs``, both must be named functions, not lambdas.

    Examples
    --------
    >>> def log_prob(w, v, gain):
    ...     return -0.5 * (w - gain * v**3) ** 2
    >>> def simulate(v, rng, gain):
    ...     return gain * v**3 + rng.normal(size=v.shape)
    >>> w, noise = likelihood(log_prob, simulate, gain=2.0).read(np.array([[16.0]]))
    >>> float(w.round(2)[0, 0]), float(np.sqrt(noise.variance()).round(3)[0, 0])
    (2.0, 0.042)
    """
    for name, function in (("log_prob", log_prob), ("simulate", simulate)):
        refuse_if(
            not callable(function),
            f"Expected a function as {name}; got {function!r}.",
            TypeError,
        )
    return LikelihoodReading(
        Measuring(log_prob, simulate),
        {name: as_parameter(x, name) for name, x in parameters.items()},
        _checked_ends(ends),
    )


def poisson(exposure: ArrayLike = 1.0) -> LikelihoodReading:
    r"""Counts :math:`w \sim \text{Poisson}(v \, t)` of a rate ``v``, which is at least zero.

    Parameters
    ----------
    exposure
        How long, or how much, was looked at: ``t`` above zero, one for all or one for each row
        (or value). The rate is that per unit of it.

    Examples
    --------
    >>> w, noise = poisson(exposure=2.0).read(np.array([[3.0]]))
    >>> float(w.round(4)[0, 0])  # the mean of v^3 exp(-2 v)
    2.0
    """
    return LikelihoodReading(
        Measuring(_poisson, _simulate_poisson),
        {"exposure": as_parameter(exposure, "exposure")},
        (0.0, None),
        _check_poisson,
    )


def binomial(n: ArrayLike) -> LikelihoodReading:
    """Successes in ``n`` trials, each with the probability ``v``, which is between 0 and 1.

    Parameters
    ----------
    n
        Number of trials, one for all or one for each row (or value).

    Examples
    --------
    >>> w, noise = binomial(8).read(np.array([[3.0]]))
    >>> float(w.round(6)[0, 0])  # the mean of v^3 (1 - v)^5
    0.4
    """
    return LikelihoodReading(
        Measuring(_binomial, _simulate_binomial),
        {"n": as_parameter(n, "n")},
        (0.0, 1.0),
        _check_binomial,
    )


def multiplicative(law: Any) -> "MultiplicativeReading":
    r"""Errors that multiply: :math:`w = v \, e^n`, with ``w`` and ``v`` above zero.

    Parameters
    ----------
    law
        The law of ``n``, the error of the logarithm: a noise of this package whose values are
        independent, or standard deviations as in ``fit``. Its tails must be light, because the
        truth's reach as far as their exponential; for others, fit the logarithms of ``w``.

    Examples
    --------
    >>> from deconflow.noise import gaussian
    >>> w, noise = multiplicative(gaussian(sd=[0.1])).read(np.array([[2.0]]))
    >>> float(w.round(3)[0, 0])
    2.03
    """
    return MultiplicativeReading(as_parameter(law, "law") if hasattr(law, "columns") else law)


# -- counts and shares ----------------------------------------------------------------------------


def _poisson(w: Array, v: Array, exposure: Array) -> Array:
    return np.asarray(xlogy(w, v * exposure) - v * exposure)


def _simulate_poisson(v: Array, rng: np.random.Generator, exposure: Array) -> Array:
    return rng.poisson(v * exposure).astype(np.float64)


def _check_poisson(w: Array, parameters: Mapping[str, Array]) -> None:
    _refuse(parameters["exposure"], lambda t: t > 0, "exposure", "numbers above zero")
    _refuse(w, _whole, "w", "counts, whole numbers of at least 0, for noise.poisson")


def _binomial(w: Array, v: Array, n: Array) -> Array:
    return np.asarray(xlogy(w, v) + xlog1py(n - w, -v))


def _simulate_binomial(v: Array, rng: np.random.Generator, n: Array) -> Array:
    return rng.binomial(n.astype(np.int64), v).astype(np.float64)


def _check_binomial(w: Array, parameters: Mapping[str, Array]) -> None:
    n = parameters["n"]
    _refuse(n, lambda n: _whole(n) & (n > 0), "n", "whole numbers of trials, 1 or more")
    _refuse(w, _whole, "w", "successes, whole numbers of at least 0, for noise.binomial")
    refuse_where(
        w > n,
        "no more successes in w than trials n",
        np.stack([w, n], -1),
        "{0[0]:g} of {0[1]:g}",
    )


def _whole(x: Array) -> Any:
    return (x >= 0) & (x == np.round(x))


# -- errors that multiply -------------------------------------------------------------------------


@dataclass(frozen=True)
class MultiplicativeReading(Reading):
    """Values that errors of some law multiply.

    Attributes
    ----------
    law : Noise or array
        That of the errors of the logarithm.
    """

    law: Any
    truth_ends = (0.0, None)

    @property
    def n_rows(self) -> int | None:  # type: ignore[override]
        """Number of rows whose errors these are; None if these are for any."""
        return rows_in_law(self.law)

    def _take(self, rows: RowIndex) -> Self:
        return replace(self, law=rows_of_law(self.law, rows, self.n_rows))

    def read(self, w: Array) -> tuple[Array, LikelihoodNoise]:
        """Return locations ``(N, M)`` in the units of the truth, and the law of their noise."""
        refuse_where(w <= 0, "values above 0 in w for noise.multiplicative", w)
        law = as_noise(self.law, *w.shape)
        refuse_if(
            not (isinstance(law, GaussianNoise | OtherNoise) and law.independent),
            "Expected a law of independent values for noise.multiplicative; got "
            f"{law!r}. Fit numpy.log(w) with that law instead.",
        )
        refuse_if(
            isinstance(law, GaussianNoise) and not (law.factor > 0).all(),
            "Expected errors above zero for noise.multiplicative; got a zero.",
        )
        values = law.values()
        measuring = Measuring(
            partial(_log_prob_of_ratio, values), partial(_simulate_ratio, values),
            "Fit numpy.log(w) with the law itself, and take the exponential of the truth.",
        )  # fmt: skip
        which = np.arange(len(values), dtype=np.float64).reshape(-1, law.dim)
        return LikelihoodReading(
            measuring, {"which": np.broadcast_to(which, w.shape)}, self.truth_ends
        ).read(w)


def _log_prob_of_ratio(law: Noise, w: Array, v: Array, which: Array) -> Array:
    error = np.log(w) - np.log(np.maximum(v, TINY))
    noise = law[which.reshape(-1).astype(np.int64)]
    return noise.log_prob(error.reshape(1, -1, 1)).reshape(v.shape)


def _simulate_ratio(law: Noise, v: Array, rng: np.random.Generator, which: Array) -> Array:
    with isolated_rng(int(rng.integers(2**31 - 1))):
        error = as_array(law[which.reshape(-1).astype(np.int64)].sample(1)).reshape(v.shape)
    return v * np.exp(error)


# -- checks ---------------------------------------------------------------------------------------


def _spread(values: Any, name: str, shape: tuple[int, int]) -> Array:
    """Bring a parameter to the shape of the values."""
    x = as_floats(values, name)
    rows, columns = shape
    if x.shape == (rows,) and (columns == 1 or rows != columns):
        x = x[:, None]
    if x.ndim <= 2 and all(n in (1, m) for n, m in zip(x.shape[::-1], shape[::-1], strict=False)):
        return np.array(np.broadcast_to(x, shape))
    raise ValueError(
        f"Expected {name} as one number, {rows} as many as w has rows, or {shape} as w; got shape "
        f"{x.shape}."
    )


def _refuse(values: Array, good: Callable[[Array], Any], name: str, what: str) -> None:
    refuse_where(~(good(values) & np.isfinite(values)), what, values, f"{{:g}} in {name}")


def _checked_ends(ends: Any) -> tuple[float | None, float | None]:
    try:
        low, high = (None if end is None else float(end) for end in ends)
    except (TypeError, ValueError):
        raise ValueError(
            f"Expected ends as a pair (low, high), None for no end; got {ends!r}."
        ) from None
    refuse_if(
        low is not None and high is not None and not low < high,
        f"Expected ends with low below high; got {ends!r}.",
    )
    return low, high
