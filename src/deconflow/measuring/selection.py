"""What makes a row be seen: a rule of what was measured, or of the truth."""

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike

from deconflow._types import AnyArray, Array, BoolArray, IntArray
from deconflow.checks import as_floats, refuse_where
from deconflow.files import as_path
from deconflow.frames import refuse_other_rows
from deconflow.observations import Observations
from deconflow.ranges import Range, parse_ranges

OF = ("measured", "truth")


@dataclass(frozen=True)
class Efficiency:
    """The chance to be seen in the cells of a grid, zero outside; pass it as ``selection``.

    Parameters
    ----------
    edges
        For each column, the edges of its cells, rising.
    values
        The chance in each cell, between 0 and 1: one axis for each column, each of one cell less
        than it has edges.

    Examples
    --------
    >>> seen = Efficiency([[0.0, 1.0, 2.0]], [0.1, 0.9])
    >>> seen([[0.5], [1.5], [3.0]])
    array([0.1, 0.9, 0. ])
    """

    edges: Sequence[Any]
    values: ArrayLike

    def __post_init__(self) -> None:
        edges = tuple(as_floats(each, "edges") for each in self.edges)
        values = as_floats(self.values, "values")
        for d, each in enumerate(edges):
            if each.ndim != 1 or len(each) < 2 or not (np.diff(each) > 0).all():
                raise ValueError(f"Expected rising edges of column {d}; got {each!r}.")
        shape = tuple(len(each) - 1 for each in edges)
        if values.shape != shape:
            raise ValueError(
                f"Expected values of shape {shape}, one for each cell between the edges; "
                f"got {values.shape}."
            )
        if not ((values >= 0) & (values <= 1)).all():
            raise ValueError("Expected values between 0 and 1, as chances are; got others.")
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "values", values)

    @classmethod
    def from_npz(cls, path: str | Path) -> Self:
        """Read what ``numpy.savez(path, values=..., edges_0=..., edges_1=...)`` wrote."""
        path = as_path(path, "efficiency")
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = dict(file)
        except (OSError, EOFError, ValueError, TypeError, AttributeError, BadZipFile) as error:
            raise ValueError(
                f"Expected a grid of chances in {path}, made by numpy.savez; got: {error}"
            ) from error
        wanted = [f"edges_{d}" for d in range(len(arrays) - 1)]
        if arrays.keys() != {"values", *wanted}:
            raise ValueError(
                f"Expected values, edges_0, edges_1, ... in {path}; "
                f"got {', '.join(arrays) or 'nothing'}."
            )
        return cls([arrays[name] for name in wanted], arrays["values"])

    def __call__(self, w: ArrayLike) -> Array:
        """Return the chance ``(N,)`` at each point ``(N, D)``."""
        points = np.asarray(w, np.float64)
        if points.ndim != 2 or points.shape[1] != len(self.edges):
            raise ValueError(
                f"Expected points of {len(self.edges)} columns, as the grid has; "
                f"got shape {points.shape}."
            )
        cells = [
            np.searchsorted(edges, x, side="right") - (x == edges[-1])
            for x, edges in zip(points.T, self.edges, strict=True)
        ]
        return np.asarray(np.pad(self.values, 1)[tuple(cells)])


@dataclass(frozen=True)
class Selection:
    """A rule by which rows are seen or not, with more than ``fit(selection=f)`` can say.

    Parameters
    ----------
    seen
        The probability to be seen: a function of points ``(N, D)`` that returns ``(N,)``; an
        :class:`Efficiency`; or text such as ``"g < 18"``, several joined by ``and``. A function of
        what was measured may have arguments of the names ``errors``, the standard deviations
        ``(N, D)`` of the rows, and ``columns``, the rows of the table given here.
    of
        ``"measured"`` if rows are seen by their measured values, ``"truth"`` if by the true ones.
    columns
        ``(N, ...)`` array or data frame: other columns that ``seen`` looks at, one row for each
        of the fitted rows.
    errors
        A function of truths ``(N, D)`` that returns the standard deviations ``(N, D)`` that their
        measurements have, for those that were not seen. None: as those of the rows that were
        seen, more of those laws with which fewer are.
    """

    seen: Callable[..., Any] | Efficiency | str
    of: str = "measured"
    columns: Any = None
    errors: Callable[[Array], Any] | None = None


@dataclass(frozen=True)
class Rule:
    """A selection that was checked, for columns of known names.

    Attributes
    ----------
    seen : callable or None
        The user's function; None if there are ranges.
    ranges : tuple of (column, Range)
        Ranges that are all seen, and nothing else.
    of_truth : bool
        Whether the truth is looked at.
    takes : frozenset of str
        What the function wants beside points: ``errors``, ``columns``.
    columns
        Other columns of the rows.
    errors : callable or None
        Standard deviations of the measurements of truths that were not seen.
    """

    seen: Callable[..., Any] | None
    ranges: tuple[tuple[int, Range], ...]
    of_truth: bool
    takes: frozenset[str] = frozenset()
    columns: Any = None
    errors: Callable[[Array], Any] | None = None

    def __call__(
        self, points: Array, rows: IntArray | None = None, sd: Array | None = None
    ) -> Array:
        """Probability ``(N,)`` to be seen at points ``(N, D)``.

        ``rows`` are the numbers of the rows whose laws these points have, ``sd`` their errors.
        """
        if self.seen is None:
            inside = [
                (points[:, d] >= each.lower) & (points[:, d] <= each.upper)
                for d, each in self.ranges
            ]
            return np.all(inside, axis=0).astype(np.float64)
        more: dict[str, Any] = {"errors": sd} if "errors" in self.takes else {}
        if "columns" in self.takes:
            more["columns"] = _rows_of(self.columns, rows)
        return _checked(self.seen(points, **more), len(points))

    def take(self, rows: BoolArray) -> "Rule":
        """Return the rule for some of the rows."""
        return replace(self, columns=None if self.columns is None else _rows_of(self.columns, rows))

    def in_words(self) -> str:
        """Say what is looked at."""
        if self.seen is None:
            words = [f"{each.name} {each.ending}" for _, each in self.ranges]
            return " and ".join(words).replace("_", " ")
        return "an efficiency on a grid" if isinstance(self.seen, Efficiency) else "a function"


def as_rule(selection: Any, of: str, names: Sequence[str], data: Observations) -> Rule:
    """Check what users say of a selection, and that it can have let these rows through.

    The rule is one for the rows that have weight.
    """
    said = selection if isinstance(selection, Selection) else Selection(selection, of)
    for word in (of, said.of):
        if word not in OF:
            raise ValueError(f'Expected selection_of="measured" or "truth"; got {word!r}.')
    if isinstance(selection, Selection) and of != OF[0] and said.of != of:
        raise ValueError(
            f"Expected one word on what is selected by; got {said.of!r} in the Selection and "
            f"selection_of={of!r}."
        )
    rule = _rule(said, names, data)
    if data.weights is not None:
        rule, data = rule.take(np.asarray(data.weights) > 0), data.with_weight()
    _refuse_unseen_rows(rule, data)
    return rule


def _rule(said: Selection, names: Sequence[str], data: Observations) -> Rule:
    of_truth = said.of == "truth"
    if said.errors is not None and not callable(said.errors):
        raise TypeError(f"Expected errors as a function of truths; got {said.errors!r}.")
    if isinstance(said.seen, str):
        items = re.split(r"\s*(?:&|,|\band\b)\s*", said.seen.strip())
        ranges = _one_for_each_column(parse_ranges(items, names, "selection"), said.seen)
        numbered = tuple((list(names).index(each.name), each) for each in ranges)
        return Rule(None, numbered, of_truth, errors=said.errors)
    if not callable(said.seen):
        raise TypeError(
            "Expected selection as a function of points, an Efficiency, or text such as "
            f"'x < 18'; got {said.seen!r}."
        )
    if isinstance(said.seen, Efficiency) and len(said.seen.edges) != len(names):
        raise ValueError(
            f"Expected an efficiency of {len(names)} columns, as w has; got {len(said.seen.edges)}."
        )
    try:
        takes = frozenset(inspect.signature(said.seen).parameters) & {"errors", "columns"}
    except (TypeError, ValueError):  # functions in C have no signature
        takes = frozenset()
    if takes and of_truth:
        raise ValueError(
            "Expected a function of points alone for a selection by the truth; got one that asks "
            f"for {' and '.join(sorted(takes))}, which only rows that were measured have."
        )
    if said.columns is not None:
        refuse_other_rows(data.w, said.columns, "columns of the selection")
    elif "columns" in takes:
        raise ValueError(
            "Expected columns for a selection that looks at them, as Selection(f, columns=...); "
            "got none."
        )
    return Rule(said.seen, (), of_truth, takes, said.columns, said.errors)


def _one_for_each_column(ranges: Sequence[Range], text: str) -> list[Range]:
    """Put ranges of one column together: what lies in all of them."""
    found: dict[str, Range] = {}
    for each in ranges:
        known = found.get(each.name, each)
        lower, upper = max(known.lower, each.lower), min(known.upper, each.upper)
        found[each.name] = replace(each, lower=lower, upper=upper)
        if lower > upper:
            raise ValueError(
                f"Expected a selection that lets some {each.name} through; got {text!r}, which "
                "lets none."
            )
    return list(found.values())


def _rows_of(table: Any, rows: AnyArray | None) -> Any:
    return table.iloc[rows] if hasattr(table, "iloc") else np.asarray(table)[rows]


def _checked(chances: Any, count: int) -> Array:
    if np.asarray(chances).dtype == bool:  # seen or not
        chances = np.asarray(chances, np.float64)
    found = as_floats(chances, "what selection returns")
    if found.shape != (count,):
        raise ValueError(
            f"Expected selection to return shape ({count},), one probability per point; "
            f"got {found.shape}."
        )
    expected = "selection to return probabilities between 0 and 1"
    refuse_where(~((found >= 0) & (found <= 1)), expected, found, shared=True)
    return found


def _refuse_unseen_rows(rule: Rule, data: Observations) -> None:
    """Raise for rows that could not have been seen, and for rules that select nothing."""
    sd = np.sqrt(np.broadcast_to(np.asarray(data.noise.variance()), data.w.shape))
    chances = rule(data.measured(), np.arange(len(data)), sd)
    if not chances.any():
        raise ValueError(
            "Expected a selection by which some of the rows can be seen; got probability zero at "
            "all of them. Is it the probability to be seen, not to be missed?"
        )
    refuse_where(
        (chances == 0) & (not rule.of_truth),
        "rows that the selection lets through",
        got="probability zero to be seen",
        advice="Leave such rows out, or change the selection.",
    )
