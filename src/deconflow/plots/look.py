"""How a picture looks: which columns it shows, on which axes, in what size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from deconflow.checks import as_floats, check_integer, check_number
from deconflow.estimators import column_numbers
from deconflow.plots.axis import Axis, ends_of
from deconflow.plots.words import bare, can_be_set, typeset

Range = tuple[float | None, float | None]
SMALLEST, LARGEST = 0.5, 100.0
"""Inches."""
MOST_BINS = 10_000


@dataclass(frozen=True)
class Look:
    """What can be said of the look of a picture; all of it may be left out.

    Every function that draws takes these as keywords.

    Attributes
    ----------
    columns : str, int or sequence of these, optional
        Columns to show, by name or number, in this order; None for all.
    range : dict, optional
        Ends of axes: ``{column: (low, high)}``, None for an end that the values decide.
    bins : int, optional
        Number of bins of histograms; None for one that suits the values.
    log : str, int or sequence of these
        Columns with logarithmic axes. Their densities are those of the logarithm, per decade.
    invert : str, int or sequence of these
        Columns whose axes run backwards, as those of magnitudes.
    size : tuple of float, optional
        Width and height in inches.
    dpi : float, optional
        Dots per inch.
    title : str, optional
        Words above the picture, with mathematics between dollar signs.
    """

    columns: Any = None
    range: Mapping[Any, Range] | None = None
    bins: int | None = None
    log: Any = ()
    invert: Any = ()
    size: tuple[float, float] | None = None
    dpi: float | None = None
    title: str | None = None

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Look:
        """Make it of keywords that a function was called with."""
        known = [field.name for field in fields(cls)]
        for name in said:
            if name not in known:
                raise TypeError(f"Expected keywords among {', '.join(known)}; got {name!r}.")
        return cls(**said)

    def __post_init__(self) -> None:
        if self.range is not None and not isinstance(self.range, Mapping):
            raise TypeError(f"Expected range= as {{column: (low, high)}}; got {self.range!r}.")
        if self.bins is not None:
            check_integer("bins=", self.bins, 1)
            check_number("bins=", self.bins, 1, MOST_BINS)
        if self.dpi is not None:
            check_number("dpi=", self.dpi, 10, 5000)
        if self.size is not None:
            given = as_floats(self.size, "size=")
            if given.shape != (2,) or not ((given >= SMALLEST) & (given <= LARGEST)).all():
                raise ValueError(
                    f"Expected size= as width and height between {SMALLEST:g} and {LARGEST:g} "
                    f"inches; got {self.size!r}."
                )
        if self.title is not None and not (isinstance(self.title, str) and can_be_set(self.title)):
            raise ValueError(f"Expected title= as text that can be set; got {self.title!r}.")

    def refuse(self, where: str, *names: str) -> None:
        """Raise if some of it is said where it would do nothing."""
        for name in names:
            if getattr(self, name) not in (None, (), []):
                raise ValueError(f"Expected no {name}= {where}; got {getattr(self, name)!r}.")

    def axes(self, labels: Sequence[str], truth: Any, *others: Any) -> list[Axis]:
        """Return an axis for each column to show.

        Ends that are not said are found from values ``(N, D)`` of the truth, and from others,
        such as measurements, which may be None.
        """
        names = [bare(label) for label in labels]
        shown = [*np.arange(len(names))]
        if self.columns is not None:
            shown = [*self._numbers("columns", self.columns, names)]
        log, inverted = (self._among(shown, what, names) for what in ("log", "invert"))
        said = self._ranges(shown, names)
        found = []
        for d in shown:
            values = [table[:, d] for table in (truth, *others) if table is not None]
            low, high = said.get(d, (None, None))
            _refuse_below_zero(names[d], low, high, d in log)
            ends = ends_of(names[d], values, low, high, log=d in log)
            fixed = (low is not None, high is not None)
            label = typeset(labels[d])
            found.append(Axis(int(d), label, ends, d in log, d in inverted, self.bins, fixed))
        return found

    def _numbers(self, what: str, columns: Any, names: Sequence[str]) -> list[int]:
        return column_numbers(columns, names, f"{what}=").tolist()

    def _among(self, shown: Sequence[int], what: str, names: Sequence[str]) -> set[int]:
        """Numbers of the columns that something is said of, all of which are shown."""
        said = getattr(self, what)
        if said is None or (not isinstance(said, str) and np.size(said) == 0):
            return set()
        found = set(self._numbers(what, said, names))
        for d in found.difference(shown):
            raise ValueError(
                f"Expected {what}= of columns that are shown; got {names[d]!r}, which is not."
            )
        return found

    def _ranges(self, shown: Sequence[int], names: Sequence[str]) -> dict[int, Range]:
        found: dict[int, Range] = {}
        for column, ends in (self.range or {}).items():
            (d,) = self._numbers("range", [column], names)
            if d not in shown:
                raise ValueError(
                    f"Expected range= of columns that are shown; got {names[d]!r}, which is not."
                )
            found[d] = _checked_ends(names[d], ends)
        return found


def _checked_ends(name: str, ends: Any) -> Range:
    try:
        low, high = (None if end is None else float(end) for end in ends)
    except (TypeError, ValueError):
        low = high = np.nan
    said = [end for end in (low, high) if end is not None]
    if not np.isfinite(said).all() or said != sorted(set(said)):
        raise ValueError(
            f"Expected range= of {name!r} as two numbers, the lower first; got {ends!r}."
        )
    return low, high


def _refuse_below_zero(name: str, low: float | None, high: float | None, log: bool) -> None:
    for end in (low, high):
        if log and end is not None and end <= 0:
            raise ValueError(
                f"Expected range= of {name!r} above 0, because its axis is logarithmic; "
                f"got {end:g}."
            )
