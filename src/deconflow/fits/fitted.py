r"""The density of true values that a fit has learned: the methods that all densities have.

Bands of densities and quantiles are pointwise, and made of replicates: other answers that the same
data might have given. Exact answers, and those on a grid, are in
:mod:`~deconflow.fits.mixture_fit`, answers by weighted draws in
:mod:`~deconflow.fits.weighted_fit`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, wraps
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import cumulative_trapezoid, trapezoid
from scipy.special import stdtrit
from scipy.stats import rv_continuous
from sklearn.utils import check_random_state

from deconflow._limits import row_slices
from deconflow._types import Array, IntArray
from deconflow.checks import (
    as_floats,
    check_choice,
    check_integer,
    check_number,
    check_seed,
    refuse_extremes,
)
from deconflow.evaluation import Estimate, row_p_values
from deconflow.extras import need
from deconflow.fits.posterior import Posterior, column_numbers
from deconflow.frames import (
    Units,
    column_units,
    plain_table,
    refuse_other_names,
    refuse_other_units,
)
from deconflow.guests import computing
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.xd import fit_exact

#: Numbers that a density has.
Numbers = Callable[["FittedDensity"], Array]
KINDS = ("folds", "draws")
POINTS, FINE_POINTS = 200, 400
#: A grid holds all but this share of the draws on each side, and so much of its width more.
ENDS = 0.001
#: Draws that say where a density is, and how much wider than these a table of it is.
DRAWS, PAD = 20_000, 0.05
#: Points of a table: so many evenly spaced, and so many where the density is high.
EVEN_POINTS, DENSE_POINTS = 1000, 1000


@dataclass(frozen=True)
class Replicates:
    r"""Other answers of the same kind, and how they vary about the answer that is given.

    For any number :math:`\theta` that a density has, the half width of its interval of level
    :math:`1 - 2 \alpha` is

    .. math:: h = t_{F - 1, \alpha} \sqrt{s^2 + \sum_c a_c (\theta_c - \theta)^2}

    where :math:`s^2 = \frac{F - 1}{F} \sum_f (\theta_f - \bar\theta)^2` for ``"folds"``, the
    delete-a-group jackknife, and :math:`\frac{1}{F - 1} \sum_f (\theta_f - \bar\theta)^2` for
    ``"draws"`` of a posterior; :math:`t` is a quantile of Student's t distribution with
    :math:`F - 1` degrees of freedom, and :math:`a_c` are the shares of alternatives.

    Attributes
    ----------
    densities : sequence of FittedDensity
        Each fitted without one of as many folds of the rows; or draws of a posterior.
    kind : {"folds", "draws"}
        Which of these.
    alternatives : sequence of (float, FittedDensity)
        Candidates that the answer is an average of, and the share of each. What separates them no
        resampling of the rows can see: much of it is bias.

    References
    ----------
    Kott (2001), "The delete-a-group jackknife", Journal of Official Statistics 17, 521-526
    """

    densities: Sequence["FittedDensity"]
    kind: str = "folds"
    alternatives: Sequence[tuple[float, "FittedDensity"]] = ()

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        if len(self.densities) < 2:
            raise ValueError(
                f"Expected at least 2 replicates, to see how they vary; got {len(self.densities)}."
            )
        shares = [share for share, _ in self.alternatives]
        if shares and (min(shares) < 0 or abs(sum(shares) - 1) > 1e-6):
            raise ValueError(
                f"Expected {len(shares)} shares of at least 0, with sum one; got {shares!r}."
            )

    def marginal(self, columns: Sequence[int] | IntArray) -> "Replicates":
        """Return the replicates of the density of some columns, by their numbers."""
        return self.changed(lambda each: each._marginal(np.asarray(columns)))

    def changed(self, change: Callable[["FittedDensity"], "FittedDensity"]) -> "Replicates":
        """Return replicates of which each is changed as the answer was."""
        return replace(
            self,
            densities=[change(density) for density in self.densities],
            alternatives=[(share, change(density)) for share, density in self.alternatives],
        )

    def in_words(self) -> str:
        """Say what they are."""
        fits = "fits without a fold each" if self.kind == "folds" else "draws of the density"
        return f"{len(self.densities)} {fits}"

    def half_width(self, value: Array, of: Numbers, level: float) -> Array:
        """Half the width of the interval of each of some numbers that a density has.

        Parameters
        ----------
        value
            These numbers for the answer that is given.
        of
            Gives the same numbers for another density.
        level
            Share of such intervals that should hold the truth.
        """
        return self.t(level) * self.error(value, of)

    def t(self, level: float) -> float:
        """How many standard errors the interval of a level reaches to each side."""
        return float(stdtrit(len(self.densities) - 1, 0.5 + 0.5 * level))

    def error(self, value: Array, of: Numbers) -> Array:
        """Return standard errors; parameters are those of :meth:`half_width`."""
        each = np.stack([of(density) for density in self.densities])
        count = len(each)
        squares = np.square(each - each.mean(0)).sum(0)
        variance = squares * ((count - 1) / count if self.kind == "folds" else 1 / (count - 1))
        for share, density in self.alternatives:
            variance = variance + share * np.square(of(density) - value)
        return np.sqrt(variance)


@dataclass(frozen=True, repr=False)
class Band:
    """Numbers that a density has at some points, each with an interval.

    Each interval should hold the truth with probability ``level``; all of them together do so
    less often.

    Attributes
    ----------
    points : array
        ``(N, D)``, or ``(N,)`` for one column: where the density is asked for. Of quantiles: their
        shares ``(N,)``.
    value, lower, upper : array
        ``(N,)`` densities, or quantiles, and the ends of their intervals.
    level : float
        The share of such intervals that should hold the truth.
    names : list of str
        What the columns of ``points`` are called.
    """

    points: Array
    value: Array
    lower: Array
    upper: Array
    level: float
    names: list[str]

    def __repr__(self) -> str:
        return f"Band({', '.join(self.names)}: {len(self.value)} points, level {self.level:g})"

    def to_frame(self) -> Any:
        """Return a pandas data frame: the points, then value, lower and upper."""
        parts = np.column_stack([self.points, self.value, self.lower, self.upper])
        return need("pandas", "data frames need it").DataFrame(
            parts, columns=[*self.names, "value", "lower", "upper"]
        )


def _band_of_densities(density: "FittedDensity", points: Any, level: float) -> Band:
    values = _grid_of(density) if points is None else checked_points(points, density.names)
    # Roots of densities have errors of about the same size at peaks and in tails, as roots of
    # counts have, and zeros do no harm: logarithms would make bands of tails absurdly wide.
    value, half = _with_half_width(density, lambda each: np.exp(0.5 * each.log_prob(values)), level)
    lower, upper = np.square(np.maximum(value - half, 0.0)), np.square(value + half)
    shown = values[:, 0] if density.dim == 1 else values
    return Band(shown, np.square(value), lower, upper, float(level), list(density.names))


def _grid_of(density: "FittedDensity") -> Array:
    """Return evenly spaced points ``(N, 1)`` where almost all of a density of one column lies."""
    low, high = np.quantile(density.sample(DRAWS, 0)[:, 0], [ENDS, 1 - ENDS])
    pad = PAD * (high - low)
    return np.linspace(low - pad, high + pad, POINTS)[:, None]


def _band_of_quantiles(density: "FittedDensity", quantiles: Any, points: Any, level: float) -> Band:
    if points is not None or density.dim > 1:
        raise ValueError(
            "Expected quantiles with a column alone, as band('x', quantiles=[0.1, 0.5, 0.9]); "
            "got points."
        )
    shares = np.atleast_1d(as_floats(quantiles, "quantiles"))
    if shares.ndim > 1 or not shares.size or not ((shares >= ENDS) & (shares <= 1 - ENDS)).all():
        raise ValueError(
            f"Expected quantiles as shares between {ENDS:g} and {1 - ENDS:g}; got {quantiles!r}."
        )
    grid = fine_grid(density, POINTS, FINE_POINTS)
    value, half = _with_half_width(density, partial(quantiles_of, shares=shares, grid=grid), level)
    return Band(
        shares, value, value - half, value + half, float(level), [f"share of {density.names[0]}"]
    )


def _with_half_width(density: Any, of: Numbers, level: float) -> tuple[Array, Array]:
    value = of(density)
    return value, density.replicates.half_width(value, of, level)


def checked_points(points: Any, names: Sequence[str], name: str = "points") -> Array:
    """Check points of the joint density, or of one column, which need no second axis."""
    refuse_other_names(points, list(names))
    values = as_floats(plain_table(points, name), name)
    if len(names) == 1 and values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or values.shape[1] != len(names) or not np.isfinite(values).all():
        shape = "(N,)" if len(names) == 1 else f"(N, {len(names)})"
        raise ValueError(
            f"Expected finite {'points' if name == 'points' else f'values in {name}'} of shape "
            f"{shape}, for {', '.join(names)}; "
            f"got {'NaN or inf' if values.shape[1:] == (len(names),) else values.shape}."
        )
    return values


def quantiles_of(density: Any, shares: Array, grid: Array) -> Array:
    """Quantiles of a density of one column, by the trapezoid rule, with the steps of its atoms."""
    column = TabulatedColumn(density, grid)
    if not len(getattr(density, "atoms", ())):
        return column.quantile(shares)
    return ColumnWithAtoms(column, density.atoms[:, 0], density.atom_weights).quantile(shares)


class MixtureColumn:
    """A mixture of Gaussians in one dimension: closed forms."""

    ends = (-np.inf, np.inf)

    def __init__(self, mixture: GaussianMixture) -> None:
        self.mixture = mixture
        self.mean, self.sd = float(mixture.mean[0]), float(mixture.sd[0])

    def pdf(self, x: Array) -> Array:
        """Density, of the shape of ``x``."""
        return self._in_pieces(lambda some: self.mixture.pdf(0, some), x)

    def cdf(self, x: Array) -> Array:
        """Probability of values up to ``x``, of its shape."""
        return self._in_pieces(lambda some: self.mixture.cdf(0, some), x)

    def quantile(self, shares: Array) -> Array:
        """Quantiles, of the shape of ``shares``."""
        return self._in_pieces(lambda some: self.mixture.quantiles_at(some[:, None])[:, 0], shares)

    def _in_pieces(self, question: Any, values: Array) -> Array:
        flat = values.ravel()
        pieces = row_slices(len(flat), 5 * self.mixture.n_components)  # arrays on the way
        return np.concatenate([np.empty(0), *(question(flat[some]) for some in pieces)]).reshape(
            values.shape
        )


class TabulatedColumn:
    """A density at points, linear between them and zero beyond, with an integral of one.

    Parameters
    ----------
    density
        What has ``log_prob``, of one dimension.
    points
        ``(P,)``, in ascending order.
    """

    def __init__(self, density: Any, points: Array) -> None:
        height = np.exp(density.log_prob(points[:, None]))
        below = cumulative_trapezoid(height, points, initial=0.0)
        self.points, self.density, self.below = points, height / below[-1], below / below[-1]
        self.ends = float(points[0]), float(points[-1])
        self.mean = float(trapezoid(points * self.density, points))
        self.sd = float(np.sqrt(trapezoid(np.square(points - self.mean) * self.density, points)))

    def pdf(self, x: Array) -> Array:
        """Density, of the shape of ``x``."""
        return np.interp(x, self.points, self.density, left=0.0, right=0.0)

    def cdf(self, x: Array) -> Array:
        """Probability of values up to ``x``, of its shape."""
        return np.interp(x, self.points, self.below)

    def quantile(self, shares: Array) -> Array:
        """Quantiles, of the shape of ``shares``."""
        return np.interp(shares, self.below, self.points)


#: A column that has a density.
SmoothColumn = MixtureColumn | TabulatedColumn


class ColumnWithAtoms:
    """A distribution with atoms beside it, which have no density.

    Parameters
    ----------
    continuous
        The column of what is at no atom.
    atoms, weights
        ``(A,)``: where the atoms are, and the probability of each.
    """

    def __init__(self, continuous: Any, atoms: Array, weights: Array) -> None:
        self.continuous = continuous
        self.atoms, into = np.unique(atoms, return_inverse=True)
        self.weights = np.bincount(into, weights).astype(np.float64)
        self.rest = max(1.0 - float(weights.sum()), 1e-300)

    def cdf(self, x: Array) -> Array:
        """Probability of values up to ``x``, of its shape."""
        return self.rest * self.continuous.cdf(x) + (self.atoms <= x[..., None]) @ self.weights

    def quantile(self, shares: Array) -> Array:
        """Quantiles, of the shape of ``shares``: an atom where its jump holds the share."""
        upto = self.cdf(self.atoms)
        return quantile_beside_atoms(
            shares, self.atoms, self.weights, upto - self.weights, upto, self.continuous.quantile
        )


def quantile_beside_atoms(
    shares: Array, atoms: Array, weights: Array, under: Array, upto: Array, of_rest: Any
) -> Array:
    """Quantiles at ``shares``: an atom where its jump holds the share, else those of the rest.

    Parameters
    ----------
    shares
        Of any shape.
    atoms, weights, under, upto
        Each atom's place and probability, and the probability of all below it without it and with
        it: the first axis is that of the atoms, the others go with those of the shares.
    of_rest
        Gives quantiles of the rest.
    """
    first = (len(atoms), *[1] * shares.ndim)
    places, chances, without, including = (
        x if x.ndim > 1 else x.reshape(first) for x in (atoms, weights, under, upto)
    )
    passed = np.where(including < shares, chances, 0.0).sum(0)
    rest = np.maximum(1.0 - chances.sum(0), 1e-300)
    found = of_rest(np.clip((shares - passed) / rest, 1e-12, 1 - 1e-12))
    for place, low, high in zip(places, without, including, strict=True):
        found = np.where((low < shares) & (shares <= high), place, found)
    return found


def fine_grid(density: Any, even: int = EVEN_POINTS, dense: int = DENSE_POINTS) -> Array:
    """Points ``(P,)`` to integrate a density of one column over, within the ends of the truth.

    Some are evenly spaced, some are where the density is high.
    """
    draws = density.sample(DRAWS, 0)[:, 0]
    pad = PAD * (draws.max() - draws.min())
    low, high = (float(end[0]) for end in density.ends)
    low, high = max(draws.min() - pad, low), min(draws.max() + pad, high)
    inner = np.quantile(draws, (np.arange(dense) + 0.5) / dense)
    return np.unique(np.concatenate([np.linspace(low, high, even), inner]))


class ScipyColumn(rv_continuous):
    """A column as scipy's base class needs it."""

    def __init__(self, column: SmoothColumn, **options: Any) -> None:
        self._column = column
        options["a"], options["b"] = column.ends
        super().__init__(**options)

    def _updated_ctor_param(self) -> dict[str, Any]:
        """Return what scipy needs to make a copy, as it does to freeze."""
        return {**super()._updated_ctor_param(), "column": self._column}

    def _pdf(self, x: Array) -> Array:
        return self._column.pdf(np.asarray(x, dtype=np.float64))

    def _cdf(self, x: Array) -> Array:
        return self._column.cdf(np.asarray(x, dtype=np.float64))

    def _ppf(self, q: Array) -> Array:
        return self._column.quantile(np.asarray(q, dtype=np.float64))

    def _stats(self) -> tuple[float, float, None, None]:
        return self._column.mean, self._column.sd**2, None, None


#: Draws of a density without a closed form, and Gaussians fitted to them, that stand in for it.
DRAWS_FOR_MIXTURE, COMPONENTS = 5_000, 12
QUESTIONS = ("_log_prob", "_sample", "log_marginal", "posterior", "memberships")


def _as_guest(question: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(question)
    def asked(self: "FittedDensity", *args: Any, **options: Any) -> Any:
        with computing(self.threads):
            return question(self, *args, **options)

    return asked


class FittedDensity(ABC):
    """The density of the truth that a fit has learned, in the user's units.

    Attributes
    ----------
    names : list of str
        Names of the dimensions.
    threads : int or None
        How many to use at most; None for as many as the process was allowed.
    units : list or None
        Units of the dimensions.
    replicates : Replicates or None
        Other answers that the same data might have given: what bands are made of.
    """

    names: list[str]
    threads: int | None = None
    replicates: Replicates | None = None
    units: Units | None = None

    def __init_subclass__(cls) -> None:
        """Answer every question as a guest, with no more threads than allowed."""
        for name in QUESTIONS:
            if name in vars(cls):
                setattr(cls, name, _as_guest(vars(cls)[name]))

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.names)

    @cached_property
    def ends(self) -> tuple[Array, Array]:
        """Lower and upper ends of the truth, ``(D,)`` each, infinite where there is none."""
        free = np.full(self.dim, np.inf)
        return -free, free

    def log_prob(self, v: ArrayLike) -> Array:
        """Log density ``(N,)`` of true values ``(N, D)``."""
        values = checked_points(v, self.names, "v")
        refuse_extremes("v", values)
        return self._log_prob(values)

    def sample(self, n: int, random_state: RandomState = None) -> Array:
        """Draw ``(n, D)``."""
        check_integer("n", n, 1)
        check_seed(random_state)
        return self._sample(n, random_state)

    def given(self, x: Any) -> "FittedDensity":
        """Return the density for one value of the covariates of the fit.

        Parameters
        ----------
        x
            The covariates: a number, a sequence in the order of the fit, a mapping from names to
            values, or a table of one row. For ``given="noise"`` these are the logarithms of the
            errors.
        """
        raise ValueError(
            "Expected a model that was fitted with covariates; got one without. Fit with given=."
        )

    @_as_guest
    def p_values(
        self, data: Observations, n_draws: int = 199, random_state: RandomState = 0
    ) -> Array:
        """How unusual each row is, ``(N,)``; see :func:`deconflow.evaluation.row_p_values`."""
        check_integer("n_draws", n_draws, 1)
        check_seed(random_state)
        return row_p_values(
            self.sample, self.statistic, data,
            n_draws=n_draws, random_state=random_state, threads=self.threads,
        )  # fmt: skip

    @cached_property
    def statistic(self) -> GaussianMixture:
        """A mixture of few Gaussians near this density, whose ``log p(w)`` p-values rank by."""
        return mixture_of_draws(self.sample(DRAWS_FOR_MIXTURE, 0))

    def marginal(self, columns: Any) -> "FittedDensity":
        """Return the density of some dimensions, by name or number, in the order given."""
        numbers = column_numbers(columns, self.names)
        part = self._marginal(numbers)
        if self.replicates is not None:
            part.replicates = self.replicates.marginal(numbers)
        return part

    def band(
        self,
        points: Any = None,
        *,
        column: Any = None,
        level: float = 0.9,
        quantiles: ArrayLike | None = None,
    ) -> Band:
        """Return densities with their pointwise intervals; or quantiles of the truth with theirs.

        Parameters
        ----------
        points
            ``(N, D)`` points of the joint density, or ``(N,)`` of a ``column``; or the name or
            number of a column.
        column
            The column whose marginal density is wanted; without points, on a grid of 200.
        level
            The share of intervals that should hold the truth.
        quantiles
            Shares, as ``[0.1, 0.5, 0.9]``, for the quantiles of the column instead of its density.
        """
        check_number("level", level, 0, 1, open_low=True)
        if isinstance(points, str | int | np.integer):  # as in band("x")
            if column is not None:
                raise TypeError(
                    f"Expected points as numbers beside column={column!r}; got {points!r}."
                )
            points, column = None, points
        if self.replicates is None:
            raise ValueError(
                "Expected a model with replicates, to see how far its answers may be off; got one "
                "without. Use Deconvolver (with n_members of at least 5, if any), BayesianXDGMM, "
                "LogSplineDeconvolver or XDGMM('auto')."
            )
        if points is None and column is None:
            if self.dim > 1:
                raise ValueError(
                    f"Expected points (N, {self.dim}) or one of the columns "
                    f"{', '.join(self.names)}; got neither. Ask for band({self.names[0]!r})."
                )
            column = 0
        columns = range(self.dim) if column is None else column_numbers(column, self.names)
        if self.units is not None and points is not None:
            own = [self.units[d] for d in columns]
            refuse_other_units(column_units(points), own, [self.names[d] for d in columns])
        if column is not None and len(columns) > 1:
            raise ValueError(
                f"Expected one column; got {column!r}. For the joint density of several, "
                "ask marginal(columns).band(points)."
            )
        density = self if column is None else self.marginal(columns)
        if quantiles is not None:
            return _band_of_quantiles(density, quantiles, points, level)
        return _band_of_densities(density, points, level)

    def cdf(self, x: ArrayLike) -> Array:
        """Probability of a truth up to ``x``, of the shape of ``x``, if there is one column.

        Closed forms for mixtures of Gaussians. Other densities are tabulated, at 2,000 points
        that reach a little farther than 20,000 draws: errors are below 1e-4.
        """
        points = as_floats(x, "x")
        if np.isnan(points).any():
            raise ValueError("Expected numbers as x; got NaN. It is below none.")
        return self._column.cdf(points)

    def quantile(self, q: ArrayLike) -> Array:
        """Quantiles at shares ``q``, of their shape, if there is one column; see :meth:`cdf`."""
        shares = as_floats(q, "q")
        if not ((shares > 0) & (shares < 1)).all():
            raise ValueError(f"Expected q between 0 and 1; got {q!r}.")
        return self._column.quantile(shares)

    def to_scipy(self) -> Any:
        """Return a frozen distribution of ``scipy.stats``, if there is one column.

        Its ``pdf``, ``cdf``, ``ppf``, ``rvs``, ``mean`` and ``std`` are closed forms for mixtures
        of Gaussians. Other densities are tabulated as for :meth:`cdf`, and end where the table
        does. A truth with atoms has no density, and is refused.

        Examples
        --------
        >>> from deconflow import XDGMM
        >>> w = np.random.default_rng(0).normal(size=(500, 2))
        >>> law = XDGMM(1).fit(w, noise=[0.5, 0.5]).density_.marginal("v0").to_scipy()
        >>> bool(abs(law.cdf(law.ppf(0.9)) - 0.9) < 1e-9)
        True
        """
        column, name = self._column, self.names[0]
        if isinstance(column, ColumnWithAtoms):
            places = ", ".join(f"{atom:g}" for atom in column.atoms)
            raise ValueError(
                "Expected a truth without atoms for scipy, whose distributions have a density; got "
                f"{name} with atoms at {places}. Use cdf, quantile and sample; or "
                "density_.inner.marginal(...).to_scipy() for the part without atoms."
            )
        return ScipyColumn(column, name=name)()

    @cached_property
    def _column(self) -> SmoothColumn | ColumnWithAtoms:
        """The only column."""
        if self.dim > 1:
            raise ValueError(
                f"Expected a density of one column; got one of {', '.join(self.names)}. Take one "
                f"first, as by marginal({self.names[0]!r})."
            )
        return self._one_column()

    def _one_column(self) -> SmoothColumn | ColumnWithAtoms:
        """Tabulate a density of one column; closed forms need no table."""
        return TabulatedColumn(self, fine_grid(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.names)})"

    @abstractmethod
    def _log_prob(self, v: Array) -> Array:
        """Log density of checked values."""

    @abstractmethod
    def _marginal(self, columns: IntArray) -> "FittedDensity":
        """Return the density of some dimensions, by their numbers."""

    @abstractmethod
    def _sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n, D)``, with checked arguments."""

    @abstractmethod
    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row, with its error; ``n_draws`` None for the usual."""

    @abstractmethod
    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value; exact answers need none of the numbers."""

    def exact(self, *, gaussian_noise: bool) -> bool:
        """Whether answers about rows with such noise are closed forms."""
        return False

    def averaged(self) -> "list[FittedDensity]":
        """Return the densities that this is an average of; none for a single fit."""
        return []

    def as_mixture(self) -> GaussianMixture | None:
        """Return the density as one mixture of Gaussians, if it is one."""
        return None

    @_as_guest
    def condition(
        self, data: Observations, given: IntArray, n_samples: int, random_state: RandomState
    ) -> Posterior:
        """Posterior of the other dimensions, from rows that measure only those given."""
        rows = seen_through(data, given, self.dim)
        whole = self.measuring(rows).posterior(rows, n_samples, random_state=random_state)
        return whole.marginal(np.setdiff1d(np.arange(self.dim), given))

    def measuring(self, rows: Observations) -> "FittedDensity":
        """Return the same density, for rows that measure something else than those fitted."""
        return self


def seen_through(data: Observations, given: IntArray, dim: int) -> Observations:
    """Say of rows that measure only some dimensions what they see of the whole truth."""
    own = data.projections() @ np.eye(dim)[given]
    return replace(data, projection=np.broadcast_to(own, (len(data), *own.shape[1:])))


def mixture_of_draws(drawn: Array) -> GaussianMixture:
    """Fit a few Gaussians to the finite of some draws."""
    return fit_exact(drawn[np.isfinite(drawn).all(1)], COMPONENTS, seed=0)


def as_seed(random_state: RandomState) -> int:
    """Return a seed that is a number: the one given, or one that is drawn."""
    check_seed(random_state)
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(2**31 - 1))
    return int(random_state)
