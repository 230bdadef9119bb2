"""Estimate the errors that were left open, where the rows determine them; refuse where not."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array, BoolArray, IntArray
from deconflow.errors.learned import LearnedErrors, refuse_other_laws
from deconflow.errors.likelihood import ErrorRows
from deconflow.errors.parameters import Layout, Values
from deconflow.errors.search import Fit, most_likely
from deconflow.noise import FreeErrors
from deconflow.observations import Observations, check_groups
from deconflow.xd import row_weights

#: Rows that errors are learned from.
MOST_ROWS = 20_000
FEWEST_OBJECTS = 10
#: Errors are alike where the largest are less than so many times the smallest, 5 % of either kind
#: left out. How the scatter changes with them says nothing then that a truth of a slightly other
#: shape would not say, too.
ALIKE = 1.2
FEWEST_REPEATS = 2
SMALLEST_EIGENVALUE = 1e-9


def learn_errors(
    free: FreeErrors,
    data: Observations,
    names: Sequence[str],
    rng: np.random.RandomState,
    threads: int | None = None,
) -> LearnedErrors:
    """Learn the errors of rows, and their standard errors.

    Parameters
    ----------
    free
        The errors as they were said, and what is open.
    data
        The rows, with these errors; those of no weight are not looked at.
    names
        The measured columns.
    rng
        Makes starts, and chooses the rows that are looked at, of very many.
    threads
        How many to use at most.
    """
    if data.projection is not None:
        raise ValueError(
            f"Expected no projection with {free.as_said()}; got one. Learn the errors from rows "
            "that measure the truth itself."
        )
    refuse_other_laws(free, data)
    labels, groups = _codes(free.groups, data, "groups")
    truths = _codes(free.replicates, data, "replicates")[1]
    rows, cluster, scale = _rows(free, data, groups, truths, rng)
    layout = Layout(data.dim, free.scale, free.jitter, free.correlation, len(labels))
    _refuse_untold(free, rows, list(names), labels)
    fit = most_likely(rows, layout, rng, threads)
    values, spread = layout.values(fit.theta), _covariance(rows, layout, fit, cluster)
    errors = _standard_errors(layout, values, spread)
    sd = np.sqrt(np.diagonal(rows.said, axis1=1, axis2=2))
    usual = np.array([np.median(sd[rows.seen[:, d], d]) for d in range(layout.dim)])
    return LearnedErrors(
        tuple(names), free.kinds,
        values.scale, errors.scale,
        values.jitter * scale, errors.jitter * scale,
        values.correlation, errors.correlation,
        labels, values.shifts * scale, errors.shifts * scale,
        _tied(layout, spread), usual * scale, scale,
    )  # fmt: skip


def _codes(
    labels: NDArray[np.object_] | None, data: Observations, name: str
) -> tuple[tuple[object, ...], IntArray | None]:
    """Return different labels, sorted if they can be, and which of them each row has."""
    if labels is None:
        return (), None
    codes = np.asarray(check_groups(data.w, labels, f"{name} of the noise"))
    different = labels[np.unique(codes, return_index=True)[1]].tolist()
    try:
        order = sorted(range(len(different)), key=different.__getitem__)
    except TypeError:  # numbers and text have no order
        order = list(range(len(different)))
    return tuple(different[j] for j in order), np.argsort(order)[codes]


def _rows(
    free: FreeErrors,
    data: Observations,
    groups: IntArray | None,
    truths: IntArray | None,
    rng: np.random.RandomState,
) -> tuple[ErrorRows, IntArray, Array]:
    """Choose rows, and bring them into units of their spread; also clusters, and these units."""
    weights = row_weights(data)
    truths = np.arange(len(data)) if truths is None else truths
    chosen = _chosen(truths, weights, rng)
    w, weights = data.measured()[chosen], weights[chosen]
    seen = ~np.isnan(w)
    location, scale = np.nanmean(w, axis=0), np.nanstd(w, axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    covariance = np.asarray(free.said.covariance())
    said = covariance[np.zeros(len(chosen), int) if free.said.shared else chosen]
    both = seen[:, :, None] & seen[:, None, :]
    said = np.where(both, said / np.outer(scale, scale), 0.0)
    first = np.flatnonzero(np.diff(truths[chosen], prepend=-1))
    counts = np.diff(np.r_[first, len(chosen)])
    mean_weights = np.add.reduceat(weights, first) / counts
    own = data.group_codes()
    cluster = np.arange(len(first)) if own is None else own[chosen][first]
    rows = ErrorRows(
        np.where(seen, (w - location) / scale, 0.0),
        seen,
        said,
        None if groups is None else groups[chosen],
        first,
        mean_weights / mean_weights.mean(),
    )
    return rows, cluster, scale


def _chosen(truths: IntArray, weights: Array, rng: np.random.RandomState) -> IntArray:
    """Choose rows of positive weight, whole truths at a time, those together that belong together.

    Of very many, truths that were measured several times come first, up to half of the rows: these
    tell most.
    """
    used = np.flatnonzero(weights > 0)
    codes = np.unique(truths[used], return_inverse=True)[1]
    counts = np.bincount(codes)
    if len(used) > MOST_ROWS:
        order = rng.permutation(len(counts))
        several = order[counts[order] > 1]
        several = several[np.cumsum(counts[several]) <= MOST_ROWS // 2]
        order = np.r_[several, order[~np.isin(order, several)]]
        kept = np.zeros(len(counts), bool)
        kept[order[np.cumsum(counts[order]) <= MOST_ROWS]] = True
        used, codes = used[kept[codes]], codes[kept[codes]]
    return used[np.argsort(codes, kind="stable")]


def _refuse_untold(
    free: FreeErrors, rows: ErrorRows, names: list[str], labels: tuple[object, ...]
) -> None:
    """Raise for what rows cannot tell, with the reason."""
    if rows.n_objects < FEWEST_OBJECTS:
        raise ValueError(
            f"Expected at least {FEWEST_OBJECTS} truths to learn errors from; got {rows.n_objects}."
        )
    if free.replicates is not None and (rows.counts == 1).all():
        raise ValueError(
            "Expected some label of replicates in several rows, which measure the same truth; got "
            "a different one in every row."
        )
    sd = np.sqrt(np.diagonal(rows.said, axis1=1, axis2=2))
    for d, name in enumerate(names):
        alike = _alike(sd[rows.seen[:, d], d])
        told = _repeats(rows, rows.seen[:, d]) >= FEWEST_REPEATS
        _refuse_column(free, name, alike, told, exact=not sd[:, d].any())
    if free.correlation:
        _refuse_pairs(rows, sd, names)
    if free.groups is not None:
        _refuse_groups(rows, names, labels)


def _refuse_column(free: FreeErrors, name: str, alike: bool, told: bool, exact: bool) -> None:
    """Raise where scale or jitter of a column cannot be told."""
    few = (
        "Give replicates=, the labels of rows that measure the same truth"
        if free.replicates is None
        else f"Measure more truths several times in {name}"
    )
    if free.scale and exact:
        raise ValueError(
            f"Expected errors above zero in {name} to learn their scale; got zeros only, which "
            'no factor changes. Use jitter="fit".'
        )
    if free.scale and alike and not told:
        raise ValueError(
            f"Expected errors of {name} that differ by row, to learn their scale; got about the "
            "same in all rows: errors that are the same in all rows cannot be told from the width "
            f"of the truth. {few}."
        )
    if free.jitter and not told:
        raise ValueError(
            f"Expected replicates that measure {name}, to learn its jitter; got "
            f"{'none' if free.replicates is None else 'too few'}: extra scatter common to all rows "
            f"cannot be told from a broader distribution. {few}."
        )
    if free.jitter and free.scale and alike:
        raise ValueError(
            f"Expected errors of {name} that differ by row, to tell their scale from a jitter; got "
            "about the same in all rows. Learn one of the two."
        )


def _refuse_pairs(rows: ErrorRows, sd: Array, names: list[str]) -> None:
    """Raise where the correlation of two columns cannot be told."""
    for a, b in combinations(range(len(names)), 2):
        both, pair = rows.seen[:, a] & rows.seen[:, b], f"{names[a]} and {names[b]}"
        if not both.any():
            raise ValueError(
                f"Expected rows that measure both {pair}, to learn the correlation of their "
                "errors; got none."
            )
        product = (sd[:, a] * sd[:, b])[both]
        if _alike(product) and _repeats(rows, both) < FEWEST_REPEATS:
            raise ValueError(
                f"Expected errors of {pair} that differ by row, to learn their correlation; "
                "got about the same in all rows, which cannot be told from a correlation of "
                "the truth. Give replicates=, the labels of rows that measure the same truth."
            )


def _refuse_groups(rows: ErrorRows, names: list[str], labels: tuple[object, ...]) -> None:
    """Raise where a group has no zero point to learn."""
    assert rows.group is not None
    if len(labels) < 2:
        raise ValueError(
            f"Expected at least 2 groups of the noise, to learn zero points; got {len(labels)}."
        )
    for d, name in enumerate(names):
        counts = np.bincount(rows.group[rows.seen[:, d]], minlength=len(labels))
        if not counts.all():
            raise ValueError(
                f"Expected values of {name} in every group of the noise; got none in "
                f"{labels[int(counts.argmin())]!r}. Leave that group out."
            )


def _alike(sd: Array) -> bool:
    """Whether errors are about the same in all rows."""
    low, high = np.quantile(sd, [0.05, 0.95])
    return bool(high <= ALIKE * low)


def _repeats(rows: ErrorRows, seen: BoolArray) -> int:
    """Count measurements beyond the first of each object."""
    counts = np.add.reduceat(seen.astype(np.int64), rows.first)
    return int(np.maximum(counts - 1, 0).sum())


def _standard_errors(layout: Layout, values: Values, spread: Array) -> Values:
    """Standard errors of all that was learned; zeros for the rest."""
    error, places, dim = np.sqrt(np.diag(spread)), layout.places, layout.dim
    scale, jitter, correlation = np.zeros(dim), np.zeros(dim), np.zeros((dim, dim))
    if layout.scale:
        scale = values.scale * error[places["scale"]]
    if layout.jitter:
        # Of a variance, turned into that of its root: the longer side of the interval. A jitter
        # that may be zero has an error as large as itself, and one of zero has an error.
        variance, wide = np.square(values.jitter), error[places["jitter"]]
        above = np.sqrt(variance + wide) - values.jitter
        below = values.jitter - np.sqrt(np.maximum(variance - wide, 0.0))
        jitter = np.maximum(above, below)
    if layout.correlation:
        correlation[layout.pairs] = error[places["correlation"]]
        correlation += correlation.T
    turn = np.kron(layout.contrasts, np.eye(dim))
    shifts = np.diag(turn @ spread[places["shifts"], places["shifts"]] @ turn.T)
    shifts = np.sqrt(np.maximum(shifts, 0.0)).reshape(-1, dim)
    return Values(scale, jitter, correlation, shifts)


def _tied(layout: Layout, spread: Array) -> Array:
    """Correlation of the estimates of scale and jitter of each column."""
    if not (layout.scale and layout.jitter):
        return np.zeros(layout.dim)
    scale, jitter = layout.places["scale"], layout.places["jitter"]
    size = np.sqrt(np.diag(spread))
    tied = np.diag(spread[scale, jitter]) / np.maximum(size[scale] * size[jitter], 1e-300)
    return np.asarray(tied)


def _covariance(rows: ErrorRows, layout: Layout, fit: Fit, cluster: IntArray) -> Array:
    """Covariance of the estimates of the errors, with what the mixture leaves open.

    By the products of scores; rows of a cluster count as one, and weights as such.
    """
    scores = fit.view.scores(layout)
    weighted = scores * rows.weights[:, None]
    curvature = weighted.T @ scores
    sums = np.zeros((int(cluster.max()) + 1, scores.shape[1]))
    np.add.at(sums, cluster, weighted)
    unit = 1 / np.sqrt(np.maximum(np.diag(curvature), 1e-300))
    values, vectors = np.linalg.eigh(curvature * unit[:, None] * unit)
    known = values > SMALLEST_EIGENVALUE * values[-1]
    inverse = (vectors[:, known] / values[known]) @ vectors[:, known].T
    inverse = inverse * unit[:, None] * unit
    return np.asarray(inverse @ (sums.T @ sums) @ inverse)[: layout.size, : layout.size]
