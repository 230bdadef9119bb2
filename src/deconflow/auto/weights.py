r"""Weights of candidates, learned on rows that none of them has seen.

.. math:: \max_a \; \sum_i \omega_i \log \sum_c a_c \, p_c(w_i) + \sum_c \kappa_c \log a_c

over weights :math:`a` that sum to one, with the :math:`p_c` of fits that left row :math:`i` out.
The differences between good candidates are as small as their errors, and then the best weights
jump with the rows: so the rows are drawn anew many times (Bayesian bootstrap), and the answers
averaged. Where the rows can tell, all answers agree; where they cannot, their average is near
even, but for what the prior knows: :math:`\kappa_c` rows more than there are speak for each
candidate (:func:`weigh`). A density that is too rough costs far more in :math:`\log p(v)` than
one that is too smooth, and noisy rows hardly see it.

References
----------
Yao, Vehtari, Simpson, Gelman (2018), "Using stacking to average Bayesian predictive
distributions", https://arxiv.org/abs/1704.02030
"""

from collections.abc import Callable

import numpy as np

from deconflow._types import Array, IntArray
from deconflow.auto.candidates import Candidate

#: What counts as the log-likelihood of a row that a candidate thinks impossible.
IMPOSSIBLE = -1e5
#: Rows that weigh candidates: so many can tell what there is to tell.
MOST_WEIGHED = 200_000
BOOTSTRAPS = 40
#: Candidates of less weight are not carried: where they are good they hardly help.
SMALLEST_SHARE = 0.1
STEPS, HALVINGS, PRECISE = 60, 30, 1e-9


def compared(candidates: list[Candidate]) -> tuple[Array, IntArray]:
    """Return ``(C, n)`` log-likelihoods of the rows that all candidates were scored on, and these.

    The rows are given by their numbers.
    """
    log_p = np.stack([each.held_out for each in candidates])
    rows = np.flatnonzero(~np.isnan(log_p).any(axis=0))
    return np.maximum(log_p[:, rows], IMPOSSIBLE), rows


def weigh(
    candidates: list[Candidate], row_weights: Array, dim: int, rng: np.random.RandomState
) -> Array:
    """Return the shares of candidates, by the rows that all of them were scored on."""
    log_p, rows = compared(candidates)
    if len(rows) > MOST_WEIGHED:
        some = np.linspace(0, len(rows) - 1, MOST_WEIGHED).astype(int)
        log_p, rows = log_p[:, some], rows[some]
    # Rows that are added in favour of each kind. More in one column for log-splines: they are
    # smoother. For flows more the more rows there are, since rows undervalue them: each is scored
    # by the one or two flows that have not seen it, and the answer averages all, which is what
    # flows gain most by.
    spline, flows = 5.0 if dim == 1 else 1.0, 0.2 * float(np.sqrt(len(rows)))
    prior = {"mixtures": 0.5, "spline": spline, "bayes": 1.0, "flows": flows}
    return stack(log_p, row_weights[rows], np.array([prior[each.name] for each in candidates]), rng)


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

    def value_of(a: Array) -> float:
        return float(weights @ np.log(a @ p) + prior @ np.log(a))

    size = len(start)
    system = np.ones((size + 1, size + 1))  # its last row keeps the sum of the weights
    system[size, size] = 0.0
    a, value = start, value_of(start)
    for _ in range(STEPS):
        ratio = p / (a @ p)
        system[:size, :size] = -(ratio * weights) @ ratio.T - np.diag(prior / np.square(a))
        step = np.linalg.solve(system, np.append(-(ratio @ weights + prior / a), 0.0))[:size]
        a_next, value_next = _inside(value_of, a, value, step)
        if value_next - value <= PRECISE:
            return a_next
        a, value = a_next, value_next
    return a


def _inside(
    value_of: Callable[[Array], float], a: Array, value: float, step: Array
) -> tuple[Array, float]:
    """Shorten a step until all weights are positive and the value does not fall."""
    down = step < 0
    length = min(1.0, float((0.95 * a[down] / -step[down]).min(initial=np.inf)))
    for _ in range(HALVINGS):
        tried = a + length * step
        found = value_of(tried)
        if found >= value:
            return tried, found
        length /= 2
    return a, value
