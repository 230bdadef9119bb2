"""All checks of a fit, in the order in which they are shown: a new one is a file and a line."""

from contextlib import suppress
from dataclasses import replace

from deconflow.certificate import Certificate, Finding
from deconflow.trust.case import Case
from deconflow.trust.causes import log_likelihood, refitted
from deconflow.trust.check import UNFIT, Check
from deconflow.trust.checks import (
    columns,
    copies,
    correlation,
    coverage,
    dependence,
    edges,
    factor,
    joint,
    learned,
    model,
    order,
    outliers,
    rows,
    skewness,
    swapped,
    tails,
)

CHECKS: dict[str, Check] = {
    "rows": rows.CHECK,
    "copies": copies.CHECK,
    "model": model.CHECK,
    "order": order.CHECK,
    "edges": edges.CHECK,
    "outliers": outliers.CHECK,
    "dependence": dependence.CHECK,
    "factor": factor.CHECK,
    "tails": tails.CHECK,
    "skewness": skewness.CHECK,
    "correlation": correlation.CHECK,
    "swapped": swapped.CHECK,
    "columns": columns.CHECK,
    "joint": joint.CHECK,
    "learned": learned.CHECK,
    "coverage": coverage.CHECK,
}
#: Once a test has objected to the noise, all that have such a p-value may be the reason.
SUSPECT = 0.05


def find_doubts(case: Case) -> tuple[Finding, ...]:
    """Check a fit and the rows that it was made of."""
    findings = {}
    for key, check in CHECKS.items():
        finding = check.made(case)
        if finding is not None:
            findings[key] = replace(finding, check=key, kind=check.kind)
    with suppress(*UNFIT):
        findings |= _with_causes(case, findings)
    return tuple(worded(each) for each in findings.values())


def worded(finding: Finding) -> Finding:
    """Put a finding into the words of its check."""
    return CHECKS[finding.check].worded(finding)


def _with_causes(case: Case, findings: dict[str, Finding]) -> dict[str, Finding]:
    """Where a test objects to the noise, fit what may be the reason, and mark the best."""
    cautions = Certificate(findings=tuple(findings.values())).cautions
    if not any(each.kind == "noise" for each in cautions):
        return {}
    noisy = {key: each for key, each in findings.items() if each.kind == "noise"}
    suspects = {key: each for key, each in noisy.items() if each.p is not None and each.p < SUSPECT}
    usual = log_likelihood(case.of_noise, case.of_noise.data.noise)
    for key, finding in suspects.items():
        alternatives = CHECKS[key].alternatives
        if alternatives is not None:
            laws = alternatives(case.of_noise, finding)
            suspects[key] = refitted(case.of_noise, finding, laws, usual)
    best = max(suspects, key=lambda key: suspects[key].gain)
    return suspects | {best: replace(suspects[best], explains=True)}
