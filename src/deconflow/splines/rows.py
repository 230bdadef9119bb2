r"""Rows as mixtures of Gaussians: what a likelihood on a grid is made of, and bins of them.

Row i says :math:`p(w_i \mid v) = \sum_j a_{ij} N(w_i - b_{ij}; v, S_{ij})`, with one Gaussian for
Gaussian noise. Many rows on a line are put into bins: laws of one form in classes whose widths
differ by a tenth, in each at points a fifth of the noise apart. A row is divided between the
neighbouring points so that its mean stays; that adds :math:`h^2 / 6` to its variance, on average,
which is taken off the noise.

The truth may be where the rows are, widened by two errors, within bounds. Rows with far more noise
than others say little about where the truth ends: they count where a standard normal truth would
put them, at :math:`w / (1 + s^2)` with an error of :math:`s / \sqrt{1 + s^2}`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array, BoolArray, IntArray
from deconflow.observations import Observations

#: As many rows on a line are not put into bins.
FEW_ROWS = 1_500
#: Logarithm of the ratio of two neighbouring widths of noise.
CLASS_RATIO = 0.1
BINS_PER_SD = 5.0
#: Variances count as no larger.
LARGEST = 1e200
#: Gaussians of less weight in every row are left out, per number of columns: on a plane a law has
#: up to 256, most of them negligible.
SMALLEST_WEIGHT = {1: 1e-9, 2: 1e-4}
ERRORS = 2.0
#: Rows with at most twice the noise of this share of the rows, or less than the truth's scale,
#: are taken at their word; never those with more noise than so many scales.
PRECISE, TWICE, WIDEST = 0.05, 2.0, 20.0
#: Scales of the truth beyond which a row is out of a grid's reach.
FARTHEST = 40.0
#: A domain reaches at least so many scales to both sides.
LEAST = 1.0


@dataclass(frozen=True)
class Rows:
    """Rows in standardised units, or bins of them.

    Attributes
    ----------
    count : array
        ``(n,)`` weights.
    weights : array
        ``(n, J)`` weights of each row's Gaussians.
    centres : array
        ``(n, J, D)``: measurements less the means of the noise's Gaussians.
    covariances : array
        ``(n, J, D, D)``.
    observed : array or None
        ``(n, D)``; None for complete rows.
    """

    count: Array
    weights: Array
    centres: Array
    covariances: Array
    observed: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.count)

    def __getitem__(self, which: NDArray | list[int]) -> "Rows":
        arrays: list[Any] = [None if x is None else x[which] for x in vars(self).values()]
        return Rows(*arrays)

    @property
    def location(self) -> Array:
        """Mean of each row's Gaussians, ``(n, D)``: where it says the truth is."""
        return np.einsum("nj,njd->nd", self.weights, self.centres)

    @property
    def sd(self) -> Array:
        """Widths of the noise's core, ``(n, D)``: from the mean precision of its Gaussians."""
        variance = np.diagonal(self.covariances, axis1=2, axis2=3)
        with np.errstate(divide="ignore"):
            return np.sqrt(1 / np.einsum("nj,njd->nd", self.weights, 1 / variance))


def as_rows(data: Observations) -> Rows:
    """Write rows out, each with its own noise; what was not observed has mean 0 and variance 1."""
    w = np.asarray(data.w)
    n, dim = w.shape
    parts = data.noise.as_mixture().take(slice(None))
    kept = parts.weights.max(0) > SMALLEST_WEIGHT[dim]
    weights, covariances = parts.weights[:, kept], parts.covariances[:, kept]
    if parts.diagonal:
        covariances = covariances[..., None] * np.eye(dim)
    shape = (n, int(kept.sum()), dim)
    weights = np.broadcast_to(weights / weights.sum(1, keepdims=True), shape[:2])
    centres = np.broadcast_to(
        w[:, None] - (0.0 if parts.means is None else parts.means[:, kept]), shape
    )
    covariances = np.broadcast_to(covariances, (*shape, dim))
    count = np.ones(n) if data.weights is None else np.asarray(data.weights)
    if data.observed is None:
        return Rows(count, weights, centres, covariances)
    observed = np.asarray(data.observed)
    seen = observed[:, None]
    both = seen[..., None] & seen[..., None, :]
    covariances = np.where(both, covariances, np.eye(dim))
    return Rows(count, weights, np.where(seen, centres, 0.0), covariances, observed)


def bins_on_a_line(rows: Rows, finest: float) -> Rows:
    """Put rows whose laws have a form in common into bins, no finer than ``finest``.

    Rows stay as they are where forms are many: fewer than twenty rows each.
    """
    if len(rows) <= FEW_ROWS:
        return rows
    shape, size = laws_of(rows)
    one_form = rows.weights.shape[1] == 1
    form = np.zeros(len(rows), np.int64) if one_form else alike(shape)
    if form.max() + 1 > len(rows) / 20:
        return rows
    made = []
    for number in range(form.max() + 1):
        mine = np.flatnonzero(form == number)
        made += _in_classes(rows[mine], size[mine], finest)
    return joined(made)


def _in_classes(rows: Rows, size: Array, finest: float) -> list[Rows]:
    """Bin rows of one form in classes of its size, each row divided between the nearest two."""
    place = np.log(np.maximum(size, 0.1 * finest)) / CLASS_RATIO
    place -= place.min()
    lower = np.floor(place)
    upper_share = place - lower
    number = np.concatenate([lower, lower + 1])
    share = np.concatenate([1 - upper_share, upper_share])
    row = np.tile(np.arange(len(rows)), 2)
    used = share > 0
    number, share, row = number[used], share[used], row[used]
    order = np.argsort(number, kind="stable")
    edges = np.flatnonzero(np.diff(number[order])) + 1
    head = int(size.argmax())
    return [
        _in_bins(rows, head, size, row[mine], share[mine], finest)
        for mine in np.split(order, edges)
    ]


def _in_bins(
    rows: Rows, head: int, size: Array, which: IntArray, share: Array, finest: float
) -> Rows:
    """Bin rows of about one size, given the ``head`` of their form and what of each to take."""
    weight = share * rows.count[which]
    typical = float(np.sqrt(np.average(np.square(size[which]), weights=weight)))
    ratio = typical / size[head] if size[head] > 0 else 1.0
    step = max(ratio * float(rows[[head]].sd[0, 0]) / BINS_PER_SD, finest)
    places, counts = divided(rows.centres[which, 0], weight, np.array([step]))
    offset = ratio * (rows.centres[head] - rows.centres[head, :1])
    variance = np.maximum(ratio**2 * rows.covariances[head] - step**2 / 6, 0.0)
    n, parts = len(places), rows.weights.shape[1]
    return Rows(
        counts,
        np.broadcast_to(rows.weights[head], (n, parts)),
        places[:, None] + offset,
        np.broadcast_to(variance, (n, *variance.shape)),
    )


def joined(parts: list[Rows]) -> Rows:
    """Put rows one after another."""
    columns: Any = zip(*(vars(part).values() for part in parts), strict=True)
    arrays: list[Any] = [None if each[0] is None else np.concatenate(each) for each in columns]
    return Rows(*arrays)


def laws_of(rows: Rows) -> tuple[Array, Array]:
    """Form of each row's law ``(n, F)``, in units of its size, and this size ``(n,)``.

    The size is the widest standard deviation of its Gaussians: that of other rows does not matter,
    however wide they are.
    """
    n = len(rows)
    flat = np.abs(rows.covariances).reshape(n, -1)
    size = np.sqrt(np.minimum(flat.max(1), LARGEST))
    unit = np.where(size > 0, size, 1.0)[:, None]
    offsets = (rows.centres - rows.centres[:, :1]).reshape(n, -1) / unit
    spreads = np.minimum(rows.covariances.reshape(n, -1), LARGEST) / unit**2
    return np.concatenate([rows.weights, offsets, spreads], axis=1), size


def alike(values: Array) -> IntArray:
    """Return the number of the kind of each row: those that agree to nine digits are of one."""
    _, which = np.unique(np.round(values, 9), axis=0, return_inverse=True)
    return which.ravel()


def divided(w: Array, weight: Array, step: Array) -> tuple[Array, Array]:
    """Points ``(n, D)`` with steps between them, and what of the rows' weights goes to each.

    A row is divided among the corners of the cell around it, so that its mean stays.
    """
    start = w.min(0)
    place = (w - start) / step
    lower = np.floor(place).astype(np.int64)
    shares = np.stack([lower + 1 - place, place - lower])
    corners = np.indices((2,) * w.shape[1]).reshape(w.shape[1], -1).T
    shape = tuple(lower.max(0) + 2)
    numbers = [np.ravel_multi_index(tuple((lower + corner).T), shape) for corner in corners]
    counts = [weight * shares[corner, :, np.arange(len(corner))].prod(0) for corner in corners]
    found, which = np.unique(np.concatenate(numbers), return_inverse=True)
    count = np.bincount(which, np.concatenate(counts)).astype(np.float64)
    found, count = found[count > 0], count[count > 0]
    return start + step * np.stack(np.unravel_index(found, shape), -1), count


@dataclass(frozen=True)
class Domain:
    """Ends of the truth in standardised units.

    Attributes
    ----------
    low, high : array
        ``(D,)``.
    low_bound, high_bound : array
        ``(D,)`` bounds of the truth; infinite where there is none.
    far : array
        Rows out of reach.
    """

    low: Array
    high: Array
    low_bound: Array
    high_bound: Array
    far: BoolArray


def domain_of(rows: Rows, low_bound: Array, high_bound: Array) -> Domain:
    """Return the domain of some rows, in standardised units."""
    place, sd = rows.location, np.where(np.isfinite(rows.sd), rows.sd, 1e150)
    seen = np.ones(place.shape, bool) if rows.observed is None else rows.observed
    precise = [np.quantile(s[use], PRECISE) for s, use in zip(sd.T, seen.T, strict=True)]
    trusted = sd <= np.clip(TWICE * np.array(precise), 1.0, WIDEST)
    shrunk = 1 / (1 + np.square(np.where(trusted, 0.0, sd)))
    centre, error = place * shrunk, sd * np.sqrt(shrunk)
    near = ~seen | (np.abs(centre) <= FARTHEST)
    use = seen & near
    low = np.where(use, centre - ERRORS * error, np.inf).min(0)
    high = np.where(use, centre + ERRORS * error, -np.inf).max(0)
    low = np.clip(np.minimum(low, -LEAST), low_bound, None)
    high = np.clip(np.maximum(high, LEAST), None, high_bound)
    return Domain(low, high, low_bound, high_bound, np.atleast_1d(~near.all(1)))
