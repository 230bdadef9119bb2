"""Posterior samples of rows, where the fitted density is."""

import numpy as np

from deconflow.trust.check import Case, Check, Finding

#: Rows of which fewer kept samples count are not covered; share of such rows that is a caution.
FEWEST_SAMPLES, MOST_UNCOVERED = 2.0, 0.05


def _test(case: Case) -> Finding | None:
    """Effective number of each row's samples, with weights density / prior.

    Only the samples that the noise has kept are counted.
    """
    if case.samples is None:
        return None
    data, log_prob = case.samples
    samples = data.noise.kept
    assert samples is not None
    w = np.asarray(data.w)[:, None] + np.asarray(samples.offsets)
    log_p = log_prob(w.reshape(-1, data.dim).astype(np.float64)).reshape(w.shape[:2])
    log_p -= np.maximum(log_p.max(1, keepdims=True), -1e300)
    weight = np.exp(log_p) * np.asarray(samples.weights, np.float64)
    size = np.square(weight.sum(1)) / np.maximum(np.square(weight).sum(1), 1e-300)
    share = float(np.mean(size < FEWEST_SAMPLES))
    numbers = {"share": share, "fewest": FEWEST_SAMPLES, "draws": float(w.shape[1])}
    return Finding(p=float(share <= MOST_UNCOVERED), numbers=numbers)


CHECK = Check(
    "posterior samples", "rows with almost none where the fitted density is; below 5 % is good",
    _test,
    "in {share:.0%} of the rows fewer than {fewest:.0f} of {draws:.0f} posterior samples lie where "
    "the fitted density is: the result for these rows depends on the shape of the Gaussians fitted "
    "to their samples. Draw more samples, or under a wider prior",
    "too few in {share:.1%} of rows", kind="count",
)  # fmt: skip
