"""Checks that count: few rows, copies, posterior samples, errors that were learned."""

from typing import Any

import numpy as np

from deconflow.trust.check import GROUPS, LIKELIHOOD, Case, Check, Finding
from deconflow.xd import n_parameters

# Number of rows, for a single Gaussian.

#: Fewer rows per parameter of a single Gaussian are few.
ROWS_PER_PARAMETER = 10


def _rows(case: Case) -> Finding:
    parameters = n_parameters(1, case.data.latent_dim)
    enough = case.n_rows >= ROWS_PER_PARAMETER * parameters
    numbers = {"rows": case.n_rows, "columns": case.data.dim, "parameters": parameters}
    return Finding(p=float(enough), numbers={name: float(n) for name, n in numbers.items()})


def _rows_caution(finding: Finding) -> str:
    numbers = finding.numbers
    return (
        f"{numbers['rows']:.0f} rows are few for {numbers['columns']:.0f} "
        f"column{'s' if numbers['columns'] > 1 else ''}: a single Gaussian has "
        f"{numbers['parameters']:.0f} parameters. Expect the density to be rough; use fewer columns"
    )


ROWS = Check(
    "number of rows", "at least ten per parameter of one Gaussian",
    _rows, _rows_caution,
    "{rows:.0f}", kind="count",
)  # fmt: skip


# Rows that repeat another one.

#: A larger share of rows that all but repeat another one is no chance.
NEAR_COPIES = 0.01


def _copies(case: Case) -> Finding:
    if case.grouped or not case.data.noise.additive:
        return Finding(reason=GROUPS if case.grouped else LIKELIHOOD)
    copies = case.repeated
    repeated = copies.surprising or copies.near_share > NEAR_COPIES
    numbers = {"share": copies.share if copies.surprising else 0.0, "near": copies.near_share}
    gain = repeated * max(numbers.values()) * len(case.data) * np.log(len(case.data))
    return Finding(p=float(not repeated), gain=float(gain), numbers=numbers)


def _copies_caution(finding: Finding) -> str:
    share, near = finding.numbers["share"], finding.numbers["near"]
    exact = f"{share:.0%} of the rows are exact copies of others"
    what = exact if near <= share else f"{near:.0%} of the rows all but repeat another one"
    return (
        f"{what}: they count as independent measurements, and all error bars are too small. "
        "Drop the copies, or name rows that belong together by groups="
    )


COPIES = Check(
    "copies", "rows that repeat another one, more often than chance allows",
    _copies, _copies_caution,
    "{share:.1%} of rows", kind="count",
)  # fmt: skip


# Errors that the fit has estimated.


def _learned_figure(finding: Finding) -> str:
    numbers = finding.numbers
    words = [
        f"{name} {value:.3g} +- {numbers[f'error of {name}']:.2g}"
        for name, value in numbers.items()
        if f"error of {name}" in numbers
    ]
    if "groups" in numbers:
        words.append(
            f"zero points of {numbers['groups']:.0f} groups, up to "
            f"{numbers['largest zero point']:.2g} of a column's spread"
        )
    if "tied" in numbers:
        words.append(f"scale and jitter correlated by {numbers['tied']:.2f}")
    return ", ".join(words)


def _learned_caution(finding: Finding) -> str:
    return (
        f"the rows hardly determine the {', the '.join(finding.columns)}: the answer depends on "
        "the estimated errors, and its intervals ignore their uncertainty. Give replicates=, or "
        "state the errors"
    )


LEARNED = Check(
    "learned errors", "estimates of errors that were left open",
    lambda case: case.learned, _learned_caution, _learned_figure,
    kind="count",
)  # fmt: skip


# Posterior samples of rows, where the fitted density is.

#: Rows of which fewer kept samples count are not covered; share of such rows that is a caution.
FEWEST_SAMPLES, MOST_UNCOVERED = 2.0, 0.05


def _coverage(case: Case) -> Finding | None:
    """Effective number of each row's samples, with weights density / prior.

    Only the samples that the noise has kept are counted.
    """
    if case.samples is None:
        return None
    data, log_prob = case.samples
    samples: Any = data.noise.kept
    w = np.asarray(data.w)[:, None] + np.asarray(samples.offsets)
    log_p = log_prob(w.reshape(-1, data.dim).astype(np.float64)).reshape(w.shape[:2])
    log_p -= np.maximum(log_p.max(1, keepdims=True), -1e300)
    weight = np.exp(log_p) * np.asarray(samples.weights, np.float64)
    size = np.square(weight.sum(1)) / np.maximum(np.square(weight).sum(1), 1e-300)
    share = float(np.mean(size < FEWEST_SAMPLES))
    numbers = {"share": share, "fewest": FEWEST_SAMPLES, "draws": float(w.shape[1])}
    return Finding(p=float(share <= MOST_UNCOVERED), numbers=numbers)


COVERAGE = Check(
    "posterior samples", "rows with almost none where the fitted density is; below 5 % is good",
    _coverage,
    "in {share:.0%} of the rows fewer than {fewest:.0f} of {draws:.0f} posterior samples lie where "
    "the fitted density is: the result for these rows depends on the shape of the Gaussians fitted "
    "to their samples. Draw more samples, or under a wider prior",
    "too few in {share:.1%} of rows", kind="count",
)  # fmt: skip
