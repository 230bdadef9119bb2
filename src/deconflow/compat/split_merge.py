r"""Split-and-merge: out of a local maximum, by merging two components and splitting a third."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.xd import (
    Constraints,
    EMResult,
    KernelRows,
    Stopping,
    Sums,
    em,
    expectation,
    with_floor,
)

Path = list[float | None]


def split_and_merge(
    start: GaussianMixture,
    rows: KernelRows,
    constraints: Constraints,
    stopping: Stopping,
    depth: int,
) -> tuple[EMResult, Path]:
    """Fit, and improve the fit as long as one of the ``depth`` best moves raises the likelihood.

    With the path of accepted likelihoods; None stands for a blank.

    References
    ----------
    Ueda, Nakano, Ghahramani, Hinton (2000), "SMEM Algorithm for GaussianMixture Models"
    """
    rng = np.random.RandomState(0)
    result = em(start, rows, constraints, stopping)
    path: Path = [*result.history, None]
    improved = depth > 0 and start.n_components >= 3 and np.isfinite(result.log_likelihood)
    while improved:
        improved = False
        sums = expectation(result.mixture, rows, moments=False, responsibilities=True)
        for merged, other, split in islice(_moves(result.mixture, sums), depth):
            moved = _move(result.mixture, (merged, other, split), constraints, rng)
            partial = em(moved, rows, constraints.but_for([merged, other, split]), stopping)
            full = em(partial.mixture, rows, constraints, stopping)
            if full.log_likelihood > result.log_likelihood + max(stopping.tol, 1e-12):
                path += [*partial.history, None, *full.history, None]
                result, improved = full, True
                break
    return result, path


def _moves(mixture: GaussianMixture, sums: Sums) -> Iterator[tuple[int, int, int]]:
    """Triples (merge, merge, split), most promising first."""
    q = sums.responsibilities
    assert q is not None
    K = len(mixture.weights)
    overlap = q.T @ q
    misfit = _misfit(mixture, q, sums.log_p)
    pairs = [(i, j) for i in range(K) for j in range(i + 1, K)]
    for i, j in sorted(pairs, key=lambda pair: -overlap[pair]):
        for k in np.argsort(-misfit):
            if k not in (i, j):
                yield i, j, int(k)


def _misfit(mixture: GaussianMixture, q: Array, log_p: Array) -> Array:
    """Divergence of each component's own rows from its density of them."""
    share = q / np.maximum(q.sum(0), 1e-300)
    log_q = np.log(np.maximum(q, 1e-300))
    log_density = log_q + log_p[:, None] - np.log(np.maximum(mixture.weights, 1e-300))
    return (share * (np.log(np.maximum(share, 1e-300)) - log_density)).sum(0)


def _move(
    mixture: GaussianMixture,
    move: tuple[int, int, int],
    constraints: Constraints,
    rng: np.random.RandomState,
) -> GaussianMixture:
    i, j, k = move
    weights, means = mixture.weights.copy(), mixture.means.copy()
    covariances = mixture.covariances.copy()
    both = max(weights[i] + weights[j], 1e-300)
    means[i] = (weights[i] * means[i] + weights[j] * means[j]) / both
    covariances[i] = (weights[i] * covariances[i] + weights[j] * covariances[j]) / both
    weights[i], half = weights[i] + weights[j], 0.5 * weights[k]
    weights[j] = weights[k] = half
    covariances = with_floor(covariances, 1e-12 * np.eye(mixture.dim))
    step = np.linalg.cholesky(covariances[k]) @ rng.standard_normal(mixture.dim)
    means[j], means[k] = means[k] + 0.5 * step, means[k] - 0.5 * step
    size = np.exp(np.linalg.slogdet(covariances[k])[1] / mixture.dim)
    covariances[j] = covariances[k] = size * np.eye(mixture.dim)
    covariances = with_floor(covariances, constraints.floor)
    fixed = constraints.fixed_weights
    weights[fixed] = mixture.weights[fixed]
    kept = constraints.kept(mixture, weights, means, covariances)
    return GaussianMixture(weights, kept.means, kept.covariances)
