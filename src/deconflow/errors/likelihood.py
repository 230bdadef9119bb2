r"""How likely rows are under a mixture of the truth and a law of their errors, with derivatives.

Rows of one object measure the same truth. With :math:`\Lambda = \sum_i S_i^{-1}` their mean
:math:`m = \Lambda^{-1} \sum_i S_i^{-1} y_i` has the error :math:`P = \Lambda^{-1}`, and

.. math:: \log p = \log \sum_k \pi_k N(m; \mu_k, V_k + P) + \sum_i \log N(y_i; m, S_i)
                   + \tfrac12 \log |2 \pi P|

The first term is how objects scatter, the others how the rows of one object do. Derivatives by the
errors follow from the posterior of the truth (Fisher's identity).
"""

from dataclasses import dataclass

import numpy as np

from deconflow._types import Array, BoolArray, IntArray
from deconflow.errors.parameters import Layout, Values, covariances, error_scores
from deconflow.mixtures import LOG_2PI, GaussianMixture

#: Variance of a missing value, in units of the data's: so large that it says nothing.
IDLE = 1e12
#: Variance that is added to every error, in the same units: exact values have a density so.
EXACT = 1e-12


@dataclass(frozen=True)
class ErrorRows:
    """Rows in units in which they spread by about one; those of an object stand together.

    Attributes
    ----------
    w : array
        ``(N, D)`` values, zero where missing.
    seen : array
        ``(N, D)``: which values are measured.
    said : array
        ``(N, D, D)`` covariances as they were said, zero where missing.
    group : array or None
        ``(N,)`` numbers of the groups that have zero points.
    first : array
        ``(O,)`` first row of each object.
    weights : array
        ``(O,)`` weights of the objects.
    """

    w: Array
    seen: BoolArray
    said: Array
    group: IntArray | None
    first: IntArray
    weights: Array

    @property
    def n_objects(self) -> int:
        """Number of different truths."""
        return len(self.first)

    @property
    def counts(self) -> IntArray:
        """Rows of each object."""
        return np.diff(np.r_[self.first, len(self.w)])


@dataclass(frozen=True)
class Objects:
    """What the rows of each object say together, and what they say of each other.

    Attributes
    ----------
    mean, covariance : array
        ``(O, D)`` and ``(O, D, D)``: the object's measurement and its error.
    within : array
        ``(O,)`` log-likelihood of how its rows scatter.
    law, offset : array
        ``(N, D, D)`` and ``(N, D)``: each row's covariance, and its place about the object's mean.
    """

    mean: Array
    covariance: Array
    within: Array
    law: Array
    offset: Array


def combined(rows: ErrorRows, values: Values) -> Objects:
    """Put the rows of each object together, with errors as these parameters say."""
    columns = np.arange(rows.w.shape[1])
    law = covariances(rows.said, values) * (rows.seen[:, :, None] & rows.seen[:, None, :])
    law[:, columns, columns] += np.where(rows.seen, EXACT, IDLE)
    y = rows.w if rows.group is None else rows.w - values.shifts[rows.group]
    y = np.where(rows.seen, y, 0.0)
    mean, covariance = y[rows.first].copy(), law[rows.first].copy()
    within, offset = np.zeros(rows.n_objects), np.zeros_like(y)
    several = rows.counts > 1
    if several.any():
        mine, first = _rows_of(rows, several)
        precision, log_det = inverse(law[mine])
        total = np.add.reduceat(precision, first, axis=0)
        joint, log_total = inverse(total)
        pull = np.add.reduceat(np.einsum("nab,nb->na", precision, y[mine]), first, axis=0)
        mean[several] = np.einsum("oab,ob->oa", joint, pull)
        covariance[several] = joint
        own = np.repeat(mean[several], rows.counts[several], axis=0)
        offset[mine] = y[mine] - own
        squares = np.einsum("na,nab,nb->n", offset[mine], precision, offset[mine])
        each = -0.5 * (squares + log_det + len(columns) * LOG_2PI)
        within[several] = np.add.reduceat(each, first) - 0.5 * (log_total - len(columns) * LOG_2PI)
    return Objects(mean, covariance, within, law, offset)


@dataclass(frozen=True)
class View:
    """What a mixture sees of the objects.

    Attributes
    ----------
    mixture, values, rows
        What was looked at.
    objects : Objects
        The rows of each object, together.
    log_p : array
        ``(O,)`` log-likelihoods.
    q, t, precision : array
        ``(K, O)``, ``(K, O, D)`` and ``(K, O, D, D)``: probability of each component, the inverse
        of its covariance for the object, and that times the residual.
    """

    mixture: GaussianMixture
    values: Values
    rows: ErrorRows
    objects: Objects
    log_p: Array
    q: Array
    t: Array
    precision: Array

    def scores(self, layout: Layout) -> Array:
        """Derivatives ``(O, P)`` of each log-likelihood.

        By the parameters of the errors, then by logits of the mixture's weights, by its means and
        by the lower triangles of its covariances' factors.
        """
        n, dim = self.objects.mean.shape
        lower = np.tril_indices(dim)
        roots = np.linalg.cholesky(self.mixture.covariances)
        by_mean, by_covariance = np.zeros((n, dim)), np.zeros((n, dim, dim))
        by_means, by_roots = [], []
        for k, (q, t, precision) in enumerate(zip(self.q, self.t, self.precision, strict=True)):
            g = q[:, None, None] * (t[:, :, None] * t[:, None, :] - precision)
            by_means.append(q[:, None] * t)
            by_roots.append((g @ roots[k])[:, lower[0], lower[1]])
            by_mean += by_means[-1]
            by_covariance += g
        by_law, by_shift = _by_rows(self.rows, self.objects, by_mean, by_covariance)
        each = error_scores(layout, self.rows.said, self.values, by_law, by_shift, self.rows.group)
        by_errors = np.add.reduceat(each, self.rows.first, axis=0)
        by_logits = self.q.T - self.mixture.weights
        return np.hstack([by_errors, by_logits, *by_means, *by_roots])


def look(mixture: GaussianMixture, values: Values, rows: ErrorRows) -> View:
    """See how likely the objects are under a mixture, with errors as these parameters say."""
    objects = combined(rows, values)
    n, dim = objects.mean.shape
    size = mixture.n_components
    logs, t = np.empty((size, n)), np.empty((size, n, dim))
    precision = np.empty((size, n, dim, dim))
    for k in range(size):
        precision[k], log_det = inverse(objects.covariance + mixture.covariances[k])
        residual = objects.mean - mixture.means[k]
        t[k] = (precision[k] @ residual[:, :, None])[:, :, 0]
        squares = (residual * t[k]).sum(1)
        logs[k] = np.log(mixture.weights[k]) - 0.5 * (squares + log_det + dim * LOG_2PI)
    log_p = np.logaddexp.reduce(logs, axis=0)
    q = np.exp(logs - log_p)
    return View(mixture, values, rows, objects, log_p + objects.within, q, t, precision)


def _by_rows(
    rows: ErrorRows, objects: Objects, by_mean: Array, by_covariance: Array
) -> tuple[Array, Array]:
    """Derivatives by each row's covariance ``(N, D, D)`` and by a shift of it, ``(N, D)``."""
    both = rows.seen[:, :, None] & rows.seen[:, None, :]
    by_law = 0.5 * np.repeat(by_covariance, rows.counts, axis=0)
    by_shift = np.repeat(by_mean, rows.counts, axis=0)
    several = rows.counts > 1
    if several.any():
        mine, _ = _rows_of(rows, several)
        count = rows.counts[several]
        P, pull = objects.covariance[several], by_mean[several]
        step = np.repeat(np.einsum("oab,ob->oa", P, pull), count, axis=0)
        spread = np.repeat(P + P @ by_covariance[several] @ P, count, axis=0)
        a = objects.offset[mine]
        second = a[:, :, None] * a[:, None, :] + spread
        second += a[:, :, None] * step[:, None, :] + step[:, :, None] * a[:, None, :]
        precision = inverse(objects.law[mine])[0]
        by_law[mine] = 0.5 * precision @ (second - objects.law[mine]) @ precision
        by_shift[mine] = np.einsum("nab,nb->na", precision, a + step)
    return np.where(both, by_law, 0.0), np.where(rows.seen, by_shift, 0.0)


def _rows_of(rows: ErrorRows, objects: BoolArray) -> tuple[BoolArray, IntArray]:
    """Which rows are of some objects, and where among these each object begins."""
    mine = np.repeat(objects, rows.counts)
    return mine, np.r_[0, np.cumsum(rows.counts[objects])[:-1]].astype(np.int64)


def inverse(matrices: Array) -> tuple[Array, Array]:
    """Inverses of positive matrices ``(N, D, D)`` and logarithms of determinants ``(N,)``."""
    if matrices.shape[1] == 1:
        return 1 / matrices, np.log(matrices[:, 0, 0])
    if matrices.shape[1] == 2:
        return _inverse_of_pairs(matrices)
    found = np.asarray(np.linalg.inv(matrices), np.float64)
    return found, np.linalg.slogdet(matrices)[1]


def _inverse_of_pairs(matrices: Array) -> tuple[Array, Array]:
    """Do two columns by hand: ten times as fast."""
    a, b, c = matrices[:, 0, 0], matrices[:, 0, 1], matrices[:, 1, 1]
    determinant = a * c - b * b
    found = np.empty_like(matrices)
    found[:, 0, 0], found[:, 1, 1] = c / determinant, a / determinant
    found[:, 0, 1] = found[:, 1, 0] = -b / determinant
    return found, np.log(determinant)
