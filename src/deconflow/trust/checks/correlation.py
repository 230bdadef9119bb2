"""Correlation of the errors of two columns."""

from itertools import combinations

import numpy as np

from deconflow.trust.check import Alternative, Case, Check, Finding, Table, with_covariance, worst

CORRELATIONS = (0.3, 0.6, 0.8, 0.95)


def _test(case: Case) -> Finding:
    table = case.of_noise
    sd, pairs = table.rows.sd, list(combinations(range(len(table.names)), 2))
    return worst(
        table, list(pairs),
        lambda each: table.view.by_covariance[..., each[0], each[1]]
        * (sd[:, each[0]] * sd[:, each[1]])[:, None],
    )  # fmt: skip


def _alternative(table: Table, finding: Finding, size: float) -> Alternative:
    a, b = (table.names.index(name) for name in finding.columns)
    rho = float(np.sign(finding.numbers["z"])) * size
    covariance = np.array(table.data.noise.covariance())
    both = rho * np.sqrt(covariance[:, a, a] * covariance[:, b, b])
    covariance[:, a, b] = covariance[:, b, a] = both
    return {"correlation": rho}, table.under(with_covariance(table.data.noise, covariance)), 0.0


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
    "most in {where}", "noise", _alternative, CORRELATIONS,
)  # fmt: skip
