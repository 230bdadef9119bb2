r"""Likelihoods of single values as functions of the truth, normalised; each different one once.

Where they have their mass is found by grids :math:`v = m + s \sinh t` about the mode ``m``, as fine
as the width ``s`` near it and coarse far away, up to the ends of the truth.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from deconflow._types import Array, BoolArray, IntArray
from deconflow.checks import refuse_if
from deconflow.noise.base import ByRow, Table
from deconflow.noise.mixture_fits import fit_folded

#: Log-likelihoods ``(U, G)`` at truths ``(U, G)``, a row for each likelihood.
LogLikelihood = Callable[[Array], Array]

#: Of a grid; an odd number, for Simpson's rule.
POINTS = 257
#: How far, and how finely, modes and widths are looked for.
DECADES, PER_DECADE = 18, 4
ZOOMS, ZOOM_POINTS = 14, 33
HALVINGS = 40
#: By how much a log-likelihood falls within its width; and by how much until it counts as none.
WIDTH, NOTHING = 0.5, 38.0
#: Widths within which it must have fallen to nothing.
FARTHEST = 1e9
SIMPSON = np.where(np.arange(POINTS) % 2, 4.0, 2.0) / 3.0
SIMPSON[[0, -1]] = 1.0 / 3.0
#: Likelihoods that are looked for at once.
AT_ONCE = 4_000
PROFILE = np.array([-6.0, -3.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 6.0])
#: Likelihoods that differ by less than this, in nats at so many widths from their modes, share
#: their Gaussians.
ALIKE = 0.01
#: Gaussians are fitted to every fourth point of a grid.
EVERY = 4


@dataclass(frozen=True)
class Grids(ByRow):
    """Grids of likelihoods; all arrays are ``(U,)``.

    Attributes
    ----------
    low, high : array
        Ends of the truth.
    mode, top, width : array
        Where each likelihood is largest, its logarithm there, and how far off it is half a nat
        less.
    t_low, t_high : array
        Ends of its grid.
    log_norm, mean, variance : array
        Log of its integral over the truth, and moments of the truth if nothing else is known.
    """

    low: Array
    high: Array
    mode: Array
    top: Array
    width: Array
    t_low: Array
    t_high: Array
    log_norm: Array
    mean: Array
    variance: Array

    def points(self) -> tuple[Array, Array]:
        """Return truths ``(U, G)``, and what a sum over them weighs each with."""
        span = (self.t_high - self.t_low)[:, None]
        t = self.t_low[:, None] + span * np.linspace(0.0, 1.0, POINTS)
        v = self.mode[:, None] + self.width[:, None] * np.sinh(t)
        v = np.clip(v, self.low[:, None], self.high[:, None])
        return v, self.width[:, None] * np.cosh(t) * span * SIMPSON / (POINTS - 1)

    def masses(self, log_l: LogLikelihood) -> tuple[Array, Array]:
        """Return truths ``(U, G)`` and their shares of the likelihood's integral."""
        v, weights = self.points()
        return v, np.exp(log_l(v) - self.log_norm[:, None]) * weights


@dataclass(frozen=True)
class Measuring:
    """How values are measured, each by itself; arrays of one shape go in, and one comes out.

    Attributes
    ----------
    log_prob : callable
        Takes ``w``, ``v`` and the parameters by name.
    simulate : callable
        Takes ``v``, a numpy generator, and the parameters by name.
    advice : str
        What to do about a likelihood without an integral over the truth.
    """

    log_prob: Callable[..., Any]
    simulate: Callable[..., Any]
    advice: str = "Say ends=(low, high) of the truth, or leave that row out."


@dataclass(frozen=True)
class ValueLikelihoods:
    """Different likelihoods, numbered; all arrays are ``(U,)``.

    Attributes
    ----------
    measuring : Measuring
        How values are measured.
    w, parameters : array, dict of array
        What was measured, and what else the likelihood depends on.
    low, high : array
        Ends of the truth.
    where : array
        ``(U, 2)``: a row and a column that have the likelihood, for messages.
    """

    measuring: Measuring
    w: Array
    parameters: Mapping[str, Array]
    low: Array
    high: Array
    where: IntArray
    _gaussians: dict[int, tuple[Table, IntArray]] = field(
        default_factory=dict, init=False, compare=False
    )

    def __len__(self) -> int:
        return len(self.w)

    def __getitem__(self, which: IntArray | slice) -> "ValueLikelihoods":
        return replace(
            self,
            w=self.w[which],
            parameters={name: value[which] for name, value in self.parameters.items()},
            low=self.low[which],
            high=self.high[which],
            where=self.where[which],
        )

    def log_prob(self, which: IntArray, v: Array) -> Array:
        """Log density of truths ``v`` by likelihoods ``which``, of one shape, within the ends."""
        return self._log_l(which, v) - self.grids.log_norm[which]

    def simulate(self, v: Array, rng: np.random.Generator) -> Array:
        """Measure anew the truth ``v`` of each likelihood."""
        v = np.clip(v, self.low, self.high)
        measured = np.asarray(self.measuring.simulate(v, rng, **self.parameters), dtype=np.float64)
        refuse_if(
            measured.shape != v.shape or np.isnan(measured).any(),
            f"Expected simulate to return numbers of the shape of v, {v.shape}; got shape "
            f"{measured.shape}{' with NaN' if np.isnan(measured).any() else ''}.",
        )
        return measured

    def quantiles(self, which: IntArray, share: Array) -> Array:
        """Truths ``(K, *S)`` at shares of the mass of likelihoods ``which``, ``(*S)``."""
        used, number = np.unique(which, return_inverse=True)
        flat, number = share.reshape(len(share), -1), number.reshape(-1)
        found = np.empty(flat.shape)
        order = np.argsort(number, kind="stable")
        edges = np.searchsorted(number[order], np.arange(len(used) + 1))
        for start in range(0, len(used), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            v, mass = self.grids[used[some]].masses(self[used[some]].by_row)
            height = mass / SIMPSON
            below = np.cumsum(0.5 * (height[:, 1:] + height[:, :-1]), axis=1)
            for i in range(len(v)):
                mine = order[edges[start + i] : edges[start + i + 1]]
                found[:, mine] = np.interp(flat[:, mine], np.r_[0.0, below[i] / below[i, -1]], v[i])
        return found.reshape(share.shape)

    @cached_property
    def grids(self) -> Grids:
        """Modes, widths, norms and moments."""
        pieces = [find_grids(self[i : i + AT_ONCE]) for i in range(0, len(self), AT_ONCE)]
        columns = zip(*(vars(each).values() for each in pieces), strict=True)
        return Grids(*map(np.concatenate, columns))

    def refuse_endless(self, bad: BoolArray, what: str = "that falls off nowhere") -> None:
        """Refuse likelihoods without an integral over the truth."""
        if bad.any():
            number = int(bad.argmax())
            row, column = self.where[number]
            raise ValueError(
                "Expected a likelihood of w with an integral over the truth; got one "
                f"{what}, for {self.w[number]:g} in row {row}, column {column}. "
                f"{self.measuring.advice}"
            )

    def gaussians(self, parts: int) -> tuple[Table, IntArray]:
        """Return Gaussians of ``(v - mode) / width``, and which of them belong to each likelihood.

        The first are weights, means and variances, ``(S, J)``, folded at the ends.
        """
        if parts not in self._gaussians:
            first, which = self._alike
            grids = self.grids[first]
            v, mass = grids.masses(self[first].by_row)
            low, high = ((end - grids.mode) / grids.width for end in (grids.low, grids.high))
            # Simpson's weights alternate, those of every fourth point do not.
            even = mass[:, ::EVERY] / SIMPSON[::EVERY]
            z = (v[:, ::EVERY] - grids.mode[:, None]) / grids.width[:, None]
            self._gaussians[parts] = fit_folded(z, even, low, high, parts), which
        return self._gaussians[parts]

    @cached_property
    def _alike(self) -> tuple[IntArray, IntArray]:
        """Numbers of likelihoods that differ in shape, and which of these each is like."""
        grids, number = self.grids, np.arange(len(self))
        v = grids.mode[:, None] + grids.width[:, None] * PROFILE
        v = np.clip(v, self.low[:, None], self.high[:, None])
        fall = self._log_l(number[:, None].repeat(len(PROFILE), 1), v) - grids.top[:, None]
        ends = np.stack([(end - grids.mode) / grids.width for end in (self.low, self.high)], 1)
        profile = np.concatenate([np.maximum(fall, -50.0), np.clip(ends, -50.0, 50.0)], axis=1)
        keys = np.round(profile / ALIKE).astype(np.int64)
        _, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        return first, which.reshape(-1)

    def by_row(self, v: Array) -> Array:
        """Log-likelihoods ``(U, G)`` of a row of truths each."""
        return self._log_l(np.arange(len(self))[:, None].repeat(v.shape[1], axis=1), v)

    def _log_l(self, which: IntArray, v: Array) -> Array:
        """Log-likelihood as the function of ``measuring`` gives it, checked."""
        own = {name: value[which] for name, value in self.parameters.items()}
        with np.errstate(all="ignore"):
            found = self.measuring.log_prob(self.w[which], v, **own)
        try:
            log_p = np.asarray(found, dtype=np.float64)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"Expected log_prob to return numbers; got {found!r}.") from error
        refuse_if(
            log_p.shape != v.shape,
            "Expected log_prob to return a number for each value of v, which here has shape "
            f"{v.shape}; got shape {log_p.shape}. Values of a row must be independent given "
            "the truth: log_prob sees them one by one, as arrays w and v of one shape.",
        )
        bad = np.isnan(log_p) | (log_p == np.inf)
        if bad.any():
            position = tuple(np.argwhere(bad)[0])
            row, column = self.where[which[position]]
            raise ValueError(
                f"Expected log_prob to return numbers, or minus infinity; got {log_p[position]:g} "
                f"for w = {self.w[which[position]]:g} (row {row}, column {column}) and "
                f"v = {v[position]:g}."
            )
        return log_p


def different(
    measuring: Measuring, w: Array, parameters: Mapping[str, Array], low: Any, high: Any
) -> tuple[ValueLikelihoods, IntArray]:
    """Return the different likelihoods among values ``(N, M)``, and which of them each has.

    Parameters are of the same shape, ends of one that fits it.
    """
    columns = [np.broadcast_to(x, w.shape) for x in (w, *parameters.values(), low, high)]
    numbers = np.zeros(w.size, np.int64)
    for column in columns:  # one by one, which is much quicker than rows of all
        _, of_column = np.unique(column, return_inverse=True)
        joined = numbers * (of_column.max(initial=0) + 1) + of_column.reshape(-1)
        _, first, numbers = np.unique(joined, return_index=True, return_inverse=True)
    flat = [column.reshape(-1)[first] for column in columns]
    own = dict(zip(parameters, flat[1:-2], strict=True))
    where = np.stack(np.unravel_index(first, w.shape), -1)
    laws = ValueLikelihoods(measuring, flat[0], own, flat[-2], flat[-1], where)
    return laws, numbers.reshape(w.shape)


# -- grids ----------------------------------------------------------------------------------------


def find_grids(laws: ValueLikelihoods) -> Grids:
    """Look for the mass of likelihoods of one bump each, between the ends of the truth."""
    log_l, low, high = laws.by_row, laws.low, laws.high
    mode, top = _modes(laws)
    room = {-1.0: mode - low, 1.0: high - mode}
    widths = {side: _fallen(log_l, mode, top, side, WIDTH, room[side]) for side in room}
    # A side that ends before the likelihood has fallen says nothing of the width.
    sides = np.stack([np.where(widths[side] < room[side], widths[side], np.nan) for side in room])
    flat = np.isnan(sides).all(0)
    sides[:, flat] = 0.5 * (high - low)[flat]
    laws.refuse_endless(flat & ~np.isfinite(high - low))
    width = np.nanmean(sides, axis=0)
    reach = {side: _fallen(log_l, mode, top, side, NOTHING, room[side]) for side in room}
    for far in reach.values():
        laws.refuse_endless(~(far <= FARTHEST * width))
    t_low, t_high = -np.arcsinh(reach[-1.0] / width), np.arcsinh(reach[1.0] / width)
    grids = Grids(low, high, mode, top, width, t_low, t_high, top, mode, width)
    v, weights = grids.points()
    mass = np.exp(log_l(v) - top[:, None]) * weights
    total = mass.sum(1)
    mean = (mass * v).sum(1) / total
    return replace(
        grids,
        log_norm=top + np.log(total),
        mean=mean,
        variance=(mass * np.square(v - mean[:, None])).sum(1) / total,
    )


def _modes(laws: ValueLikelihoods) -> tuple[Array, Array]:
    """Find the largest value of each by a scan over all sizes, and closer looks around it."""
    v = _scan(laws.low, laws.high, laws.w)
    row = np.arange(len(v))
    for _ in range(ZOOMS):
        value = laws.by_row(v)
        best = value.argmax(1)
        mode, top = v[row, best], value[row, best]
        laws.refuse_endless(np.isneginf(top), "that is zero for every truth")
        left, right = v[row, np.maximum(best - 1, 0)], v[row, np.minimum(best + 1, v.shape[1] - 1)]
        v = left[:, None] + (right - left)[:, None] * np.linspace(0.0, 1.0, ZOOM_POINTS)
        v[:, 0], v[:, -1] = left, right
    return mode, top


def _scan(low: Array, high: Array, near: Array) -> Array:
    """Return truths ``(U, G)`` of all sizes between the ends, or about ``near``, in order."""
    sizes, low, high, near = _sizes(DECADES), low[:, None], high[:, None], near[:, None]
    small = 0.5 * _sizes(0)
    bounded_low, bounded_high = np.isfinite(low), np.isfinite(high)
    kinds = [
        (~bounded_low & ~bounded_high, lambda: near + np.r_[-sizes[::-1], 0.0, sizes]),
        (bounded_low & ~bounded_high, lambda: low + sizes),
        (bounded_high & ~bounded_low, lambda: high - sizes[::-1]),
        (bounded_low & bounded_high, lambda: np.concatenate(
            [low + small * (high - low), high - small[-2::-1] * (high - low)], axis=1)),
    ]  # fmt: skip
    with np.errstate(invalid="ignore"):  # of a kind that a likelihood is not
        used = [(use, points()) for use, points in kinds if use.any()]
    v = np.zeros((len(low), max(points.shape[1] for _, points in used)))
    for use, points in used:
        last = points[:, -1:].repeat(v.shape[1] - points.shape[1], axis=1)
        v = np.where(use, np.concatenate([points, last], axis=1), v)
    return np.clip(v, low, high)


def _sizes(largest: int) -> Array:
    """Return powers of ten and numbers between them, from the smallest on."""
    return 10.0 ** np.linspace(-DECADES, largest, (DECADES + largest) * PER_DECADE + 1)


def _fallen(
    log_l: LogLikelihood, mode: Array, top: Array, side: float, by: float, room: Array
) -> Array:
    """Say how far on one side of the mode a log-likelihood has fallen by so much.

    That is the way to the end of the truth, if it has not by then; infinite if it never does.
    """
    steps = np.minimum(_sizes(DECADES), room[:, None])
    fallen = log_l(mode[:, None] + side * steps) < top[:, None] - by
    fallen &= np.abs(mode[:, None] + side * steps - mode[:, None]) > 0
    ever, first = fallen.any(1), fallen.argmax(1)
    row = np.arange(len(steps))
    near, far = steps[row, np.maximum(first - 1, 0)], steps[row, first]
    for _ in range(HALVINGS):
        middle = 0.5 * (near + far)
        beyond = log_l((mode + side * middle)[:, None])[:, 0] < top - by
        near, far = np.where(beyond, near, middle), np.where(beyond, middle, far)
    return np.where(ever, far, room)
