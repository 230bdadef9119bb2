"""Parts of the rows that are known but for their share: atoms of the truth, a background."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from deconflow._types import Array
from deconflow.checks import as_floats, moved, refuse_if, refuse_where
from deconflow.noise import is_distribution
from deconflow.observations import Observations
from deconflow.truth.bounds import Bounds

UNIFORM = "uniform"
#: Methods of densities, by which other libraries call what we want to know.
ASKED = ("score_samples", "logpdf", "log_prob")


def as_atoms(atoms: Any, names: list[str], bounds: Bounds | None) -> Array:
    """Check places where a share of the truth sits exactly, as points ``(A, D)``.

    Parameters
    ----------
    atoms
        Numbers for one column, as a sequence or by its name; points ``(A, D)`` for several.
    names
        Names of the truth's columns.
    bounds
        Where the truth can be at all.

    Examples
    --------
    >>> as_atoms([0.0], ["x"], None)
    array([[0.]])
    """
    dim = len(names)
    if atoms is None:
        return np.empty((0, dim))
    points = _points(atoms, names)
    refuse_if(
        not np.isfinite(points).all(),
        f"Expected finite atoms; got {atoms!r}.",
    )
    refuse_if(
        len(np.unique(points, axis=0)) < len(points),
        f"Expected each of the atoms once; got {atoms!r}.",
    )
    if bounds is not None and not bounds.inside(points).all():
        outside = points[~bounds.inside(points)][0]
        raise ValueError(
            f"Expected atoms within the bounds of the truth; got {outside.tolist()}. Move the "
            "bounds, or leave that atom out."
        )
    return points


def _points(atoms: Any, names: list[str]) -> Array:
    dim = len(names)
    if isinstance(atoms, dict):
        refuse_if(
            list(atoms) not in ([names[0]], [0], ["0"]) or dim > 1,
            f"Expected atoms as whole points of {', '.join(names)}, as "
            f"{[[0.0] * dim]}; got {atoms!r}."
            if dim > 1
            else f"Expected atoms of {names[0]}; got {atoms!r}.",
        )
        atoms = next(iter(atoms.values()))
    points = np.atleast_1d(np.array(as_floats(atoms, "atoms")))
    if points.ndim == 1 and dim == 1:
        points = points[:, None]
    refuse_if(
        points.ndim != 2 or points.shape[1] != dim or not len(points),
        f"Expected atoms as points of {dim} columns, shape (A, {dim}); got {atoms!r}.",
    )
    return points


@dataclass(frozen=True)
class UniformBackground:
    """Rows that may be anywhere between the least and the largest value of each column.

    Attributes
    ----------
    low, high : array
        ``(M,)`` ends of what was measured in the fitted rows.
    """

    low: Array
    high: Array

    @classmethod
    def of(cls, data: Observations) -> "UniformBackground":
        """Take the ends of these rows."""
        w = data.measured()
        low, high = np.nanmin(w, axis=0), np.nanmax(w, axis=0)
        for d in np.flatnonzero(low == high).tolist():
            raise ValueError(
                'Expected values that differ by row in every column of w with background="uniform";'
                f" got {low[d]:g} alone in column {d}. Leave that column out, or give a density of "
                "the background."
            )
        return cls(low, high)

    def __call__(self, data: Observations) -> Array:
        """Log density ``(N,)`` of what was measured of each row."""
        w = data.measured()
        seen = ~np.isnan(w)
        inside = ~(seen & ((w < self.low) | (w > self.high))).any(1)
        log_p = -np.where(seen, np.log(np.maximum(self.high - self.low, 1e-300)), 0.0).sum(1)
        return np.where(inside, log_p, -np.inf)


@dataclass(frozen=True)
class GivenBackground:
    """Rows that follow a density of ``w`` that a user gives."""

    density: Any

    def validate(self) -> None:
        """Raise: JSON cannot hold it."""
        raise ValueError(
            'Expected background="uniform" in a model that is saved; got a density of your own, '
            "which JSON cannot hold."
        )

    def __call__(self, data: Observations) -> Array:
        """Log density ``(N,)`` of each row."""
        refuse_if(
            data.observed is not None,
            "Expected complete rows with a background density of your own; got missing "
            'values. Use background="uniform".',
        )
        w, names = data.w, [name for name in ASKED if hasattr(self.density, name)]
        density = getattr(self.density, names[0]) if names else self.density
        found = np.asarray(density(moved(w) if is_distribution(self.density) else w), np.float64)
        if found.shape == (len(w), 1):
            found = found[:, 0]
        expected = "background to give a number or minus infinity for each row"
        refuse_where(np.isnan(found.ravel()), expected, got="NaN")
        refuse_if(
            found.shape != (len(w),),
            f"Expected background to give a log density for each of {len(w)} rows; "
            f"got shape {found.shape}.",
        )
        return found


#: What gives the log density ``(N,)`` of rows that are no measurements of a truth.
Background = UniformBackground | GivenBackground


def as_background(background: Any, data: Observations) -> Background | None:
    """Check a background, and learn from the rows what it wants to know."""
    if background is None:
        return None
    if isinstance(background, str) and background == UNIFORM:
        return UniformBackground.of(data)
    if callable(background) or any(hasattr(background, name) for name in ASKED):
        return GivenBackground(background)
    raise ValueError(
        'Expected background as "uniform", or a density of w: a function that gives the log '
        f"density of rows, or an object with one of {', '.join(ASKED)}; got {background!r}."
    )
