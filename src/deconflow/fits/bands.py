r"""Pointwise bands: between which values the density of the truth, or a quantile of it, may lie."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from deconflow._types import Array
from deconflow.checks import as_floats, check_number
from deconflow.extras import need
from deconflow.fits.one_column import DRAWS, PAD, ColumnWithAtoms, TabulatedColumn, fine_grid
from deconflow.fits.posterior import column_numbers
from deconflow.fits.replicates import Answer, Replicates
from deconflow.frames import column_units, plain_table, refuse_other_names, refuse_other_units

if TYPE_CHECKING:
    from deconflow.fits.fitted import FittedDensity

POINTS, FINE_POINTS = 200, 400
#: A grid holds all but this share of the draws on each side, and so much of its width more.
ENDS = 0.001


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
    _replicates(density)
    points, column = told_apart(points, column)
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
    values = grid_of(density) if points is None else checked_points(points, density.names)
    return _band_of_densities(density, values, level)


def told_apart(points: Any, column: Any) -> tuple[Any, Any]:
    """Take the name or number of a column where points are asked for, as in ``band("x")``."""
    if not isinstance(points, str | int | np.integer):
        return points, column
    if column is not None:
        raise TypeError(f"Expected points as numbers beside column={column!r}; got {points!r}.")
    return None, points


def grid_of(density: "FittedDensity") -> Array:
    """Return evenly spaced points ``(N, 1)`` where almost all of a density of one column lies."""
    draws = density.sample(DRAWS, 0)[:, 0]
    low, high = np.quantile(draws, [ENDS, 1 - ENDS])
    pad = PAD * (high - low)
    return np.linspace(low - pad, high + pad, POINTS)[:, None]


def _band_of_densities(density: "FittedDensity", points: Array, level: float) -> Band:
    # Roots of densities have errors of about the same size at peaks and in tails, as roots of
    # counts have, and zeros do no harm: logarithms would make bands of tails absurdly wide.
    value = _root_density(density, points)
    half = _replicates(density).half_width(value, partial(_root_density, v=points), level)
    lower, upper = np.square(np.maximum(value - half, 0.0)), np.square(value + half)
    shown = points[:, 0] if density.dim == 1 else points
    return Band(shown, np.square(value), lower, upper, float(level), list(density.names))


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
    find = partial(quantiles_of, shares=shares, grid=fine_grid(density, POINTS, FINE_POINTS))
    value = find(density)
    half = _replicates(density).half_width(value, find, level)
    words = [f"share of {density.names[0]}"]
    return Band(shares, value, value - half, value + half, float(level), words)


def _replicates(density: "FittedDensity") -> Replicates:
    if density.replicates is None:
        raise ValueError(
            "Expected a model with replicates, to see how far its answers may be off; got one "
            "without. Use Deconvolver (with n_members of at least 5, if any), BayesianXDGMM, "
            "LogSplineDeconvolver or XDGMM('auto')."
        )
    return density.replicates


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


def _root_density(density: Answer, v: Array) -> Array:
    return np.exp(0.5 * density.log_prob(v))


def quantiles_of(density: Any, shares: Array, grid: Array) -> Array:
    """Quantiles of a density of one column, by the trapezoid rule, with the steps of its atoms."""
    column = TabulatedColumn.of(density, grid)
    if not len(getattr(density, "atoms", ())):
        return column.quantile(shares)
    return ColumnWithAtoms(column, density.atoms[:, 0], density.atom_weights).quantile(shares)
