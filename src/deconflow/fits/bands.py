r"""Pointwise bands of densities and quantiles, and the distribution of one column.

Bands are made of replicates: other answers that the same data might have given.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.integrate import cumulative_trapezoid, trapezoid
from scipy.special import stdtrit
from scipy.stats import rv_continuous

from deconflow._limits import row_slices
from deconflow._types import Array, IntArray
from deconflow.checks import (
    as_floats,
    check_choice,
)
from deconflow.extras import need
from deconflow.frames import (
    plain_table,
    refuse_other_names,
)
from deconflow.mixtures import GaussianMixture

if TYPE_CHECKING:
    from deconflow.fits.fitted import FittedDensity

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


def band_of_densities(density: "FittedDensity", points: Any, level: float) -> Band:
    """Return the band of a density at some points; None for a grid of its own."""
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


def band_of_quantiles(density: "FittedDensity", quantiles: Any, points: Any, level: float) -> Band:
    """Return the band of quantiles of a density of one column."""
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
