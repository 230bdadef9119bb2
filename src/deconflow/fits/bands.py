r"""Pointwise bands: between which values the density of the truth, or a quantile of it, may lie.

They are made of replicates: other answers that the same data might have given.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

from deconflow._types import Array, IntArray
from deconflow.checks import as_floats, check_choice, check_number
from deconflow.extras import need
from deconflow.fits.one_column import DRAWS, PAD, ColumnWithAtoms, TabulatedColumn, fine_grid
from deconflow.fits.posterior import column_numbers
from deconflow.frames import column_units, plain_table, refuse_other_names, refuse_other_units

if TYPE_CHECKING:
    from deconflow.fits.fitted import FittedDensity

#: Numbers that a density has.
Numbers = Callable[["FittedDensity"], Array]
KINDS = ("folds", "draws")
POINTS, FINE_POINTS = 200, 400
#: A grid holds all but this share of the draws on each side, and so much of its width more.
ENDS = 0.001


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
    #: What marginals keep. These are taken when a band is asked for: replicates may be many, and
    #: may have replicates of their own, which no band looks at.
    _columns: tuple[int, ...] | None = field(default=None, repr=False)

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
        kept = columns if self._columns is None else [self._columns[d] for d in columns]
        return replace(self, _columns=tuple(int(d) for d in kept))

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

    def answers(self) -> "list[FittedDensity]":
        """Return the replicates, of the columns that are left."""
        return [self._part(density) for density in self.densities]

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
        each = np.stack([of(density) for density in self.answers()])
        count = len(each)
        squares = np.square(each - each.mean(0)).sum(0)
        variance = squares * ((count - 1) / count if self.kind == "folds" else 1 / (count - 1))
        for share, density in self.alternatives:
            variance = variance + share * np.square(of(self._part(density)) - value)
        return np.sqrt(variance)

    def _part(self, density: "FittedDensity") -> "FittedDensity":
        return density if self._columns is None else density.marginal(list(self._columns))


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


def band_of(
    density: "FittedDensity", points: Any, column: Any, level: float, quantiles: Any
) -> Band:
    """Make a band of a density; see :meth:`deconflow.FittedDensity.band`."""
    check_number("level", level, 0, 1, open_low=True)
    if isinstance(points, str | int | np.integer):  # as in band("x")
        if column is not None:
            raise TypeError(f"Expected points as numbers beside column={column!r}; got {points!r}.")
        points, column = None, points
    if density.replicates is None:
        raise ValueError(
            "Expected a model with replicates, to see how far its answers may be off; got one "
            "without. Use Deconvolver (with n_members of at least 5, if any), BayesianXDGMM, "
            "LogSplineDeconvolver or XDGMM('auto')."
        )
    if density.units is not None and points is not None:
        chosen = range(density.dim) if column is None else column_numbers(column, density.names)
        own, names = [density.units[d] for d in chosen], [density.names[d] for d in chosen]
        refuse_other_units(column_units(points), own, names)
    if points is None and column is None:
        if density.dim > 1:
            raise ValueError(
                f"Expected points (N, {density.dim}) or one of the columns "
                f"{', '.join(density.names)}; got neither. Ask for band({density.names[0]!r})."
            )
        column = 0
    if column is not None:
        number = column_numbers(column, density.names)
        if len(number) > 1:
            raise ValueError(
                f"Expected one column; got {column!r}. For the joint density of several, "
                "ask marginal(columns).band(points)."
            )
        density = density.marginal(number)
    if quantiles is not None:
        return _band_of_quantiles(density, quantiles, points, level)
    return _band_of_densities(density, points, level)


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
    draws = density.sample(DRAWS, 0)[:, 0]
    low, high = np.quantile(draws, [ENDS, 1 - ENDS])
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
    words = [f"share of {density.names[0]}"]
    return Band(shares, value, value - half, value + half, float(level), words)


def _with_half_width(density: "FittedDensity", of: Numbers, level: float) -> tuple[Array, Array]:
    assert density.replicates is not None
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
