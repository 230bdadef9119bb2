r"""Rows as mixtures of Gaussians: what a likelihood on a grid is made of, and bins of them.

Row i has :math:`p(w_i \mid v) = \sum_j a_{ij} N(w_i - b_{ij}; v, S_{ij})`, with one Gaussian for
Gaussian noise. Many rows on a line are put into bins: laws of one form in classes whose widths
differ by a tenth, in each at points a fifth of the noise apart. On a plane rows with the same noise
are, at points a third of it apart. A row is divided between the neighbouring points so that its
mean stays; that adds :math:`h^2 / 6` to its variance, on average, which is taken off the noise.

The truth may be where the rows are, widened by two errors, within bounds. Rows with far more noise
than others say little about where the truth ends: they count where a standard normal truth would
put them, at :math:`w / (1 + s^2)` with an error of :math:`s / \sqrt{1 + s^2}`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array, BoolArray, IntArray
from deconflow.observations import Observations

#: As many rows are not put into bins, and bins per width of the noise, per number of columns.
FEW_ROWS, BINS_PER_SD = {1: 1_500, 2: 1_000}, {1: 5.0, 2: 3.0}
#: Logarithm of the ratio of two neighbouring widths of noise.
CLASS_RATIO = 0.1
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
    observed : array
        ``(n, D)`` flags.
    """

    count: Array
    weights: Array
    centres: Array
    covariances: Array
    observed: BoolArray

    def __len__(self) -> int:
        return len(self.count)

    def __getitem__(self, which: NDArray | list[int] | slice) -> "Rows":
        return Rows(*(x[which] for x in vars(self).values()))

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
    n, dim = data.w.shape
    parts = data.noise.as_mixture().take(slice(None))
    kept = parts.weights.max(0) > SMALLEST_WEIGHT[dim]
    weights, covariances = parts.weights[:, kept], parts.covariances[:, kept]
    if covariances.ndim == 3:
        covariances = covariances[..., None] * np.eye(dim)
    weights = np.broadcast_to(weights / weights.sum(1, keepdims=True), (n, weights.shape[1]))
    observed = np.ones((n, dim), bool) if data.observed is None else data.observed
    seen = observed[:, None]
    centres = data.w[:, None] - (0.0 if parts.means is None else parts.means[:, kept])
    return Rows(
        np.ones(n) if data.weights is None else data.weights,
        weights,
        np.where(seen, np.broadcast_to(centres, (*weights.shape, dim)), 0.0),
        np.where(seen[..., None] & seen[..., None, :], covariances, np.eye(dim)),
        observed,
    )


def binned(rows: Rows, finest: Array) -> Rows:
    """Put rows into bins, no finer than ``finest``, if there are at least twenty of a kind.

    On a line laws of one form are of one kind; on a plane rows with the same noise are, and with
    the same missing column.
    """
    dim = len(finest)
    if len(rows) <= FEW_ROWS[dim]:
        return rows
    form, size = _laws_of(rows)
    if dim > 1:
        form = np.concatenate([form, np.log(size)[:, None], rows.observed], 1)
    elif rows.weights.shape[1] == 1:
        form = form[:, :1]  # exact rows, too
    _, kind = np.unique(np.round(form, 9), axis=0, return_inverse=True)
    if kind.max() + 1 > len(rows) / 20:
        return rows
    made = []
    for number in range(kind.max() + 1):
        mine = np.flatnonzero(kind.ravel() == number)
        some = rows[mine]
        made += [_on_a_plane(some, finest)] if dim > 1 else _in_classes(some, size[mine], finest)
    return Rows(*map(np.concatenate, zip(*(vars(part).values() for part in made), strict=True)))


def _in_classes(rows: Rows, size: Array, finest: Array) -> list[Rows]:
    """Bin rows of one form in classes of its size, each row divided between the nearest two."""
    place = np.log(np.maximum(size, 0.1 * finest)) / CLASS_RATIO
    place -= place.min()
    lower = np.floor(place)
    number = np.concatenate([lower, lower + 1])
    share = np.concatenate([1 - (place - lower), place - lower])
    used = np.flatnonzero(share)
    order = used[np.argsort(number[used], kind="stable")]
    classes = np.split(order, np.flatnonzero(np.diff(number[order])) + 1)
    head = int(size.argmax())
    return [_on_a_line(rows, head, size, mine % len(rows), share[mine], finest) for mine in classes]


def _on_a_line(
    rows: Rows, head: int, size: Array, which: IntArray, share: Array, finest: Array
) -> Rows:
    """Bin rows of about one size, given the ``head`` of their form and what of each to take."""
    weight = share * rows.count[which]
    typical = float(np.sqrt(np.average(np.square(size[which]), weights=weight)))
    ratio = typical / size[head] if size[head] > 0 else 1.0
    step = np.maximum(ratio * rows[[head]].sd[0] / BINS_PER_SD[1], finest)
    places, counts = _divided(rows.centres[which, 0], weight, step)
    offset = ratio * (rows.centres[head] - rows.centres[head, :1])
    variance = np.maximum(ratio**2 * rows.covariances[head] - step**2 / 6, 0.0)
    return _bins(rows, head, counts, places[:, None] + offset, variance)


def _on_a_plane(rows: Rows, finest: Array) -> Rows:
    """Bin rows with the same noise."""
    covariance = rows.covariances[0]
    precisions = np.linalg.inv(covariance + np.diag(finest**2))
    alone = 1 / np.diagonal(precisions, axis1=1, axis2=2).max(0)  # widths given the other value
    step = np.maximum(np.sqrt(alone) / BINS_PER_SD[2], finest)
    places, counts = _divided(rows.centres[:, 0], rows.count, step)
    lost = np.diag(np.where(rows.observed[0], np.square(step) / 6, 0.0))
    less = np.where(np.linalg.eigvalsh(covariance - lost).min(-1) > 0, 1.0, 0.0)[:, None, None]
    offset = rows.centres[0] - rows.centres[0, :1]
    return _bins(rows, 0, counts, places[:, None] + offset, covariance - less * lost)


def _bins(rows: Rows, head: int, counts: Array, centres: Array, covariances: Array) -> Rows:
    """Bins with the weights and the missing values of one row."""
    same = (rows.weights[head], covariances, rows.observed[head])
    weights, covariances, observed = (
        np.broadcast_to(each, (len(counts), *each.shape)) for each in same
    )
    return Rows(counts, weights, centres, covariances, observed)


def _laws_of(rows: Rows) -> tuple[Array, Array]:
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


def _divided(w: Array, weight: Array, step: Array) -> tuple[Array, Array]:
    """Points ``(n, D)`` with steps between them, and what of the rows' weights goes to each.

    A row is divided among the corners of the cell around it, so that its mean stays.
    """
    start, dim = w.min(0), len(step)
    place = (w - start) / step
    lower = np.floor(place).astype(np.int64)
    shares = np.stack([lower + 1 - place, place - lower])
    corners = np.indices((2,) * dim).reshape(dim, -1).T
    shape = tuple(lower.max(0) + 2)
    numbers = [np.ravel_multi_index(tuple((lower + corner).T), shape) for corner in corners]
    counts = [weight * shares[corner, :, np.arange(dim)].prod(0) for corner in corners]
    found, which = np.unique(np.concatenate(numbers), return_inverse=True)
    count = np.bincount(which, np.concatenate(counts)).astype(np.float64)
    found, count = found[count > 0], count[count > 0]
    return start + step * np.stack(np.unravel_index(found, shape), -1), count


def domain_of(rows: Rows, bounds: Array) -> tuple[Array, BoolArray]:
    """Ends ``(2, D)`` of the truth within its bounds, and which rows are out of their reach."""
    place, sd = rows.location, np.where(np.isfinite(rows.sd), rows.sd, 1e150)
    seen = zip(sd.T, rows.observed.T, strict=True)
    precise = np.array([np.quantile(s[use], PRECISE) for s, use in seen])
    trusted = sd <= np.clip(TWICE * precise, 1.0, WIDEST)
    shrunk = 1 / (1 + np.square(np.where(trusted, 0.0, sd)))
    centre, error = place * shrunk, sd * np.sqrt(shrunk)
    near = ~rows.observed | (np.abs(centre) <= FARTHEST)
    use = rows.observed & near
    low = np.where(use, centre - ERRORS * error, -LEAST).min(0, initial=-LEAST)
    high = np.where(use, centre + ERRORS * error, LEAST).max(0, initial=LEAST)
    return np.clip([low, high], *bounds), np.any(~near, axis=1)
