"""Estimate the errors that were left open, where the rows determine them; refuse where not."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array, BoolArray, IntArray
from deconflow.checks import refuse_if
from deconflow.errors.learned import LearnedErrors, refuse_other_laws
from deconflow.errors.likelihood import ErrorRows, Layout, Values, View, combined, look
from deconflow.mixtures import GaussianMixture
from deconflow.noise import FreeErrors, gaussian
from deconflow.observations import Observations, check_groups
from deconflow.xd import (
    COMPONENTS_TO_TRY,
    FitSettings,
    PreparedData,
    Stopping,
    price,
    row_weights,
)

#: Rows that errors are learned from.
MOST_ROWS = 20_000
FEWEST_OBJECTS, FEWEST_REPEATS = 10, 2
#: Errors are alike where the largest are less than so many times the smallest, 5 % of either kind
#: left out. How the scatter changes with them says nothing then that a truth of a slightly other
#: shape would not say, too.
ALIKE = 1.2
SMALLEST_EIGENVALUE = 1e-9
#: Most steps, and the gains in log-likelihood that are not worth another: while the number of
#: components is sought, and then.
STEPS, ROUGH, PRECISE = 100, 0.5, 1e-3
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = 1e-2, 1e-9, 1e9
RIDGE = 1e-10
#: Longest step of a parameter: of the logarithm of a factor, or in units of the spread.
LONGEST = 1.0
PATIENCE, ROWS_PER_COMPONENT = 2, 20
#: In units of the spread of the column.
FIRST_JITTER = 0.1
#: Smallest covariance of a component that EM makes, in units of the mean error.
FLOOR = 0.01
#: Of a component; the latter in units of the spread.
LEAST_WEIGHT, NARROWEST = 1e-8, 1e-4
#: A larger variance is that of a value which no row of an object has measured.
SEEN = 1e6


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
    refuse_if(
        data.projection is not None,
        f"Expected no projection with {free.as_said()}; got one. Learn the errors from rows "
        "that measure the truth itself.",
    )
    refuse_other_laws(free, data)
    labels, groups = _codes(free.groups, data, "groups")
    truths = _codes(free.replicates, data, "replicates")[1]
    rows, cluster, scale = _rows(free, data, groups, truths, rng)
    layout = Layout(data.dim, free.scale, free.jitter, free.correlation, len(labels))
    _refuse_untold(free, rows, list(names), labels)
    fit = most_likely(rows, layout, rng, threads)
    values, spread = fit.values, _covariance(fit, cluster)
    errors, tied = _standard_errors(layout, values, spread)
    sd = np.sqrt(np.diagonal(rows.said, axis1=1, axis2=2))
    usual = np.array([np.median(sd[rows.seen[:, d], d]) for d in range(layout.dim)])
    return LearnedErrors(
        values.scale, values.jitter * scale, values.correlation, values.shifts * scale,
        tuple(names), free.kinds,
        errors.scale, errors.jitter * scale, errors.correlation,
        labels, errors.shifts * scale,
        tied, usual * scale, scale,
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
    every = np.broadcast_to(free.said.covariance(), (len(data), data.dim, data.dim))
    both = seen[:, :, None] & seen[:, None, :]
    said = np.where(both, every[chosen] / np.outer(scale, scale), 0.0)
    first = np.flatnonzero(np.diff(truths[chosen], prepend=-1))
    mean_weights = np.add.reduceat(weights, first) / np.diff(np.r_[first, len(chosen)])
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
    refuse_if(
        len(rows.first) < FEWEST_OBJECTS,
        f"Expected at least {FEWEST_OBJECTS} truths to learn errors from; got {len(rows.first)}.",
    )
    refuse_if(
        free.replicates is not None and (rows.counts == 1).all(),
        "Expected some label of replicates in several rows, which measure the same truth; got "
        "a different one in every row.",
    )
    sd = np.sqrt(np.diagonal(rows.said, axis1=1, axis2=2))
    few = "Give replicates=, the labels of rows that measure the same truth"
    for d, name in enumerate(names):
        alike = _alike(sd[rows.seen[:, d], d])
        told = _repeats(rows, rows.seen[:, d]) >= FEWEST_REPEATS
        if free.replicates is not None:
            few = f"Measure more truths several times in {name}"
        refuse_if(
            free.scale and not sd[:, d].any(),
            f"Expected errors above zero in {name} to learn their scale; got zeros only, which "
            'no factor changes. Use jitter="fit".',
        )
        refuse_if(
            free.scale and alike and not told,
            f"Expected errors of {name} that differ by row, to learn their scale; got about the "
            "same in all rows: errors that are the same in all rows cannot be told from the width "
            f"of the truth. {few}.",
        )
        refuse_if(
            free.jitter and not told,
            f"Expected replicates that measure {name}, to learn its jitter; got "
            f"{'none' if free.replicates is None else 'too few'}: extra scatter common to all rows "
            f"cannot be told from a broader distribution. {few}.",
        )
        refuse_if(
            free.jitter and free.scale and alike,
            f"Expected errors of {name} that differ by row, to tell their scale from a jitter; got "
            "about the same in all rows. Learn one of the two.",
        )
    for a, b in combinations(range(len(names)), 2) if free.correlation else ():
        both, pair = rows.seen[:, a] & rows.seen[:, b], f"{names[a]} and {names[b]}"
        refuse_if(
            not both.any(),
            f"Expected rows that measure both {pair}, to learn the correlation of their "
            "errors; got none.",
        )
        refuse_if(
            _alike((sd[:, a] * sd[:, b])[both]) and _repeats(rows, both) < FEWEST_REPEATS,
            f"Expected errors of {pair} that differ by row, to learn their correlation; "
            "got about the same in all rows, which cannot be told from a correlation of "
            "the truth. Give replicates=, the labels of rows that measure the same truth.",
        )
    if rows.group is not None:
        refuse_if(
            len(labels) < 2,
            f"Expected at least 2 groups of the noise, to learn zero points; got {len(labels)}.",
        )
        for d, name in enumerate(names):
            counts = np.bincount(rows.group[rows.seen[:, d]], minlength=len(labels))
            refuse_if(
                not counts.all(),
                f"Expected values of {name} in every group of the noise; got none in "
                f"{labels[int(counts.argmin())]!r}. Leave that group out.",
            )


def _alike(sd: Array) -> bool:
    """Whether errors are about the same in all rows."""
    low, high = np.quantile(sd, [0.05, 0.95])
    return bool(high <= ALIKE * low)


def _repeats(rows: ErrorRows, seen: BoolArray) -> int:
    """Count measurements beyond the first of each object."""
    return int(np.maximum(np.add.reduceat(seen.astype(np.int64), rows.first) - 1, 0).sum())


def _standard_errors(layout: Layout, values: Values, spread: Array) -> tuple[Values, Array]:
    """Standard errors of all that was learned, and correlations of scale and jitter; else zeros."""
    error, places, dim = np.sqrt(np.diag(spread)), layout.places, layout.dim
    scale, jitter, tied, correlation = *np.zeros((3, dim)), np.zeros((dim, dim))
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
    if layout.scale and layout.jitter:
        related = spread / np.maximum(np.outer(error, error), 1e-300)
        tied = np.diag(related[places["scale"], places["jitter"]])
    return Values(scale, jitter, correlation, shifts), tied


def _covariance(fit: View, cluster: IntArray) -> Array:
    """Covariance of the estimates of the errors, with what the mixture leaves open.

    By the products of scores; rows of a cluster count as one, and weights as such.
    """
    scores, size = fit.scores(), fit.layout.size
    weighted = scores * fit.rows.weights[:, None]
    curvature = weighted.T @ scores
    sums = np.zeros((int(cluster.max()) + 1, scores.shape[1]))
    np.add.at(sums, cluster, weighted)
    unit = 1 / np.sqrt(np.maximum(np.diag(curvature), 1e-300))
    values, vectors = np.linalg.eigh(curvature * unit[:, None] * unit)
    known = values > SMALLEST_EIGENVALUE * values[-1]
    inverse = (vectors[:, known] / values[known]) @ vectors[:, known].T * unit[:, None] * unit
    return np.asarray(inverse @ (sums.T @ sums) @ inverse)[:size, :size]


def most_likely(
    rows: ErrorRows, layout: Layout, rng: np.random.RandomState, threads: int | None = None
) -> View:
    """Fit errors with mixtures of more and more components, and keep what BIC likes best.

    Each number of components is started by EM, with the errors as they are known so far, and
    finished by steps of Newton's method for everything at once, where the products of the rows'
    scores stand for the curvature (Berndt, Hall, Hall and Hausman 1974). A mixture and its errors
    pull at the same spread, so that steps in turns would take hundreds of rounds.
    """
    theta = np.zeros(layout.size)
    tried: list[View] = []
    worth: list[float] = []
    theta[layout.places["jitter"]] = FIRST_JITTER**2
    most = max(1, len(rows.first) // ROWS_PER_COMPONENT)
    for count in [count for count in COMPONENTS_TO_TRY if count <= most]:
        start = _start(rows, layout.values(theta), count, rng, threads)
        tried.append(climb(look(rows, layout, theta, start), ROUGH))
        worth.append(tried[-1].log_likelihood - price(start, len(rows.first)))
        best = int(np.argmax(worth))
        theta = tried[best].theta
        if best < len(tried) - PATIENCE:
            break
    return climb(tried[best], PRECISE)


def _start(
    rows: ErrorRows, values: Values, count: int, rng: np.random.RandomState, threads: int | None
) -> GaussianMixture:
    """Fit a mixture to the objects by EM, with errors that are known so far."""
    objects = combined(rows, values)
    size = np.diagonal(objects.covariance, axis1=1, axis2=2)
    mean = np.where(size < SEEN, objects.mean, np.nan)
    weights = None if (rows.weights == 1).all() else rows.weights
    noise = gaussian(covariance=objects.covariance)
    data = Observations.from_arrays(mean, noise, weights=weights)
    stopping = Stopping(tol=1e-5, max_iter=100, accelerate=True, threads=threads)
    settings = FitSettings(count, floor=FLOOR, stopping=stopping)
    return _regular(PreparedData(data).fit(settings, rng).mixture)


def climb(fit: View, precise: float) -> View:
    """Take steps for errors and mixture at once, each of which makes the rows more likely."""
    damping, size, jitter = FIRST_DAMPING, fit.layout.size, fit.layout.places["jitter"]
    for _ in range(STEPS):
        scores = fit.scores()
        slope = fit.rows.weights @ scores
        curvature = (scores * fit.rows.weights[:, None]).T @ scores
        free = np.ones(len(slope), bool)
        free[jitter] = (fit.theta[jitter] > 0) | (slope[jitter] > 0)  # else it would fall below 0
        found = None
        while found is None and damping < MOST_DAMPING:
            step = damped(curvature, slope, free, damping)
            if step @ slope < precise:
                return fit
            step *= min(1.0, LONGEST / max(np.abs(step[:size]).max(initial=0.0), 1e-300))
            theta = fit.layout.feasible(fit.theta + step[:size])
            tried = look(fit.rows, fit.layout, theta, moved(fit.mixture, step[size:]))
            found = tried if tried.log_likelihood > fit.log_likelihood else None
            damping *= 0.1 if found else 6
        if found is None:
            return fit
        fit, damping = found, max(damping, LEAST_DAMPING)
    return fit


def damped(curvature: Array, slope: Array, free: BoolArray, damping: float) -> Array:
    """Return a step of Newton's method for what is free, shortened as Marquardt does."""
    own = curvature[np.ix_(free, free)]
    size = np.diag(own)
    own = own + np.diag(damping * size + RIDGE * max(size.max(initial=0.0), 1e-300))
    step = np.zeros(len(slope))
    step[free] = np.linalg.solve(own, slope[free])
    return step


def moved(mixture: GaussianMixture, step: Array) -> GaussianMixture:
    """Change logits, means and factors by a step."""
    K, dim = mixture.means.shape
    by_logit, by_mean, by_root = np.split(step, [K, K + K * dim])
    logits = np.log(mixture.weights) + np.clip(by_logit, -LONGEST, LONGEST)
    weights = np.exp(logits - logits.max())
    roots = np.linalg.cholesky(mixture.covariances)
    lower = np.tril_indices(dim)
    roots[:, lower[0], lower[1]] += by_root.reshape(K, -1)
    means, covariances = mixture.means + by_mean.reshape(K, dim), roots @ roots.transpose(0, 2, 1)
    return _regular(GaussianMixture(weights / weights.sum(), means, covariances))


def _regular(mixture: GaussianMixture) -> GaussianMixture:
    """Keep weights and widths from zero, where they have no logarithm or factor."""
    weights = np.maximum(mixture.weights, LEAST_WEIGHT)
    covariances = mixture.covariances + NARROWEST**2 * np.eye(mixture.dim)
    return GaussianMixture(weights / weights.sum(), mixture.means, covariances)
