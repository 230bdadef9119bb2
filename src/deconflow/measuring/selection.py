r"""What makes a row be seen: a rule of what was measured, or of the truth.

Then the chance of a truth to be seen, and what a row that was seen says of its truth:

.. math:: F_i(v) = \int f(v + n) \, p_i(n) \, dn

with the probability ``f`` to be seen and the law :math:`p_i` of a row, or the mean of that over
rows. Where the truth decides, it is ``f(v)``.

The truths of the rows that were seen have the density :math:`q(v) \propto p(v) F(v)`, and a row
with such a truth has the likelihood

.. math:: p(w_i \mid v, \text{seen}) \propto p_i(w_i - v) / F(v)

So ``q`` is deconvolved as ever, from rows whose likelihoods lean towards what is seldom seen, and
``p`` is ``q / F``. Here that likelihood becomes one Gaussian.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from deconflow._types import AnyArray, Array, BoolArray, IntArray
from deconflow.checks import as_floats, refuse_where
from deconflow.files import as_path
from deconflow.frames import refuse_other_rows
from deconflow.noise import GaussianNoise, Noise, gaussian, psd_cholesky
from deconflow.observations import Observations
from deconflow.randomness import isolated_rng
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
    errors: Any = None

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
    chances = rule(data.measured(), np.arange(len(data)), _sd(data.noise))
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
    return rule


def _rule(said: Selection, names: Sequence[str], data: Observations) -> Rule:
    of_truth = said.of == "truth"
    if said.errors is not None and not callable(said.errors):
        raise TypeError(f"Expected errors as a function of truths; got {said.errors!r}.")
    if isinstance(said.seen, str):
        items = re.split(r"\s*(?:&|,|\band\b)\s*", said.seen.strip())
        ranges = _one_for_each_column(parse_ranges(items, names, "selection"), said.seen)
        return Rule(
            None,
            tuple((list(names).index(each.name), each) for each in ranges),
            of_truth,
            errors=said.errors,
        )
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
    refuse_where(
        ~((found >= 0) & (found <= 1)),
        "selection to return probabilities between 0 and 1",
        found,
        shared=True,
    )
    return found


#: Rows whose laws stand for all, where there is a closed form and where there are draws; and draws
#: of each of these, or of the only one.
LAWS, LAWS_WITH_DRAWS, DRAWS_PER_LAW, DRAWS_OF_ONE = 256, 128, 8, 128
#: Where there is no closed form: draws lie wider than the noise and are weighed, so that
#: a chance is small, not zero, where only large noise lets a truth be seen.
WIDER = 1.6
NUMBERS_AT_ONCE = 2_000_000
#: Points per row, how much wider than the likelihood they lie, and how often they move to it.
POINTS, WIDER_POINTS, ROUNDS = 64, 1.5, 2
LEAST_CHANCE, LEAST_WIDTH = 1e-3, 1e-5


class Chances:
    """Chances of truths to be seen, for one rule and the laws of some rows.

    Attributes
    ----------
    rows, counts : array
        ``(L,)`` rows whose laws stand for all, and for what share of these.
    """

    def __init__(self, rule: Rule, data: Observations, seed: int) -> None:
        self.rule = rule
        alike = rule.of_truth or rule.errors or (data.noise.shared and rule.columns is None)
        plain = isinstance(data.noise, GaussianNoise) and data.noise.independent
        self.closed_form = rule.errors is None and rule.seen is None and plain
        most = 1 if alike else LAWS if self.closed_form else LAWS_WITH_DRAWS
        columns = [d for d, _ in rule.ranges] or list(range(data.dim))
        self.rows, self.counts = _standing_for_all(data, most, columns)
        self.laws = data[self.rows].noise
        self.sd = _sd(self.laws)
        count = DRAWS_OF_ONE if len(self.rows) == 1 else DRAWS_PER_LAW
        bits = int(np.ceil(np.log2(len(self.rows) * count)))  # Sobol's points come in such numbers
        sobol = qmc.Sobol(data.dim, seed=seed).random_base2(bits)[: len(self.rows) * count]
        white = WIDER * ndtri(sobol.clip(1e-6, 1 - 1e-6))
        self.white = white.reshape(len(self.rows), count, -1)  # each law has even points of its own
        logs = -0.5 * np.square(self.white).sum(2) * (1 - WIDER**-2)
        self.shares = np.exp(logs - np.logaddexp.reduce(logs, axis=1)[:, None])
        self.noise = self._draws(seed)

    def _draws(self, seed: int) -> Array:
        """Draws of each law's noise, ``(L, J, D)``, whose shares are ``shares``."""
        laws, count, _ = self.white.shape
        drawn = self.laws.from_uniform(ndtr(self.white).transpose(1, 0, 2))
        if drawn is None:  # a law that can only be drawn from
            self.shares = np.full((laws, count), 1 / count)
            with isolated_rng(seed):
                drawn = np.asarray(self.laws.sample(count), np.float64)
        return drawn.transpose(1, 0, 2)

    def __call__(self, v: Array) -> Array:
        """Chance ``(N,)`` of each truth ``(N, D)``, over all laws."""
        return self.counts @ self.by_law(v)

    def by_law(self, v: Array) -> Array:
        """Chance ``(L, N)`` of each truth ``(N, D)``, with each law."""
        if self.rule.of_truth:
            return self.rule(v)[None]
        size = max(1, NUMBERS_AT_ONCE // (self.noise.size or 1))
        chances = self._in_ranges if self.closed_form else self._by_draws
        return np.concatenate([chances(v[i : i + size]) for i in range(0, len(v), size)], axis=1)

    def _in_ranges(self, v: Array) -> Array:
        """Probability that Gaussian noise leaves a value in all ranges."""
        found = np.ones((len(self.sd), len(v)))
        for d, each in self.rule.ranges:
            size = np.maximum(self.sd[:, d, None], 1e-300)
            with np.errstate(over="ignore"):  # exact values are inside, or are not
                low, high = ((end - v[:, d]) / size for end in (each.lower, each.upper))
            found *= ndtr(high) - ndtr(low)
        return found

    def _by_draws(self, v: Array) -> Array:
        """Average over all draws at once: a user's function is called seldom."""
        if self.rule.errors is None:
            sd, noise = self.sd[:, None, None], self.noise[:, :, None]
        else:
            sd = said_errors(self.rule, v)
            noise = self.white[:, :, None] * sd
        w = v + noise
        rows = np.broadcast_to(self.rows[:, None, None], w.shape[:-1])
        sd = np.broadcast_to(sd, w.shape)
        dim = v.shape[1]
        seen = self.rule(w.reshape(-1, dim), rows.ravel(), sd.reshape(-1, dim))
        return np.einsum("lj,ljn->ln", self.shares, seen.reshape(w.shape[:-1]))


def said_errors(rule: Rule, v: Array) -> Array:
    """Return the standard deviations that users say unseen truths ``(N, D)`` are measured with."""
    sd = np.asarray(rule.errors(v), np.float64)
    if sd.shape != v.shape or not (np.isfinite(sd) & (sd >= 0)).all():
        raise ValueError(
            f"Expected errors of the selection to return shape {v.shape}, finite and at least "
            f"zero; got shape {sd.shape}{'' if sd.shape != v.shape else ' with other values'}."
        )
    return sd


def _standing_for_all(data: Observations, most: int, columns: list[int]) -> tuple[IntArray, Array]:
    """Choose rows whose laws stand for all, by the size of the noise in some columns, with shares.

    Few different sizes are all there; of many, each row stands for neighbours in their order.
    """
    sizes = _sd(data.noise)[:, columns].prod(1)
    weights = np.ones(len(data)) if data.weights is None else np.asarray(data.weights)
    different, first, which = np.unique(sizes, return_index=True, return_inverse=True)
    if most == 1 or len(different) > most:
        order = np.argsort(sizes, kind="stable")
        parts = np.array_split(order, min(most, len(order)))
        rows = np.array([part[len(part) // 2] for part in parts])
        counts = np.array([weights[part].sum() for part in parts])
    else:
        rows, counts = first, np.bincount(which, weights=weights)
    return rows.astype(np.int64), counts / counts.sum()


def _sd(noise: Noise) -> Array:
    return np.sqrt(np.broadcast_to(np.asarray(noise.variance()), (len(noise), noise.dim)))


def seen_rows(data: Observations, chances: Callable[[Array], Array]) -> Observations:
    """Return rows as Gaussians: mean and covariance of each one's likelihood, if it was seen."""
    half = ndtri(qmc.Sobol(data.dim, seed=0).random(POINTS // 2).clip(1e-9, 1 - 1e-9))
    white = np.concatenate([half, -half])
    size = max(1, 2 * NUMBERS_AT_ONCE // (POINTS * data.dim))
    # Rows that are exact get a width, too, which is small compared with the data's.
    spread = data.measured().var(0) + np.asarray(data.noise.variance()).mean(0)
    least = np.diag(np.maximum(LEAST_WIDTH**2 * spread, 1e-300))
    pieces = [_leaning(piece, chances, white, least) for piece in data.chunks(size)]
    means, covariances = (np.concatenate(each) for each in zip(*pieces, strict=True))
    return replace(data, w=means, noise=gaussian(covariance=covariances))


def _leaning(
    data: Observations, chances: Callable[[Array], Array], white: Array, least: Array
) -> tuple[Array, Array]:
    """Mean ``(N, D)`` and covariance ``(N, D, D)`` of ``p(w - v) / F(v)`` over ``v``."""
    count, dim = len(data), data.dim
    centre = data.measured() - np.asarray(data.noise.mean())
    covariance = np.broadcast_to(np.asarray(data.noise.covariance()), (count, dim, dim))
    own = psd_cholesky(covariance + least)
    mean, factor = centre, own
    for _ in range(ROUNDS):
        v = mean[:, None] + WIDER_POINTS * np.einsum("nij,pj->npi", factor, white)
        residual = np.linalg.solve(own, np.swapaxes(v - centre[:, None], 1, 2))
        chance = chances(v.reshape(-1, dim)).reshape(v.shape[:2])
        logs = 0.5 * np.square(white).sum(1) - 0.5 * np.square(residual).sum(1)
        logs = logs - np.log(np.maximum(chance, LEAST_CHANCE))
        share = np.exp(logs - logs.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        mean = np.einsum("np,npi->ni", share, v)
        offset = v - mean[:, None]
        covariance = np.einsum("np,npi,npj->nij", share, offset, offset)
        factor = psd_cholesky(covariance + least)
    return mean, covariance
