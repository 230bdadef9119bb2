r"""Measurements by their likelihoods: counts, shares, errors that multiply, or any other.

Each is a :class:`~deconflow.noise.Reading`, which becomes a law once the values are known. A row's
likelihood is taken as a function of the truth, and normalised: ``log p(w)`` of a model is that of
the row but for a number that depends on what was measured alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlog1py, xlogy

from deconflow._types import Array
from deconflow.checks import as_array, as_floats, as_parameter, first_bad, place
from deconflow.noise.base import Noise, Reading, RowIndex
from deconflow.noise.coerce import as_noise, rows_in_law, rows_of_law
from deconflow.noise.gaussian_noise import GaussianNoise
from deconflow.noise.likelihood_noise import LikelihoodNoise
from deconflow.noise.value_likelihoods import Measuring
from deconflow.randomness import isolated_rng

#: Looks at values ``(N, M)`` and parameters of that shape, and raises for one that cannot be.
Check = Callable[[Array, Mapping[str, Array]], None]
TINY = 1e-300


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
        own = {
            name: x[rows] if x.ndim and len(x) == self.n_rows else x
            for name, x in self.parameters.items()
        }
        return replace(self, parameters=own)

    def read(self, w: Array) -> tuple[Array, LikelihoodNoise]:
        """Return locations ``(N, M)`` in the units of the truth, and the law of their noise."""
        values = w
        own = {name: _spread(x, name, values.shape) for name, x in self.parameters.items()}
        seen = ~np.isnan(values)
        if not seen.any():
            raise ValueError("Expected values in w; got none but missing ones.")
        first = tuple(np.argwhere(seen)[0])  # a value that is missing has the law of any other
        values = np.where(seen, values, values[first])
        own = {name: np.where(seen, x, x[first]) for name, x in own.items()}
        if self.check is not None:
            self.check(values, own)
        low, high = self.truth_ends
        ends = -np.inf if low is None else low, np.inf if high is None else high
        noise = LikelihoodNoise.of(self.measuring, values, own, *ends)
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
        if not callable(function):
            raise TypeError(f"Expected a function as {name}; got {function!r}.")
    own = {name: as_parameter(x, name) for name, x in parameters.items()}
    return LikelihoodReading(Measuring(log_prob, simulate), own, _checked_ends(ends))


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
    measuring = Measuring(_poisson, _simulate_poisson)
    own = {"exposure": as_parameter(exposure, "exposure")}
    return LikelihoodReading(measuring, own, (0.0, None), _check_poisson)


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
    measuring = Measuring(_binomial, _simulate_binomial)
    own = {"n": as_parameter(n, "n")}
    return LikelihoodReading(measuring, own, (0.0, 1.0), _check_binomial)


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
    position = first_bad(w > n)
    if position is not None:
        raise ValueError(
            f"Expected no more successes in w than trials n; got {w[position]:g} of "
            f"{n[position]:g} at {place(position)}."
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
        bad = first_bad(w <= 0)
        if bad is not None:
            raise ValueError(
                f"Expected values above 0 in w for noise.multiplicative; got {w[bad]:g} at "
                f"{place(bad)}."
            )
        rows, columns = w.shape
        law = as_noise(self.law, rows, columns)
        values, own = _by_value(law, (rows, columns))
        measuring = Measuring(
            _LogProbOfRatio(values), _SimulateRatio(values),
            "Fit numpy.log(w) with the law itself, and take the exponential of the truth.",
        )  # fmt: skip
        return LikelihoodReading(measuring, own, self.truth_ends).read(w)


@dataclass(frozen=True)
class _LogProbOfRatio:
    law: Callable[..., Noise]

    def __call__(self, w: Array, v: Array, **parameters: Array) -> Array:
        error = np.log(w) - np.log(np.maximum(v, TINY))
        noise = self.law(**{name: x.reshape(-1, 1) for name, x in parameters.items()})
        return noise.log_prob(error.reshape(1, -1, 1)).reshape(v.shape)


@dataclass(frozen=True)
class _SimulateRatio:
    law: Callable[..., Noise]

    def __call__(self, v: Array, rng: np.random.Generator, **parameters: Array) -> Array:
        with isolated_rng(int(rng.integers(2**31 - 1))):
            noise = self.law(**{name: x.reshape(-1, 1) for name, x in parameters.items()})
            error = as_array(noise.sample(1)).reshape(v.shape)
        return v * np.exp(error)


def _by_value(noise: Noise, shape: tuple[int, int]) -> tuple[Callable[..., Noise], dict[str, Any]]:
    """Return a law value by value, and its parameters ``(N, M)``."""
    if isinstance(noise, GaussianNoise) and noise.diagonal:
        if not (noise.factor > 0).all():
            raise ValueError("Expected errors above zero for noise.multiplicative; got a zero.")
        return _gaussian, {"sd": np.broadcast_to(noise.factor, shape)}
    made = noise.value_law() if noise.independent else None
    if made is None or any(x.ndim != 2 or x.shape[1] != shape[1] for x in made[1].values()):
        raise ValueError(
            "Expected a law of independent values for noise.multiplicative, with parameters for "
            f"each value; got {noise!r}. Fit numpy.log(w) with that law instead."
        )
    return made[0], {name: np.broadcast_to(x, shape) for name, x in made[1].items()}


def _gaussian(sd: Array) -> GaussianNoise:
    return GaussianNoise(sd, shared=False, n_rows=len(sd))


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
    position = first_bad(~(good(values) & np.isfinite(values)))
    if position is not None:
        raise ValueError(
            f"Expected {what}; got {values[position]:g} in {name} at {place(position)}."
        )


def _checked_ends(ends: Any) -> tuple[float | None, float | None]:
    try:
        low, high = (None if end is None else float(end) for end in ends)
    except (TypeError, ValueError):
        raise ValueError(
            f"Expected ends as a pair (low, high), None for no end; got {ends!r}."
        ) from None
    if low is not None and high is not None and not low < high:
        raise ValueError(f"Expected ends with low below high; got {ends!r}.")
    return low, high
