r"""Regression of one column of the truth on others, from their joint density.

Noise in the columns that are regressed on makes slopes of measurements too small. The truth has no
noise: what its density says of ``y`` given ``x`` needs no correction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from deconflow._limits import rows_at_once
from deconflow._types import Array
from deconflow.answers.moments import DRAWS, Points
from deconflow.answers.reweighting import reweighted_fits
from deconflow.checks import as_floats, check_integer, check_number
from deconflow.fits import (
    Band,
    FittedDensity,
    MixtureFit,
    Replicates,
    checked_points,
    column_numbers,
)
from deconflow.guests import as_guest
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.randomness import RandomState

#: Where there is no closed form: values of the target that a density is summed over, evenly spaced
#: over the range of its draws and so much of its width more.
LEVELS, PAD = 200, 0.05
#: Points of a curve, over all but this share of the truth on each side.
GRID, ENDS = 100, 0.01

Question = Callable[[GaussianMixture], Array]


@dataclass(frozen=True, repr=False)
class Regression:
    r"""What the density of the truth says of one column ``y``, given others ``x``.

    The best linear relation :math:`a + b \cdot x` is that of the truth's moments,

    .. math:: b = C_{xx}^{-1} C_{xy}, \qquad a = E[y] - b \cdot E[x], \qquad
              s^2 = C_{yy} - b \cdot C_{xy},

    and the curve :math:`E[y \mid x]` need not be a line. Both are closed forms where the density
    is a mixture of Gaussians; elsewhere moments come from 20,000 draws, and the law of ``y`` given
    ``x`` from the density at 200 values of ``y``.

    Attributes
    ----------
    target : str
        The column ``y``.
    on : list of str
        The columns ``x``.
    density : FittedDensity
        The density of the truth of ``y`` and ``x``, in this order.
    replicates : Replicates or None
        Other answers that the same data might have given, of the same columns; None if there are
        none, and then there are no errors.
    how : str
        Where the errors come from, in words.
    columns : list of int
        Numbers of ``y`` and ``x`` among the columns of the model.
    slope, intercept, scatter : array, float, float
        ``b`` with shape ``(len(on),)``, ``a``, and ``s``: the standard deviation of the truth
        around the line.
    slope_error, intercept_error, scatter_error : array, float, float or None
        Their standard errors.

    Examples
    --------
    >>> from deconflow import XDGMM
    >>> rng = np.random.default_rng(2)
    >>> x = rng.normal(size=2000)
    >>> v = np.column_stack([x, 1 + 2 * x + 0.3 * rng.normal(size=2000)])
    >>> w, sd = v + 0.7 * rng.normal(size=v.shape), [0.7, 0.7]
    >>> model = XDGMM(1).fit(w, noise=sd, names=["x", "y"])
    >>> found = model.regress("y", on="x", w=w, noise=sd)
    >>> found.slope.round(1), found.slope_error.round(2)
    (array([2.]), array([0.04]))
    >>> float(np.polyfit(w[:, 0], w[:, 1], 1)[0].round(1))  # of the measurements: too flat
    1.4
    """

    density: FittedDensity
    replicates: Replicates | None
    how: str
    columns: list[int]

    @property
    def target(self) -> str:
        """The column ``y``."""
        return self.density.names[0]

    @property
    def on(self) -> list[str]:
        """The columns ``x``."""
        return self.density.names[1:]

    @property
    def slope(self) -> Array:
        """Slopes of the best linear relation, ``(len(on),)``."""
        return self._line[2:]

    @property
    def intercept(self) -> float:
        """Its value where all of ``x`` are zero."""
        return float(self._line[0])

    @property
    def scatter(self) -> float:
        """Standard deviation of the truth around it."""
        return float(self._line[1])

    @property
    def slope_error(self) -> Array | None:
        """Standard errors of the slopes, ``(len(on),)``."""
        return None if self._line_error is None else self._line_error[2:]

    @property
    def intercept_error(self) -> float | None:
        """Standard error of the intercept."""
        return None if self._line_error is None else float(self._line_error[0])

    @property
    def scatter_error(self) -> float | None:
        """Standard error of the scatter."""
        return None if self._line_error is None else float(self._line_error[1])

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Lower and upper ends, each ``(len(on),)``, between which the slopes lie by this level."""
        check_number("level", level, 0, 1, open_low=True)
        reach = self._known_replicates().t(level)
        assert self.slope_error is not None
        return self.slope - reach * self.slope_error, self.slope + reach * self.slope_error

    def predict(self, x: Any) -> Array:
        """Return the mean of the true ``y`` at true ``x`` of shape ``(N, len(on))``, as ``(N,)``.

        With a single column ``x`` may have shape ``(N,)``. If ``x`` is measured with noise, the
        answer is ``model.condition(x, on, noise=...)``.
        """
        return self._means(self.density, self._checked(x))

    def quantile(self, q: float | Sequence[float] | Array, x: Any) -> Array:
        """Quantiles of the true ``y`` at ``x``: ``(N,)`` for a share ``q``, or ``(Q, N)``."""
        shares = np.atleast_1d(as_floats(q, "q"))
        if shares.ndim != 1 or not shares.size or not ((shares > 0) & (shares < 1)).all():
            raise ValueError(f"Expected q between 0 and 1; got {q!r}.")

        def of(given: GaussianMixture) -> Array:
            return np.column_stack([given.quantile(float(share))[:, 0] for share in shares])

        found = self._ask(self.density, self._checked(x), of).T
        return found[0] if np.ndim(q) == 0 else found

    def intrinsic_sd(self, x: Any) -> Array:
        """Return the standard deviation ``(N,)`` of the true ``y`` at ``x``, about the curve."""
        return self._ask(self.density, self._checked(x), lambda given: given.sd[:, 0])

    def band(self, x: Any = None, level: float = 0.9) -> Band:
        """Return the curve ``E[y given x]`` with an interval at each ``x``; see :meth:`grid`."""
        check_number("level", level, 0, 1, open_low=True)
        others = self._known_replicates()
        points = self._checked(self.grid() if x is None else x)
        value = self._means(self.density, points)
        half = others.half_width(value, partial(self._means, x=points), level)
        shown = points[:, 0] if len(self.on) == 1 else points
        return Band(shown, value, value - half, value + half, float(level), list(self.on))

    def grid(self, n: int = GRID) -> Array:
        """Return ``n`` evenly spaced values of the only ``x``, from its 1 % to its 99 % quantile.

        Beyond, the curve is a guess that the rows say next to nothing of.
        """
        if len(self.on) > 1:
            raise ValueError(
                f"Expected a regression on one column for a curve; got {', '.join(self.on)}. "
                "Give points x."
            )
        check_integer("n", n, 2)
        low, high = np.quantile(self._draws[:, 1], [ENDS, 1 - ENDS])
        return np.linspace(low, high, n)

    def summary(self) -> str:
        """Say it in words."""
        intercept, scatter, *slopes = self._told_line()
        figures = [(f"slope of {x}", b) for x, b in zip(self.on, slopes, strict=True)]
        figures += [("intercept", intercept), ("scatter", scatter)]
        width = max(len(name) for name, _ in figures) + 2
        title = f"{self.target} on {', '.join(self.on)}: the best linear relation of the truth"
        return "\n".join([title, *(f"{name:<{width}}{text}" for name, text in figures), self.how])

    def __repr__(self) -> str:
        slopes = ", ".join(self._told_line()[2:])
        return f"Regression({self.target} on {', '.join(self.on)}: slope {slopes})"

    def _told_line(self) -> list[str]:
        errors = np.full_like(self._line, np.nan) if self._line_error is None else self._line_error
        return [told(value, error) for value, error in zip(self._line, errors, strict=True)]

    @cached_property
    def _line(self) -> Array:
        return self._linear(self.density)

    @cached_property
    def _line_error(self) -> Array | None:
        if self.replicates is None:
            return None
        return self.replicates.error(self._line, self._linear)

    @cached_property
    def _draws(self) -> Array:
        return self.density.sample(DRAWS, 0)

    @cached_property
    def _points(self) -> Points:
        return Points(self.density)

    @cached_property
    def _levels(self) -> Array:
        low, high = self._draws[:, 0].min(), self._draws[:, 0].max()
        pad = PAD * (high - low)
        return np.linspace(low - pad, high + pad, LEVELS)

    def _checked(self, x: Any) -> Array:
        return checked_points(x, self.on, "x")

    def _known_replicates(self) -> Replicates:
        if self.replicates is None:
            raise ValueError(
                "Expected a regression with standard errors; got one without. Give the rows that "
                f"were fitted: regress({self.target!r}, on={self.on!r}, w=w, noise=noise)."
            )
        return self.replicates

    def _linear(self, answer: FittedDensity) -> Array:
        """Intercept, scatter and slopes of a density, ``(2 + len(on),)``."""
        mean, covariance = self._points.moments(answer)
        sd = np.sqrt(np.diag(covariance))
        size = np.where(sd > 0, sd, 1.0)  # in units of these: data may be huge, or tiny
        correlation = covariance / size[:, None] / size
        b = np.linalg.lstsq(correlation[1:, 1:], correlation[1:, 0], rcond=None)[0]
        scatter = size[0] * np.sqrt(max(0.0, correlation[0, 0] - b @ correlation[1:, 0]))
        slopes = b * size[0] / size[1:]
        return np.array([mean[0] - slopes @ mean[1:], scatter, *slopes])

    def _means(self, answer: FittedDensity, x: Array) -> Array:
        return self._ask(answer, x, lambda given: given.mean[:, 0])

    def _ask(self, answer: FittedDensity, x: Array, question: Question) -> Array:
        """Ask the law of ``y`` at each ``x``, in pieces: a mixture per row, of one dimension."""
        mixture = answer.as_mixture()
        parts = LEVELS if mixture is None else mixture.n_components
        step = rows_at_once(5 * parts * self.density.dim)
        found = []
        for start in range(0, max(1, len(x)), step):
            piece = x[start : start + step]
            if mixture is None:
                given = self._on_levels(answer, piece, start)
            else:
                given = _conditional(mixture, piece, self.density)
            found.append(question(given))
        return np.concatenate(found)

    def _on_levels(self, answer: FittedDensity, x: Array, first: int) -> GaussianMixture:
        """Return the law of ``y`` at each ``x`` as narrow Gaussians at fixed values of ``y``."""
        y, step = self._levels, self._levels[1] - self._levels[0]
        points = np.column_stack([np.tile(y, len(x)), np.repeat(x, len(y), axis=0)])
        log_p = answer.log_prob(points).reshape(len(x), len(y))
        top = log_p.max(1, initial=-np.inf)
        if not np.isfinite(top).all():
            row = first + int(np.flatnonzero(~np.isfinite(top))[0])
            raise ValueError(f"Expected x where the model has a density; got none in row {row}.")
        weights = np.exp(log_p - top[:, None])
        shape = (len(x), len(y))
        return GaussianMixture(
            weights / weights.sum(1, keepdims=True),
            np.broadcast_to(y[:, None], (*shape, 1)),
            np.full((*shape, 1, 1), step**2 / 12),
        )


def regression_of(
    fit: Any,
    target: Any,
    on: Any,
    data: Observations | None,
    n_refits: int,
    random_state: RandomState,
) -> Regression:
    """Regress a column of the truth on others; see :meth:`DensityEstimator.regress`."""
    columns = chosen_columns(target, on, fit.density.names)
    density = fit.density.marginal(columns)
    if data is not None:
        others, words = reweighted_fits(fit, data, n_refits, random_state)
        words = f"standard errors from {words}"
        return Regression(density, others.marginal(columns), words, columns)
    words = _origin(density.replicates, density.names[0], density.names[1:])
    return Regression(density, density.replicates, words, columns)


def chosen_columns(target: Any, on: Any, names: Sequence[str]) -> list[int]:
    """Return the numbers of the target and of what it is regressed on."""
    y, x = column_numbers(target, names, "target"), column_numbers(on, names, "columns in on")
    if len(y) > 1:
        raise ValueError(f"Expected one column as target; got {target!r}.")
    if y[0] in x:
        raise ValueError(f"Expected columns in on that are not the target; got {names[y[0]]!r}.")
    return [int(d) for d in (*y, *x)]


def _origin(replicates: Replicates | None, target: str, on: list[str]) -> str:
    """Say where errors come from, or how to get some."""
    if replicates is None:
        rows = f"regress({target!r}, on={on!r}, w=w, noise=noise)"
        return f"no standard errors: give the rows that were fitted, {rows}"
    return f"standard errors from {replicates.in_words()}"


def _conditional(mixture: GaussianMixture, x: Array, density: FittedDensity) -> GaussianMixture:
    """Return the law of the first dimension given the others, a mixture per row."""
    fit = MixtureFit([mixture], density.names, density.threads)
    with as_guest():
        exact = Observations.from_arrays(x, np.zeros(x.shape[1]))
    found: Any = fit.condition(exact, np.arange(1, mixture.dim), 1, 0)
    answer: GaussianMixture = found.mixture
    return answer


def told(value: float, error: float, unit: float | None = None) -> str:
    """Write a number to two digits of its error; without one, to hundredths of a unit.

    Examples
    --------
    >>> told(2.01234, 0.0345), told(1234.5, 21.0), told(0.5, float("nan"))
    ('2.012 +- 0.035', '1234 +- 21', '0.5')
    >>> told(1234.5678, float("nan"), 2.0)
    '1234.57'
    """
    if not error > 0:
        if unit is None:
            return f"{value:.4g}"
        digits = 2 - int(np.floor(np.log10(unit))) if unit > 0 else 12
        return f"{round(float(value), digits) + 0.0:.12g}"
    digits = 1 - int(np.floor(np.log10(error)))
    if not -3 <= digits <= 8:
        return f"{value:.6g} +- {error:.2g}"
    return f"{value:.{max(0, digits)}f} +- {error:.{max(0, digits)}f}"
