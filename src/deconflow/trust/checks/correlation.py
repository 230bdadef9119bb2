"""Correlation of the errors of two columns."""

from collections.abc import Iterator
from functools import partial
from itertools import combinations

import numpy as np

from deconflow.noise import GaussianNoise, Noise, gaussian
from deconflow.trust.check import Alternative, Case, Check, Finding, Table, restricted, worst

CORRELATIONS = (0.3, 0.6, 0.8, 0.95)


def _test(case: Case) -> Finding:
    table = case.of_noise
    sd, pairs = table.rows.sd, list(combinations(range(len(table.names)), 2))
    return worst(
        table, list(pairs),
        lambda each: table.view.by_covariance[..., each[0], each[1]]
        * (sd[:, each[0]] * sd[:, each[1]])[:, None],
    )  # fmt: skip


def _alternatives(table: Table, finding: Finding) -> Iterator[Alternative]:
    noise = table.data.noise
    if isinstance(noise, GaussianNoise):
        a, b = (table.names.index(name) for name in finding.columns)
        for size in CORRELATIONS:
            rho = float(np.sign(finding.numbers["z"])) * size
            yield {"correlation": rho}, partial(_correlated, noise, a, b, rho)


def _correlated(noise: GaussianNoise, a: int, b: int, rho: float) -> Noise:
    covariance = np.asarray(noise.covariance()).copy()
    both = rho * np.sqrt(covariance[:, a, a] * covariance[:, b, b])
    covariance[:, a, b] = covariance[:, b, a] = both
    return restricted(gaussian(covariance=covariance[0] if noise.shared else covariance), noise)


def _caution(finding: Finding) -> str:
    rho = finding.numbers.get("correlation")
    if rho is None:
        sign = "positively" if finding.numbers["z"] > 0 else "negatively"
        words = f"seem to be {sign} correlated (p {finding.p:.2g})"
    else:
        words = f"are correlated: {rho:+.1g} fits better by {finding.gain:.0f} nats"
    return f"the errors of {finding.where} {words}. Give covariances, or a column with correlations"


CHECK = Check(
    "correlated errors", "more than stated, between columns", _test, _caution,
    lambda f: f"most in {f.where}", "noise", _alternatives,
)  # fmt: skip
