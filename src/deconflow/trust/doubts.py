"""All checks of a fit, in the order in which they are shown: a new one is a file and a line."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from deconflow.certificate import EXPLAINED, Certificate, Finding
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.trust.check import FLOOR, UNFIT, Case, Check, Table
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
from deconflow.xd import FitSettings, PreparedData, Stopping

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
#: What a cause gains at least in log-likelihood, where a mixture is fitted with and without it.
LEAST_GAIN = 4.0
#: What a cause must gain more to come before a plainer one.
PLAINER = 10.0
#: Rows as they would be with a cause, and the mixture that fits them.
Changed = tuple[Observations, GaussianMixture]
REFUTED = "but nothing of the kind that was tried fits better"
#: Causes that are taken into account, one after the other.
MOST_CAUSES = 3
#: Steps of EM at most; fewer where the noise is a mixture of Gaussians, and each takes long.
STEPS, STEPS_OF_MANY = 200, 60


def find_doubts(case: Case) -> tuple[Finding, ...]:
    """Check a fit and the rows that it was made of."""
    findings = _made(case, CHECKS)
    limit = Certificate(findings=tuple(findings.values())).limit
    with suppress(*UNFIT):
        findings |= _with_causes(case, findings, limit)
    return tuple(worded(each) for each in findings.values())


def worded(finding: Finding) -> Finding:
    """Put a finding into the words of its check."""
    return CHECKS[finding.check].worded(finding)


def _made(case: Case, names: Iterable[str]) -> dict[str, Finding]:
    made = {name: CHECKS[name].made(case) for name in names}
    return {
        name: replace(found, check=name, kind=CHECKS[name].kind)
        for name, found in made.items()
        if found is not None
    }


def _below(findings: dict[str, Finding], limit: float) -> dict[str, Finding]:
    return {name: each for name, each in findings.items() if each.p is not None and each.p < limit}


def _with_causes(
    case: Case, findings: dict[str, Finding], limit: float, number: int = 1
) -> dict[str, Finding]:
    """Find the cause that fits best, and what is still wrong with it taken into account.

    Several tests may object at once, since errors that are too small look like heavy tails, too.
    """
    alarming = _below(findings, limit)
    noise = {name: each for name, each in findings.items() if each.kind == "noise"}
    open_to_it = any(each.kind in ("noise", "fit") for each in alarming.values())
    suspects = alarming | (_below(noise, SUSPECT) if open_to_it else {})
    usual = 0.0
    if any(CHECKS[name].alternative for name in suspects):
        usual = _fitted(case.of_noise, case.of_noise.data)[0]
    tried = {name: _refitted(case, each, usual) for name, each in suspects.items()}
    told = {name: each for name, (each, _) in tried.items() if name in alarming or not each.because}
    causes = [name for name, each in told.items() if not each.because]
    if not causes:
        return told
    best = max(causes, key=lambda name: (told[name].kind != "fit", told[name].gain))
    plainer = CHECKS[best].rather
    if plainer in alarming.keys() & causes and told[plainer].gain > told[best].gain - PLAINER:
        best = plainer
    told[best] = replace(told[best], explains=number)
    changed = tried[best][1]
    if changed is None or number == MOST_CAUSES:
        return told
    later = case.changed(*changed)
    others = [name for name in findings if name != best and name in alarming | noise]
    again = _made(later, [name for name in others if not _as_it_stands(CHECKS[name])])
    left = _below(again, limit)
    for name in (alarming.keys() & again.keys()) - left.keys():
        told[name] = replace(told[name], because=EXPLAINED + CHECKS[best].name)
    return told | left | _with_causes(later, again, limit, number + 1)


def _as_it_stands(check: Check) -> bool:
    return check.of_table or check.kind == "count"


def _refitted(case: Case, finding: Finding, usual: float) -> tuple[Finding, Changed | None]:
    """Fit every alternative of a check, and keep the best if its gain is enough."""
    check, fits = CHECKS[finding.check], []
    for size in check.sizes if check.alternative else ():
        with suppress(*UNFIT):  # not every correlation is possible with the others
            numbers, rows, volume = check.alternative(case.of_noise, finding, size)
            log_likelihood, mixture = _fitted(case.of_noise, rows)
            fits.append((log_likelihood - volume - usual, numbers, (rows, mixture)))
    if not fits:
        return finding, None
    gain, numbers, changed = max(fits, key=lambda fit: fit[0])
    if gain < LEAST_GAIN:
        return replace(finding, gain=0.0, because=REFUTED), None
    return replace(finding, gain=gain, numbers=finding.numbers | numbers), changed


def _fitted(table: Table, rows: Observations) -> tuple[float, GaussianMixture]:
    """Return the log-likelihood of rows by the mixture that is fitted to them, and the mixture."""
    steps = STEPS if rows.noise.as_mixture().n_parts == 1 else STEPS_OF_MANY
    stopping = Stopping(tol=1e-6, max_iter=steps, accelerate=True)
    settings = FitSettings(table.mixture.n_components, floor=FLOOR, stopping=stopping)
    fitted = PreparedData(rows).fit(settings, np.random.RandomState(0), table.mixture)
    return len(rows) * fitted.log_likelihood, fitted.mixture
