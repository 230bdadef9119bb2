r"""Where likelihoods of one truth have their mass: their modes and widths, and grids over them.

A grid is :math:`v = m + s \sinh t` about the mode ``m``, as fine as the width ``s`` near it and
coarse far away, up to the ends of the truth.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from deconflow._types import Array, BoolArray, IntArray

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


class EndlessError(ValueError):
    """A likelihood without an integral over the truth, or that is zero; with its number."""

    def __init__(self, number: int, *, zero: bool = False) -> None:
        self.number, self.zero = number, zero
        super().__init__(f"likelihood {number}")


@dataclass(frozen=True)
class Grids:
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

    def __getitem__(self, which: IntArray | slice) -> "Grids":
        return Grids(*(getattr(self, each.name)[which] for each in fields(self)))

    def points(self) -> tuple[Array, Array]:
        """Return truths ``(U, G)``, and what a sum over them weighs each with."""
        return _points(self.low, self.high, self.mode, self.width, self.t_low, self.t_high)

    def masses(self, log_l: LogLikelihood) -> tuple[Array, Array]:
        """Return truths ``(U, G)`` and their shares of the likelihood's integral."""
        v, weights = self.points()
        return v, np.exp(log_l(v) - self.log_norm[:, None]) * weights


def find_grids(log_l: LogLikelihood, low: Array, high: Array, near: Array) -> Grids:
    """Look for the mass of likelihoods of one bump each, between ends ``(U,)`` of the truth.

    Without ends the search begins at ``near``.
    """
    mode, top = _modes(log_l, low, high, near)
    room = {-1.0: mode - low, 1.0: high - mode}
    widths = {side: _fallen(log_l, mode, top, side, WIDTH, room[side]) for side in room}
    # A side that ends before the likelihood has fallen says nothing of the width.
    sides = np.stack([np.where(widths[side] < room[side], widths[side], np.nan) for side in room])
    flat = np.isnan(sides).all(0)
    sides[:, flat] = 0.5 * (high - low)[flat]
    _refuse(flat & ~np.isfinite(high - low))
    width = np.nanmean(sides, axis=0)
    reach = {side: _fallen(log_l, mode, top, side, NOTHING, room[side]) for side in room}
    for far in reach.values():
        _refuse(~(far <= FARTHEST * width))
    t_low, t_high = -np.arcsinh(reach[-1.0] / width), np.arcsinh(reach[1.0] / width)
    v, weights = _points(low, high, mode, width, t_low, t_high)
    mass = np.exp(log_l(v) - top[:, None]) * weights
    total = mass.sum(1)
    mean = (mass * v).sum(1) / total
    variance = (mass * np.square(v - mean[:, None])).sum(1) / total
    log_norm = top + np.log(total)
    return Grids(low, high, mode, top, width, t_low, t_high, log_norm, mean, variance)


def _points(
    low: Array, high: Array, mode: Array, width: Array, t_low: Array, t_high: Array
) -> tuple[Array, Array]:
    """Return the truths of grids, and the weights of Simpson's rule there."""
    span = (t_high - t_low)[:, None]
    t = t_low[:, None] + span * np.linspace(0.0, 1.0, POINTS)
    v = mode[:, None] + width[:, None] * np.sinh(t)
    v = np.clip(v, low[:, None], high[:, None])
    return v, width[:, None] * np.cosh(t) * span * SIMPSON / (POINTS - 1)


def _refuse(endless: BoolArray) -> None:
    if endless.any():
        raise EndlessError(int(np.flatnonzero(endless)[0]))


def _modes(log_l: LogLikelihood, low: Array, high: Array, near: Array) -> tuple[Array, Array]:
    """Find the largest value of each by a scan over all sizes, and closer looks around it."""
    v = _scan(low, high, near)
    row = np.arange(len(v))
    for _ in range(ZOOMS):
        value = log_l(v)
        best = value.argmax(1)
        if np.isneginf(value[row, best]).any():
            raise EndlessError(int(np.flatnonzero(np.isneginf(value[row, best]))[0]), zero=True)
        mode, top = v[row, best], value[row, best]
        left, right = v[row, np.maximum(best - 1, 0)], v[row, np.minimum(best + 1, v.shape[1] - 1)]
        v = left[:, None] + (right - left)[:, None] * np.linspace(0.0, 1.0, ZOOM_POINTS)
        v[:, 0], v[:, -1] = left, right
    return mode, top


def _scan(low: Array, high: Array, near: Array) -> Array:
    """Return truths ``(U, G)`` of all sizes between the ends, in order."""
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
    count = (DECADES + largest) * PER_DECADE + 1
    return np.asarray(10.0 ** np.linspace(-DECADES, largest, count))


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
    return np.where(ever, far, np.where(np.isfinite(room), room, np.inf))
