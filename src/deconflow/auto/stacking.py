r"""Weights of candidates, learned on rows that none of them has seen.

.. math:: \max_a \; \sum_i \omega_i \log \sum_c a_c \, p_c(w_i) + \sum_c \kappa_c \log a_c

over weights :math:`a` that sum to one, with the :math:`p_c` of fits that left row :math:`i` out.
The differences between good candidates are as small as their errors, and then the best weights
jump with the rows: so the rows are drawn anew many times (Bayesian bootstrap), and the answers
averaged. Where the rows can tell, all answers agree; where they cannot, their average is near
even, but for what the prior knows: :math:`\kappa_c` rows more than there are speak for each
candidate. A density that is too rough costs far more in :math:`\log p(v)` than one that is too
smooth, and noisy rows hardly see it: see :func:`~deconflow.auto.candidates.prior_rows`.

References
----------
Yao, Vehtari, Simpson, Gelman (2018), "Using stacking to average Bayesian predictive
distributions", https://arxiv.org/abs/1704.02030
"""

import numpy as np

from deconflow._types import Array

BOOTSTRAPS = 40
#: Candidates of less weight are not carried: where they are good they hardly help.
SMALLEST_SHARE = 0.1
STEPS, HALVINGS, PRECISE = 60, 30, 1e-9


def stack(log_p: Array, weights: Array, prior: Array, rng: np.random.RandomState) -> Array:
    """Return the weights ``(C,)`` of candidates; those that get next to nothing get zero.

    Parameters
    ----------
    log_p
        ``(C, N)`` log-likelihoods of rows by fits that have not seen them.
    weights
        ``(N,)`` row weights.
    prior
        ``(C,)``: how many rows more speak for each; positive.
    rng
        Draws the rows anew.
    """
    p = np.exp(log_p - log_p.max(axis=0))
    average = np.zeros(len(p))
    start = best_weights(p, weights, prior, prior / prior.sum())
    for _ in range(BOOTSTRAPS):
        drawn = weights * rng.standard_exponential(len(weights))
        drawn *= weights.sum() / drawn.sum()
        average += best_weights(p, drawn, prior, start) / BOOTSTRAPS
    kept = np.where(average >= SMALLEST_SHARE, average, 0.0)
    return kept / kept.sum()


def best_weights(p: Array, weights: Array, prior: Array, start: Array) -> Array:
    """Maximise the penalised likelihood by Newton's steps that stay inside.

    It is concave, and the penalty keeps all weights positive: there is one maximum.
    """
    a, value = start, _value(p, weights, prior, start)
    for _ in range(STEPS):
        ratio = p / (a @ p)
        gradient = ratio @ weights + prior / a
        hessian = -(ratio * weights) @ ratio.T - np.diag(prior / np.square(a))
        step = _newton_step(gradient, hessian)
        a_next, value_next = _inside(p, weights, prior, a, value, step)
        if value_next - value <= PRECISE:
            return a_next
        a, value = a_next, value_next
    return a


def _newton_step(gradient: Array, hessian: Array) -> Array:
    """Solve for the step that keeps the sum of the weights."""
    size = len(gradient)
    system = np.ones((size + 1, size + 1))
    system[:size, :size] = hessian
    system[size, size] = 0.0
    return np.linalg.solve(system, np.append(-gradient, 0.0))[:size]


def _inside(
    p: Array, weights: Array, prior: Array, a: Array, value: float, step: Array
) -> tuple[Array, float]:
    """Shorten a step until all weights are positive and the value does not fall."""
    down = step < 0
    length = min(1.0, float((0.95 * a[down] / -step[down]).min(initial=np.inf)))
    for _ in range(HALVINGS):
        tried = a + length * step
        found = _value(p, weights, prior, tried)
        if found >= value:
            return tried, found
        length /= 2
    return a, value


def _value(p: Array, weights: Array, prior: Array, a: Array) -> float:
    return float(weights @ np.log(a @ p) + prior @ np.log(a))
