r"""The penalised likelihood of a log density, and how much to smooth.

.. math:: \max_\beta \; \sum_i c_i \log p_i(\beta) - \tfrac12 \beta' P \beta, \quad
          \log p = B \beta - \log Z, \quad P = \sum_j \lambda_j S_j

Newton's steps use the complete information :math:`J = N \, cov_q(B)` and the Hessian
:math:`H = J - [B' diag(r) B - \sum_i c_i E_i E_i']`. Noisy rows make H indefinite far from the
answer; then :math:`H + P + \tau J` is used, damped by J rather than by the identity so that
directions in which rows tell little may still move far.

The smoothing parameters maximise the Laplace approximation of the marginal likelihood by the
steps of Fellner and Schall (Wood and Fasiolo 2017, "A generalized Fellner-Schall method",
Biometrics 73),

.. math:: \lambda_j \leftarrow \lambda_j \,
          \frac{tr(P^- S_j) - tr((H + P)^{-1} S_j)}{\beta' S_j \beta}
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from deconflow._types import Array

#: Rows on a line or on a plane: ``LineLikelihood`` or ``PlaneLikelihood``.
Likelihood = Any
DAMPING = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
MOST_ROUNDS, MOST_HALVINGS = 200, 12
#: Smoothing changes once a Newton step gains less than so many nats, until the number of
#: parameters that it holds changes by less than such a share of all.
CLOSE, SETTLED, MOST_UPDATES = 0.3, 2e-4, 60
#: A fit has converged when a step gains less than so many nats per parameter.
CONVERGED = 1e-4
#: Largest ratio of two steps that is believed.
SLOWEST = 0.9
#: Degrees of freedom of the law to start from.
HEAVY = 4.0
#: Largest change of a log density by a step that was too long.
MOST_CHANGE = 20.0
#: Largest change of the logarithm of a smoothing parameter in one step.
LONGEST = 2.0
RANGE = (1e-7, 1e5)
#: Least density of a row on the way to an answer, so that no share of it overflows.
SMALLEST = 1e-200


class Penalty:
    r"""Penalties with a common null space, in coordinates in which they are well conditioned.

    Coefficients are :math:`\beta = T \theta`: first the null space (polynomials) without the
    constant, which changes no density, then directions in which the sum of all penalties is the
    identity. So a null space stays one however large a smoothing parameter becomes.

    Attributes
    ----------
    basis : array
        ``T``, ``(coefficients, parameters)``.
    parts : array
        ``(J, parameters, parameters)``: the penalties on ``theta``.
    """

    def __init__(self, parts: Array, null: Array) -> None:
        q, _ = np.linalg.qr(null, mode="complete")
        outside = q[:, null.shape[1] :]
        sizes, vectors = np.linalg.eigh(outside.T @ parts.sum(0) @ outside)
        scaled = outside @ (vectors / np.sqrt(sizes))
        before = null.shape[1] - 1
        self.basis = np.concatenate([q[:, 1 : before + 1], scaled], axis=1)
        inner = np.stack([scaled.T @ S @ scaled for S in parts])
        self.parts = np.pad(inner, ((0, 0), (before, 0), (before, 0)))
        self._inner = self.parts[:, before:, before:]

    def parameters(self, beta: Array) -> Array:
        """Return the parameters of some coefficients, to a constant."""
        return np.linalg.lstsq(self.basis, beta - beta.mean(), rcond=None)[0]

    def matrix(self, strength: Array) -> Array:
        """Return ``P``."""
        return np.tensordot(strength, self.parts, 1)

    def traces(self, strength: Array) -> Array:
        """Traces of ``P^- S_j``."""
        if len(self.parts) == 1:
            return len(self._inner[0]) / strength
        P = np.tensordot(strength, self._inner, 1)
        try:
            factor = cho_factor(P, lower=True)
        except LinAlgError:
            # The parts sum to the identity, so that the smallest strength bounds the eigenvalues;
            # the rounding of one part times the largest strength can exceed it.
            sizes, vectors = np.linalg.eigh(P)
            P = (vectors * np.maximum(sizes, strength.min())) @ vectors.T
            factor = cho_factor(P, lower=True)
        return np.array([np.trace(cho_solve(factor, S)) for S in self._inner])


@dataclass(frozen=True)
class Point:
    """The likelihood and its derivatives at some parameters.

    Attributes
    ----------
    theta : array
        Parameters; see :class:`Penalty`.
    log_p : float
        ``sum c_i log p_i``, to a constant.
    explained : float
        Sum of the counts of rows that the density can explain at all.
    gradient, information, hessian : array
        The gradient, ``J`` and ``H``.
    """

    theta: Array
    log_p: float
    explained: float
    gradient: Array
    information: Array
    hessian: Array


@dataclass(frozen=True)
class Fitted:
    """An answer of :func:`maximise`.

    Attributes
    ----------
    penalty : Penalty
        What was penalised.
    point : Point
        Where it is.
    strength : array
        Smoothing parameters.
    free : float
        Number of parameters that the smoothing leaves free.
    rounds : int
        Number of Newton steps.
    converged : bool
        Whether these sufficed.
    """

    penalty: Penalty
    point: Point
    strength: Array
    free: float
    rounds: int
    converged: bool


def log_start(squares: Array) -> Array:
    """Log density of the law that fits start from, at points of these squared distances from 0.

    Student's t with heavy tails: under a normal law rows that lie far out have no density at all,
    and nothing tells a step where to go.
    """
    return -0.5 * (HEAVY + 1) * np.log1p(squares / HEAVY)


def masses(rows: Likelihood, beta: Array) -> Array:
    """Return ``q``, the masses of all nodes, which sum to one."""
    values = rows.values(beta)
    q = np.exp(values - values.max()) * rows.mass
    return q / q.sum()


def _look(rows: Likelihood, T: Array, theta: Array) -> Point:
    q = masses(rows, T @ theta)
    log_p, counts, curved, between = rows.expect(q)
    mean = rows.project(q)
    information = rows.row_counts.sum() * (rows.second(q) - np.outer(mean, mean))
    hessian = information - rows.second(curved) + between
    explained = float(counts.sum())
    gradient = rows.project(counts) - explained * mean
    inside = [T.T @ matrix @ T for matrix in (information, hessian)]
    return Point(theta, log_p, explained, gradient @ T, *inside)


def maximise(
    rows: Likelihood,
    penalty: Penalty,
    theta: Array,
    strength: Array,
    *,
    choose: bool = True,
    rounds_at_most: int = MOST_ROUNDS,
) -> Fitted:
    """Maximise the penalised likelihood; with ``choose`` find the smoothing parameters too."""
    point = _look(rows, penalty.basis, theta)
    P = penalty.matrix(strength)
    settled, updates, before = not choose, 0, np.inf
    last, converged, rounds = np.zeros(len(strength)), False, 0
    while rounds < rounds_at_most:
        rounds += 1
        slope = point.gradient - P @ point.theta
        step = cho_solve(solver(point.hessian, point.information, P), slope)
        gain = 0.5 * float(slope @ step)
        point, moved = _line_search(rows, penalty.basis, point, P, step)
        if gain < CLOSE and not settled:
            chosen, held = _fellner_schall(point, penalty, strength, P)
            chosen = _extrapolated(strength, chosen, last)
            last = np.log(chosen / strength)
            updates += 1
            settled = updates == MOST_UPDATES or abs(held - before) < SETTLED * len(P)
            strength, P, before = chosen, penalty.matrix(chosen), held
            continue
        converged = gain < CLOSE and (gain < CONVERGED * len(P) or not moved)
        if converged or not moved:
            break
    free = len(P) - float(strength @ _used(point, penalty, P))
    return Fitted(penalty, point, strength, free, rounds, converged)


def solver(hessian: Array, information: Array, P: Array) -> tuple[Array, bool]:
    """Factor ``H + P + tau J`` with the least tau that makes it positive definite."""
    for tau in DAMPING:
        try:
            return cho_factor(hessian + P + tau * information, lower=True)
        except LinAlgError:
            continue
    ridge = 1e-9 * np.trace(information + P) / len(P)
    return cho_factor(information + P + ridge * np.eye(len(P)), lower=True)


def _line_search(
    rows: Likelihood, T: Array, point: Point, P: Array, step: Array
) -> tuple[Point, bool]:
    """Shorten a step until it gains; most do at once.

    Where there is no mass the Hessian sets no limit: a step that does not gain is first cut to one
    that changes the log density by so much, then halved.
    """
    before = point.log_p - 0.5 * point.theta @ P @ point.theta
    new = _look(rows, T, point.theta + step)
    if new.log_p - 0.5 * new.theta @ P @ new.theta >= before:
        return new, True
    shorter = min(0.5, MOST_CHANGE / float(np.ptp(rows.values(T @ step))))
    for _ in range(MOST_HALVINGS):
        step, shorter = shorter * step, 0.5
        theta = point.theta + step
        log_p = rows.log_likelihood(masses(rows, T @ theta))
        if log_p - 0.5 * theta @ P @ theta >= before:
            return _look(rows, T, theta), True
    return point, False


def _fellner_schall(
    point: Point, penalty: Penalty, strength: Array, P: Array
) -> tuple[Array, float]:
    """Return new smoothing parameters, and how many parameters the old ones hold."""
    used = _used(point, penalty, P)
    rough = np.einsum("i,kij,j->k", point.theta, penalty.parts, point.theta)
    ratio = np.maximum(penalty.traces(strength) - used, 1e-300) / np.maximum(rough, 1e-300)
    new = strength * np.clip(ratio, np.exp(-LONGEST), np.exp(LONGEST))
    return np.clip(new, *RANGE), float(strength @ used)


def _extrapolated(strength: Array, chosen: Array, last: Array) -> Array:
    """Lengthen a step that shrinks slowly to where its series ends; for one parameter alone.

    Near the answer steps shrink by a constant ratio, and small ones may still have far to go.
    """
    step = np.log(chosen / strength)
    if len(step) > 1 or last[0] * step[0] <= 0:
        return chosen
    ratio = min(step[0] / last[0], SLOWEST)
    longer = np.clip(step / (1 - ratio), -LONGEST, LONGEST)
    return np.clip(strength * np.exp(longer), *RANGE)


def _used(point: Point, penalty: Penalty, P: Array) -> Array:
    """Traces of ``(H + P)^-1 S_j``."""
    factor = solver(point.hessian, point.information, P)
    return np.array([np.trace(cho_solve(factor, S)) for S in penalty.parts])
