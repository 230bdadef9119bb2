r"""Ranks of real values among simulated ones, for rows whose law depends on what was measured.

The law of a count is another one for each count that might have been, so that simulated rows cannot
be looked at with the law of the real one. Its rank among values simulated for the same row can:
with equal values in a random order it is uniform if the model is right. A fit follows its rows, by
which these ranks are a little too even: the test is on the safe side.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.special import eval_legendre
from scipy.stats import chi2

from deconflow._types import Array
from deconflow.findings import Finding
from deconflow.observations import Observations
from deconflow.randomness import isolated_rng
from deconflow.trust.comparison import of_smallest
from deconflow.trust.fit_tests import DEGREES
from deconflow.trust.table import Sampler, chosen_rows

DRAWS = 19


def ranks(data: Observations, sample: Sampler, seed: int) -> Array:
    """Return the share of simulated values below each real one, ``(N, M)``, ties at random."""
    drawn = sample(DRAWS * len(data), seed).reshape(DRAWS, len(data), -1)
    real = data.w.numpy()
    below, equal = np.zeros(real.shape), np.zeros(real.shape)
    with isolated_rng(seed):
        for each in drawn:
            simulated = data.remeasure(torch.from_numpy(each)).w.numpy()
            below += simulated < real
            equal += simulated == real
    u = np.random.default_rng(seed).uniform(size=real.shape)
    return (below + u * (1 + equal)) / (1 + DRAWS)


def columns_by_ranks(data: Observations, sample: Sampler, names: list[str], seed: int) -> Finding:
    """Compare the values of each column with those simulated for the same rows."""
    data = data[torch.from_numpy(chosen_rows(data, np.random.RandomState(seed)))]
    share = ranks(data, sample, seed)
    weights = np.ones(len(data)) if data.weights is None else data.weights.numpy()
    seen = np.ones(share.shape, bool) if data.observed is None else data.observed.numpy()
    statistics = []
    for d in range(len(names)):
        own, u = weights[seen[:, d]], share[seen[:, d], d]
        shapes = [np.sqrt(2 * k + 1) * eval_legendre(k, 2 * u - 1) for k in DEGREES]
        sums = np.array([own @ shape for shape in shapes])
        statistics.append(float(np.square(sums).sum() / max(np.square(own).sum(), 1e-300)))
    p = [float(chi2.sf(each, len(DEGREES))) for each in statistics]
    worst = int(np.argmin(p))
    numbers = dict(zip(names, p, strict=True))
    return Finding("columns", of_smallest(p), 0.5 * statistics[worst], (names[worst],), numbers)
