r"""How likely rows are under a mixture of the truth and a law of their errors, with derivatives.

What of Gaussian errors is learned is one vector of numbers, from which the law follows:

.. math:: S_i = t_i t_i^T \circ C, \qquad t_{id}^2 = s_d^2 \sigma_{id}^2 + u_d, \qquad
          y_i = w_i - b_{g(i)}

with a factor :math:`s` and a jitter of variance :math:`u` for each column, the correlation
:math:`C` of the errors, and zero points :math:`b` that sum to zero over the groups. Errors that are
said as covariances keep these in the place of :math:`C`: :math:`S_i = s s^T \circ S_i^0 +
\mathrm{diag}(u)`.

Rows of one object measure the same truth. With :math:`\Lambda = \sum_i S_i^{-1}` their mean
:math:`m = \Lambda^{-1} \sum_i S_i^{-1} y_i` has the error :math:`P = \Lambda^{-1}`, and

.. math:: \log p = \log \sum_k \pi_k N(m; \mu_k, V_k + P) + \sum_i \log N(y_i; m, S_i)
                   + \tfrac12 \log |2 \pi P|

The first term is how objects scatter, the others how the rows of one object do. Derivatives by the
errors follow from the posterior of the truth (Fisher's identity).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array, BoolArray, IntArray
from deconflow.mixtures import LOG_2PI, GaussianMixture

#: Factors on the errors stay within a thousand, and a thousandth.
LARGEST_LOG, LARGEST_CORRELATION = 7.0, 0.999
#: Variance of a missing value, in units of the data's: so large that it says nothing.
IDLE = 1e12
#: Variance that is added to every error, in the same units: exact values have a density so.
EXACT = 1e-12


@dataclass(frozen=True)
class Values:
    """The parameters in words; units are those of the rows.

    Attributes
    ----------
    scale, jitter : array
        ``(D,)`` factors on the errors, and standard deviations that are added to them.
    correlation : array
        ``(D, D)``.
    shifts : array
        ``(G, D)`` zero points; ``(0, D)`` without groups.
    """

    scale: Array
    jitter: Array
    correlation: Array
    shifts: Array


@dataclass(frozen=True)
class Layout:
    """Which parameters there are, and where in the vector they stand.

    Attributes
    ----------
    dim : int
        Number of columns.
    scale, jitter, correlation : bool
        What is learned.
    n_groups : int
        Groups that have zero points; 0 for none.
    """

    dim: int
    scale: bool
    jitter: bool
    correlation: bool
    n_groups: int

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Pairs of columns."""
        return np.triu_indices(self.dim, 1)

    @cached_property
    def places(self) -> dict[str, slice]:
        """Where each kind of parameter stands."""
        sizes = {
            "scale": self.dim * self.scale,
            "jitter": self.dim * self.jitter,
            "correlation": len(self.pairs[0]) * self.correlation,
            "shifts": self.dim * max(0, self.n_groups - 1),
        }
        ends = np.cumsum([0, *sizes.values()])
        return {name: slice(*ends[j : j + 2]) for j, name in enumerate(sizes)}

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.places["shifts"].stop

    @property
    def contrasts(self) -> Array:
        """``(G, G - 1)``: shifts of all groups from those of all but the last; they sum to zero."""
        free = max(0, self.n_groups - 1)
        return np.vstack([np.eye(free), -np.ones((min(self.n_groups, 1), free))])

    def feasible(self, theta: Array) -> Array:
        """Bring parameters back to where they have a meaning."""
        theta, places = theta.copy(), self.places
        theta[places["scale"]] = np.clip(theta[places["scale"]], -LARGEST_LOG, LARGEST_LOG)
        theta[places["jitter"]] = np.maximum(theta[places["jitter"]], 0.0)
        rho = np.clip(theta[places["correlation"]], -LARGEST_CORRELATION, LARGEST_CORRELATION)
        if len(rho) > 1:  # shrink correlations until they are those of some law
            lowest = np.linalg.eigvalsh(self._matrix(rho))[0]
            rho *= LARGEST_CORRELATION / max(1 - lowest, LARGEST_CORRELATION)
        theta[places["correlation"]] = rho
        return theta

    def _matrix(self, rho: Array) -> Array:
        found = np.eye(self.dim)
        if self.correlation:
            found[self.pairs] = rho
            found.T[self.pairs] = rho
        return found

    def values(self, theta: Array) -> Values:
        """Say what a vector of parameters means."""
        return Values(
            np.exp(theta[self.places["scale"]]) if self.scale else np.ones(self.dim),
            np.sqrt(theta[self.places["jitter"]]) if self.jitter else np.zeros(self.dim),
            self._matrix(theta[self.places["correlation"]]),
            self.contrasts @ theta[self.places["shifts"]].reshape(-1, self.dim),
        )


def covariances(said: Array, values: Values) -> Array:
    """Covariances ``(N, D, D)`` of errors that were said to be ``said``."""
    made = said * values.scale[:, None] * values.scale
    columns = np.arange(said.shape[1])
    made[:, columns, columns] += np.square(values.jitter)
    if np.array_equal(values.correlation, np.eye(len(columns))):
        return made
    sd = np.sqrt(made[:, columns, columns])
    return sd[:, :, None] * sd[:, None, :] * values.correlation


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
    within, offset = np.zeros(len(rows.first)), np.zeros_like(y)
    several = rows.counts > 1
    if several.any():
        mine, first = _rows_of(rows, several)
        precision, log_det = inverse(law[mine])
        joint, log_total = inverse(np.add.reduceat(precision, first, axis=0))
        pull = np.add.reduceat(np.einsum("nab,nb->na", precision, y[mine]), first, axis=0)
        mean[several] = np.einsum("oab,ob->oa", joint, pull)
        covariance[several] = joint
        offset[mine] = y[mine] - np.repeat(mean[several], rows.counts[several], axis=0)
        squares = np.einsum("na,nab,nb->n", offset[mine], precision, offset[mine])
        each = -0.5 * (squares + log_det + len(columns) * LOG_2PI)
        within[several] = np.add.reduceat(each, first) - 0.5 * (log_total - len(columns) * LOG_2PI)
    return Objects(mean, covariance, within, law, offset)


@dataclass(frozen=True)
class View:
    """Errors and a mixture, and how likely the objects are with them.

    Attributes
    ----------
    rows, layout, theta, mixture
        The rows, the parameters of the errors, and the mixture.
    values : Values
        The parameters in words.
    objects : Objects
        The rows of each object, together.
    log_likelihood : float
        Of all objects.
    log_p : array
        ``(O,)`` log-likelihoods.
    q, t, precision : array
        ``(K, O)``, ``(K, O, D)`` and ``(K, O, D, D)``: probability of each component, the inverse
        of its covariance for the object, and that times the residual.
    """

    rows: ErrorRows
    layout: Layout
    theta: Array
    mixture: GaussianMixture
    values: Values
    objects: Objects
    log_likelihood: float
    log_p: Array
    q: Array
    t: Array
    precision: Array

    def scores(self) -> Array:
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
        each = self._by_errors(*_by_rows(self.rows, self.objects, by_mean, by_covariance))
        by_errors = np.add.reduceat(each, self.rows.first, axis=0)
        return np.hstack([by_errors, self.q.T - self.mixture.weights, *by_means, *by_roots])

    def _by_errors(self, by_law: Array, by_shift: Array) -> Array:
        r"""Derivatives ``(N, P)`` of each row's log-likelihood by the parameters of the errors.

        ``by_law``, ``(N, D, D)``, are derivatives :math:`A` by the covariance: a change :math:`dS`
        is worth :math:`\mathrm{tr}(A \, dS)`. ``by_shift``, ``(N, D)``, are those by a shift.
        """
        layout, values, columns = self.layout, self.values, np.arange(self.layout.dim)
        scaled = self.rows.said * values.scale[:, None] * values.scale
        variance = scaled[:, columns, columns] + np.square(values.jitter)
        parts = []
        if layout.correlation:
            sd = np.sqrt(variance)
            law = sd[:, :, None] * sd[:, None, :] * values.correlation
            by_variance = np.einsum("nab,nab->na", by_law, law) / np.maximum(variance, 1e-300)
            by_scale = 2 * by_variance * scaled[:, columns, columns]
        else:
            by_variance = by_law[:, columns, columns]
            by_scale = 2 * np.einsum("nab,nab->na", by_law, scaled)
        if layout.scale:
            parts.append(by_scale)
        if layout.jitter:
            parts.append(by_variance)
        if layout.correlation:
            a, b = layout.pairs
            parts.append(2 * by_law[:, a, b] * sd[:, a] * sd[:, b])
        if self.rows.group is not None:
            turned = layout.contrasts[self.rows.group][:, :, None] * by_shift[:, None, :]
            parts.append(turned.reshape(len(by_law), -1))
        return np.concatenate(parts, axis=1)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # such a step is refused
def look(rows: ErrorRows, layout: Layout, theta: Array, mixture: GaussianMixture) -> View:
    """See how likely the objects are under a mixture, with errors as these parameters say."""
    values = layout.values(theta)
    objects = combined(rows, values)
    n, dim = objects.mean.shape
    size = mixture.n_components
    logs, t = np.empty((size, n)), np.empty((size, n, dim))
    precision = np.empty((size, n, dim, dim))
    for k in range(size):
        precision[k], log_det = inverse(objects.covariance + mixture.covariances[k])
        residual = objects.mean - mixture.means[k]
        t[k] = (precision[k] @ residual[:, :, None])[:, :, 0]
        distance = (residual * t[k]).sum(1) + log_det + dim * LOG_2PI
        logs[k] = np.log(mixture.weights[k]) - 0.5 * distance
    between = np.logaddexp.reduce(logs, axis=0)
    log_p, q = between + objects.within, np.exp(logs - between)
    total = float(rows.weights @ log_p)
    return View(rows, layout, theta, mixture, values, objects, total, log_p, q, t, precision)


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
    if matrices.shape[1] == 2:  # ten times as fast by hand
        a, b, c = matrices[:, 0, 0], matrices[:, 0, 1], matrices[:, 1, 1]
        determinant = a * c - b * b
        found = np.empty_like(matrices)
        found[:, 0, 0], found[:, 1, 1] = c / determinant, a / determinant
        found[:, 0, 1] = found[:, 1, 0] = -b / determinant
        return found, np.log(determinant)
    found = np.asarray(np.linalg.inv(matrices), np.float64)
    return found, np.linalg.slogdet(matrices)[1]
