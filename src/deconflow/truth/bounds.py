r"""Bounds of the truth, by mirrors.

Mirrored at its bound, the truth has a density without an edge, and a mirrored row
:math:`2a - w = (2a - v) - n` is a row of that density with noise mirrored as well. So any estimator
is fitted to the rows and their mirror images, and what it has learned is folded back at the bound:

.. math:: p(v) = \sum_s g(R_s v), \quad v \text{ within the bounds},

over the reflections :math:`R_s`. Folding keeps all the mass: nothing has to be normalised.
"""

from dataclasses import dataclass, replace
from itertools import product
from numbers import Real
from typing import Any

import numpy as np

from deconflow._types import Array, BoolArray, IntArray
from deconflow.checks import refuse_if
from deconflow.noise import Ends, GaussianNoise, Noise
from deconflow.observations import Observations

#: Images per row; of more that there could be, each row gets some by chance.
MOST_MIRRORS = 9
MOST_REFLECTIONS = 128
#: Between two bounds reflections repeat; so many of them to either side hold all the mass.
WRAPS = 2
#: Errors by which a measurement may lie beyond a bound of its truth; ten times that for laws that
#: may have long tails.
FARTHEST = 8.0
#: How closely the densities of symmetric noise agree.
SYMMETRIC = 1e-6


@dataclass(frozen=True)
class Bounds:
    """Ends of the truth, ``(D,)`` each, infinite where there is none."""

    lower: Array
    upper: Array

    @property
    def columns(self) -> IntArray:
        """Columns with a bound."""
        return np.flatnonzero(np.isfinite(self.lower) | np.isfinite(self.upper))

    def marginal(self, columns: IntArray) -> "Bounds":
        """Return the bounds of some columns, in the order given."""
        return Bounds(self.lower[columns], self.upper[columns])

    def in_units(self, location: Array, scale: Array) -> "Bounds":
        """Return the bounds of ``(v - location) / scale``."""
        return Bounds((self.lower - location) / scale, (self.upper - location) / scale)

    def inside(self, v: Array) -> BoolArray:
        """Say which points ``(..., D)`` are within, ends included."""
        return np.asarray(((v >= self.lower) & (v <= self.upper)).all(-1))

    def fold(self, v: Array) -> Array:
        """Fold points back to within the bounds."""
        folded = np.array(v, dtype=np.float64)
        for d in self.columns:
            low, high, x = self.lower[d], self.upper[d], folded[..., d]
            if np.isinf(high):
                folded[..., d] = low + np.abs(x - low)
            elif np.isinf(low):
                folded[..., d] = high - np.abs(x - high)
            else:
                along = np.mod(x - low, 2 * (high - low))
                folded[..., d] = low + np.minimum(along, 2 * (high - low) - along)
        return np.clip(folded, self.lower, self.upper)

    def with_ends(self, ends: Ends, names: list[str]) -> "Bounds":
        """Return the bounds where the truth has ends by what was measured; wider ones are refused.

        A bound that is not said is the end.
        """
        low, high = ends
        said_low, said_high = np.isfinite(self.lower), np.isfinite(self.upper)
        wider = (said_low & (self.lower < low)) | (said_high & (self.upper > high))
        for d in np.flatnonzero(wider).tolist():
            raise ValueError(
                f"Expected bounds of {names[d]} within {low[d]:g} and {high[d]:g}, where the truth "
                f"of what was measured ends; got {self.lower[d]:g} to {self.upper[d]:g}."
            )
        return Bounds(np.where(said_low, self.lower, low), np.where(said_high, self.upper, high))

    def refuse_many(self) -> None:
        """Raise for so many bounded columns that their reflections would fill the memory."""
        count = int(np.prod([len(self._of_column(d, WRAPS)) for d in range(len(self.lower))]))
        refuse_if(
            count > MOST_REFLECTIONS,
            f"Expected bounds with at most {MOST_REFLECTIONS} reflections, as two columns with "
            f"both ends or seven with one; got {count}. Leave out bounds that hardly matter.",
        )

    def reflections(self, wraps: int = WRAPS) -> list[tuple[Array, Array]]:
        """Return signs and shifts ``(D,)`` of all points that fold to one, the point first.

        Without ``wraps`` these are a row and its mirror images.
        """
        return [
            (np.array([sign for sign, _ in each]), np.array([shift for _, shift in each]))
            for each in product(*(self._of_column(d, wraps) for d in range(len(self.lower))))
        ]

    def _of_column(self, d: int, wraps: int) -> list[tuple[float, float]]:
        """Signs and shifts of a column: ``u = shift + sign * v``."""
        low, high = self.lower[d], self.upper[d]
        here = [(1.0, 0.0)]
        ends = [(-1.0, 2 * end) for end in (low, high) if np.isfinite(end)]
        if len(ends) < 2:
            return here + ends
        period = 2 * (high - low)
        for j in range(1, wraps + 1):
            here += [(1.0, j * period), (1.0, -j * period)]
            ends += [(-1.0, 2 * high + j * period), (-1.0, 2 * low - j * period)]
        return here + ends

    def mirrored(self, data: Observations, seed: int) -> Observations:
        """Return rows with their mirror images, each image in the group of its row."""
        images, n = np.array(self.reflections(0)), len(data)
        count = min(len(images), MOST_MIRRORS)
        chosen = np.tile(np.arange(count)[:, None], (1, n))
        if count < len(images):
            chosen = np.random.default_rng(seed).random((len(images), n)).argsort(axis=0)[:count]
        signs, shifts = np.swapaxes(images, 0, 1)[:, chosen.ravel()]
        groups = data.groups if data.groups is not None else np.arange(n)
        return in_units(replace(data, groups=groups)[np.tile(np.arange(n), count)], shifts, signs)

    def in_words(self, names: list[str]) -> list[str]:
        """Say for each bounded column where its truth ends."""
        said = []
        for d in self.columns:
            low, high = self.lower[d], self.upper[d]
            where = f"at least {low:g}" if np.isinf(high) else f"at most {high:g}"
            if np.isfinite([low, high]).all():
                where = f"between {low:g} and {high:g}"
            said.append(f"The true {names[d]} is {where}.")
        return said

    def check_rows(self, data: Observations, names: list[str], *, background: bool = False) -> None:
        """Raise for measurements that lie beyond a bound by far more than their errors.

        With a background these are its rows.
        """
        if data.projection is not None:
            return
        w = data.measured() - np.asarray(data.noise.mean())
        sd = np.sqrt(np.broadcast_to(np.asarray(data.noise.variance()), w.shape))
        middle = np.nanmedian(w, axis=0)
        # Chance moves the median, and so does skewness, which is no more than one error.
        unsure = FARTHEST * 1.25 * np.nanstd(w, axis=0) / np.sqrt((~np.isnan(w)).sum(0))
        lopsided = not data.noise.additive or not symmetric(data.noise)
        unsure = unsure + np.median(sd, axis=0) if lopsided else unsure
        beyond = (middle < self.lower - unsure) | (middle > self.upper + unsure)
        for d in np.flatnonzero(beyond).tolist():
            raise ValueError(
                f"Expected bounds that hold most of the truth; got {self.lower[d]:g} to "
                f"{self.upper[d]:g} for {names[d]}, whose median less the noise's mean is "
                f"{middle[d]:g}. Widen them."
            )
        if background:
            return
        farthest = FARTHEST if isinstance(data.noise, GaussianNoise) else 10 * FARTHEST
        far = np.maximum(self.lower - w, w - self.upper) > farthest * sd
        if far.any():
            row, d = (int(i) for i in np.argwhere(far)[0])
            end = self.lower[d] if w[row, d] < self.lower[d] else self.upper[d]
            raise ValueError(
                f"Expected measurements within {farthest:g} errors of the bounds; got "
                f"{names[d]} = {w[row, d]:.6g} +- {sd[row, d]:.3g} in row {row}, beyond {end:g} "
                f"({int(far.any(1).sum())} such rows). Widen the bounds, or drop these rows."
            )


def as_bounds(bounds: Any, names: list[str]) -> Bounds | None:
    """Check bounds by column; None if there are none.

    Parameters
    ----------
    bounds
        A dictionary by column name or number, a pair ``(low, high)`` for a single column, or a
        sequence or array with a pair, or None, per column. None as an end is no bound.
    names
        Names of the truth's columns.

    Examples
    --------
    >>> as_bounds({"x": (0, None)}, ["x", "y"]).lower
    array([  0., -inf])
    """
    if bounds is None:
        return None
    lower, upper = np.full(len(names), -np.inf), np.full(len(names), np.inf)
    pairs = _by_column(bounds, names)
    refuse_if(
        len({d for d, _ in pairs}) < len(pairs),
        f"Expected bounds of each column once; got {bounds!r}.",
    )
    for d, pair in pairs:
        lower[d], upper[d] = _pair(pair, bounds)
    found = Bounds(lower, upper)
    return found if len(found.columns) else None


def _by_column(bounds: Any, names: list[str]) -> list[tuple[int, Any]]:
    dim = len(names)
    if isinstance(bounds, dict):
        found = [(_column(key, names), pair) for key, pair in bounds.items()]
        return [(d, pair) for d, pair in found if pair is not None]
    refuse_if(
        not isinstance(bounds, list | tuple | np.ndarray) or getattr(bounds, "ndim", 1) == 0,
        "Expected bounds as a dictionary of pairs (low, high) by column, one pair, or one per "
        f"column; got {bounds!r}.",
    )
    if dim == 1 and len(bounds) == 2 and all(_is_end(end) for end in bounds):
        return [(0, bounds)]
    refuse_if(
        len(bounds) != dim,
        f"Expected bounds as a pair (low, high) for each of {dim} columns of w, or a "
        f"dictionary by column; got {bounds!r}.",
    )
    return [(d, pair) for d, pair in enumerate(bounds) if pair is not None]


def _column(key: Any, names: list[str]) -> int:
    # JSON has no other keys than text
    numbers: dict[Any, int] = {key: d for d in range(len(names)) for key in (d, str(d))}
    numbers |= {name: d for d, name in enumerate(names)}
    refuse_if(
        isinstance(key, bool) or key not in numbers,
        f"Expected bounds for columns among {', '.join(names)}; got {key!r}.",
    )
    return numbers[key]


def _is_end(end: Any) -> bool:
    return end is None or (isinstance(end, Real) and not isinstance(end, bool))


def _pair(pair: Any, bounds: Any) -> tuple[float, float]:
    whole = isinstance(pair, list | tuple | np.ndarray) and len(pair) == 2
    refuse_if(
        not whole or not all(_is_end(end) for end in pair),
        "Expected bounds as pairs (low, high) of numbers, None for no bound; "
        f"got {pair!r} in {bounds!r}.",
    )
    low = -np.inf if pair[0] is None else float(pair[0])
    high = np.inf if pair[1] is None else float(pair[1])
    refuse_if(
        not low < high,
        f"Expected bounds with low below high; got {pair!r} in {bounds!r}.",
    )
    return low, high


def in_units(data: Observations, location: Array, scale: Array) -> Observations:
    r"""Return the rows of ``z`` with :math:`v = m + s z` for ``m`` and ``s`` of each row.

    A negative scale makes a mirror image. Noise that is neither Gaussian nor symmetric, and rows
    with a projection, stay as they are and get a projection that holds the scale.

    Parameters
    ----------
    data
        Rows of ``v``.
    location, scale
        ``(N, D)``: ``m`` and ``s``.
    """
    noise = data.noise.mirrored(np.sign(scale))
    if noise is None:
        turned = bool((scale < 0).any()) and not symmetric(data.noise)
        if turned or data.projection is not None:  # w = R (m + s z) + n
            R = np.broadcast_to(data.projections(), (len(data), data.dim, data.latent_dim))
            w = data.w - np.einsum("nmd,nd->nm", R, location)
            return replace(data, w=w, projection=R * scale[:, None])
        noise = _scaled(data.noise, scale)
    observed = True if data.observed is None else data.observed
    return replace(data, w=np.where(observed, (data.w - location) / scale, 0.0), noise=noise)


def _scaled(noise: Noise, scale: Array) -> Noise:
    """Divide each row's noise by its own scales ``(N, M)``."""
    size, signs = np.abs(scale), np.sign(scale)
    if isinstance(noise, GaussianNoise):
        if noise.diagonal and (size == 1).all():
            return noise  # maybe one for all rows
        factor = np.broadcast_to(noise.factor, (len(size), *noise.factor.shape[1:]))
        noise = replace(noise, factor=factor, shared=False, n_rows=len(size)).divide(size)
        if noise.diagonal:
            return noise
        return replace(noise, factor=noise.factor * signs[:, :, None] * signs[:, None])
    refuse_if(
        len(size) and not np.allclose(size, size[:1]),
        "Expected Gaussian noise, because the model was fitted with covariates to rows "
        "with such; got another law. Fit again with rows of that law.",
    )
    return noise.divide(size[0])


def symmetric(noise: Noise) -> bool:
    """Whether each value of the noise has the distribution of its mirror image, by itself."""
    if isinstance(noise, GaussianNoise):
        return True
    if not noise.independent:
        return False
    mean, sd = np.broadcast_arrays(noise.mean(), np.sqrt(noise.variance()))
    for d, size in product(range(noise.dim), (0.3, 1.0, 2.5)):
        ahead, behind = mean.copy(), mean.copy()
        ahead[:, d], behind[:, d] = size * sd[:, d], -size * sd[:, d]
        there, back = noise.log_prob(np.stack([ahead, behind]))
        if not np.allclose(there, back, rtol=SYMMETRIC, atol=SYMMETRIC):
            return False
    return True
