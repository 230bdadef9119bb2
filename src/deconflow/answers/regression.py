r"""Regression of one column of the truth on others, from their joint density.

Noise in the columns that are regressed on makes slopes of measurements too small. The truth has no
noise: what its density says of ``y`` given ``x`` needs no correction.

Standard errors come from replicates, or from refits to reweighted rows, the Bayesian bootstrap
(Rubin 1981): rows get weights from an exponential law, and a mixture is fitted to them again. It
starts where the fit to all rows ends, so that fifty refits cost about as much as a few fits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.linalg import eigvalsh
from sklearn.utils import check_random_state

from deconflow._limits import rows_at_once
from deconflow._types import Array
from deconflow.answers.statistics import DRAWS, Points, told
from deconflow.checks import as_floats, check_integer, check_number, refuse_where
from deconflow.copies import keep_copies_together
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
from deconflow.xd import (
    EMResult,
    FitSettings,
    PreparedData,
    Stopping,
    fit_exact,
    n_parameters,
    row_weights,
)

#: Where there is no closed form: values of the target that a density is summed over, evenly spaced
#: over the range of its draws and so much of its width more.
LEVELS, PAD = 200, 0.05
#: Points of a curve, over all but this share of the truth on each side.
GRID, ENDS = 100, 0.01

#: Mixtures of a model that are taken as they are, and components of each.
MOST_MEMBERS, MOST_COMPONENTS = 10, 32
#: Draws of a model that is no mixture, and numbers of components that are fitted to them.
DRAWS_TO_FIT, IN_ITS_PLACE = 5000, (1, 2, 3, 4, 6, 8)
STEPS = Stopping(tol=1e-6, max_iter=200, accelerate=True)
#: Variances of refits may fall to this share of the narrowest of the model: without such a floor
#: components collapse, and the fit may have had one, which its answer does not tell.
NARROWER = 0.25
#: Variance of the noise, in units of that of the truth, that is none.
NO_NOISE = 1e-100
#: Smallest covariance of a mixture in a model's place, in units of the noise.
FLOOR = 0.02

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
        half = self._known_replicates().t(level) * np.asarray(self.slope_error)
        return self.slope - half, self.slope + half

    def predict(self, x: Any) -> Array:
        """Return the mean of the true ``y`` at true ``x`` of shape ``(N, len(on))``, as ``(N,)``.

        With a single column ``x`` may have shape ``(N,)``. If ``x`` is measured with noise, the
        answer is ``model.condition(x, on, noise=...)``.
        """
        return self._means(self.density, checked_points(x, self.on, "x"))

    def quantile(self, q: float | Sequence[float] | Array, x: Any) -> Array:
        """Quantiles of the true ``y`` at ``x``: ``(N,)`` for a share ``q``, or ``(Q, N)``."""
        shares = np.atleast_1d(as_floats(q, "q"))
        if shares.ndim != 1 or not shares.size or not ((shares > 0) & (shares < 1)).all():
            raise ValueError(f"Expected q between 0 and 1; got {q!r}.")

        def of(given: GaussianMixture) -> Array:
            return np.column_stack([given.quantile(float(share))[:, 0] for share in shares])

        found = self._ask(self.density, checked_points(x, self.on, "x"), of).T
        return found[0] if np.ndim(q) == 0 else found

    def intrinsic_sd(self, x: Any) -> Array:
        """Return the standard deviation ``(N,)`` of the true ``y`` at ``x``, about the curve."""
        return self._ask(self.density, checked_points(x, self.on, "x"), lambda at: at.sd[:, 0])

    def band(self, x: Any = None, level: float = 0.9) -> Band:
        """Return the curve ``E[y given x]`` with an interval at each ``x``; see :meth:`grid`."""
        check_number("level", level, 0, 1, open_low=True)
        others = self._known_replicates()
        points = checked_points(self.grid() if x is None else x, self.on, "x")
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
            given = (
                self._on_levels(answer, piece, start)
                if mixture is None
                else self._conditional(mixture, piece)
            )
            found.append(question(given))
        return np.concatenate(found)

    def _conditional(self, mixture: GaussianMixture, x: Array) -> Any:
        """Return the law of ``y`` at each ``x`` in closed form."""
        fit: Any = MixtureFit([mixture], self.density.names, self.density.threads)
        with as_guest():
            exact = Observations.from_arrays(x, np.zeros(x.shape[1]))
        return fit.condition(exact, np.arange(1, mixture.dim), 1, 0).mixture

    def _on_levels(self, answer: FittedDensity, x: Array, first: int) -> GaussianMixture:
        """Return the law of ``y`` at each ``x`` as narrow Gaussians at fixed values of ``y``."""
        y, step = self._levels, self._levels[1] - self._levels[0]
        points = np.column_stack([np.tile(y, len(x)), np.repeat(x, len(y), axis=0)])
        log_p = answer.log_prob(points).reshape(len(x), len(y))
        top = log_p.max(1, initial=-np.inf)
        refuse_where(~np.isfinite(top), "x where the model has a density", got="none", first=first)
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
    names = fit.density.names
    y, x = column_numbers(target, names, "target"), column_numbers(on, names, "columns in on")
    if len(y) > 1:
        raise ValueError(f"Expected one column as target; got {target!r}.")
    if y[0] in x:
        raise ValueError(f"Expected columns in on that are not the target; got {names[y[0]]!r}.")
    columns = [int(d) for d in (*y, *x)]
    density = fit.density.marginal(columns)
    if data is not None:
        refits, words = reweighted_fits(fit, data, n_refits, random_state)
        others, how = refits.marginal(columns), f"standard errors from {words}"
    elif density.replicates is not None:
        others, how = density.replicates, f"standard errors from {density.replicates.in_words()}"
    else:
        others, how = (
            None,
            (
                "no standard errors: give the rows that were fitted, "
                f"regress({density.names[0]!r}, on={density.names[1:]!r}, w=w, noise=noise)"
            ),
        )
    return Regression(density, others, how, columns)


def reweighted_fits(
    fit: Any, data: Observations, n_refits: int, random_state: RandomState
) -> tuple[Replicates, str]:
    """Fit mixtures to rows with weights by chance; their spread is that of the model's answers.

    Parameters
    ----------
    fit : Fit
        What a model has learned.
    data
        The rows that it was fitted to.
    n_refits
        How many.
    random_state
        Seed of the weights.

    Returns
    -------
    Replicates, str
        What was found, and of what in words: of the mixtures that the model averages, in turn; of
        one that averages none, or too many, a mixture in its place.
    """
    density, rng = fit.density, check_random_state(random_state)
    if "background" in fit.known.traits:  # rows count by how likely they measure a truth
        data = data.weighed(row_weights(data) * (1.0 - density.memberships(data)[1])).with_weight()
    data = keep_copies_together(data)
    prepared = PreparedData(data)
    starts, words = _own_mixtures(fit), f"{n_refits} refits to reweighted rows"
    if starts:
        fits = [
            _settled(prepared, start, _floor(prepared, start), density.threads) for start in starts
        ]
    else:
        fits = [_in_its_place(prepared, density)]
        words = f"{n_refits} refits of a Gaussian mixture in the model's place, to reweighted rows"
    if fit.known.traits & {"atoms", "bounds"}:
        words += ", which know neither atoms nor bounds"
    codes, found, own = data.group_codes(), [], row_weights(data)
    codes = np.arange(len(data)) if codes is None else codes  # a group has one weight
    for i in range(n_refits):
        rows = data.weighed(own * rng.standard_exponential(codes.max() + 1)[codes])
        settings, start = fits[i % len(fits)]
        refit = PreparedData(rows).fit(settings, rng, start.mixture).mixture
        found.append(MixtureFit([refit], density.names, density.threads))
    return Replicates(found, "draws"), words


def _own_mixtures(fit: Any) -> list[GaussianMixture]:
    """Return the mixtures that the model averages, or one that fits its rows; if these are few."""
    members = getattr(fit.density, "members", None) or []
    if len(members) > MOST_MEMBERS or any(m.n_components > MOST_COMPONENTS for m in members):
        members = []
    return list(members) or ([] if fit.working is None else [fit.working])


def _in_its_place(prepared: PreparedData, density: Any) -> tuple[FitSettings, EMResult]:
    """Fit mixtures to draws of a density, go on with the rows, and take the best by BIC."""
    draws = density.sample(DRAWS_TO_FIT, 0)
    draws = draws[np.isfinite(draws).all(1)]
    fits = [
        _settled(prepared, fit_exact(draws, k, 0), FLOOR, density.threads) for k in IN_ITS_PLACE
    ]
    size, dim = len(prepared.data), density.dim
    bic = [
        n_parameters(how.n_components, dim) * np.log(size) - 2 * size * found.log_likelihood
        for how, found in fits
    ]
    return fits[int(np.argmin(bic))]


def _settled(
    prepared: PreparedData, start: GaussianMixture, floor: float, threads: int | None
) -> tuple[FitSettings, EMResult]:
    """Fit to the rows as they are; return how, and where that ends."""
    settings = FitSettings(start.n_components, floor, stopping=replace(STEPS, threads=threads))
    return settings, prepared.fit(settings, np.random.RandomState(0), start)


def _floor(prepared: PreparedData, start: GaussianMixture) -> float:
    """Return a floor, in units of the noise, somewhat below the narrowest component."""
    widest = max(
        eigvalsh(prepared.noise, own)[-1]
        for own in prepared.rows.units.mixture_to_standard(start).covariances
    )
    return NARROWER / widest if widest > NO_NOISE else 0.0
