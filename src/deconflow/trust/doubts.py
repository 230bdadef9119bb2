"""All checks of a fit, and the causes of what they object to."""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from deconflow.certificate import Certificate, Finding
from deconflow.noise import Noise
from deconflow.trust.check import FLOOR, UNFIT, Case, Table
from deconflow.trust.checks import CHECKS
from deconflow.xd import FitSettings, PreparedData, Stopping

#: Once a test has objected to the noise, all that have such a p-value may be the reason.
SUSPECT = 0.05
#: Steps of EM at most; fewer where the noise is a mixture of Gaussians, and each takes long.
STEPS, STEPS_OF_MANY = 200, 60


def find_doubts(case: Case) -> tuple[Finding, ...]:
    """Check a fit and the rows that it was made of."""
    made = {key: check.made(case) for key, check in CHECKS.items()}
    findings = {
        key: replace(each, check=key, kind=CHECKS[key].kind)
        for key, each in made.items()
        if each is not None
    }
    with suppress(*UNFIT):
        findings |= _with_causes(case, findings)
    return tuple(CHECKS[key].worded(each) for key, each in findings.items())


def _with_causes(case: Case, findings: dict[str, Finding]) -> dict[str, Finding]:
    """Where a test objects to the noise, fit what may be the reason, and mark the best.

    Several tests may object at once, since errors that are too small look like heavy tails, too.
    """
    cautions = Certificate(findings=tuple(findings.values())).cautions
    if not any(each.kind == "noise" for each in cautions):
        return {}
    usual = _log_likelihood(case.of_noise, case.of_noise.data.noise)
    suspects = {
        key: _refitted(case.of_noise, each, usual)
        for key, each in findings.items()
        if each.kind == "noise" and each.p is not None and each.p < SUSPECT
    }
    best = max(suspects, key=lambda key: suspects[key].gain)
    return suspects | {best: replace(suspects[best], explains=True)}


def _refitted(table: Table, finding: Finding, usual: float) -> Finding:
    """Fit every alternative of a check, and keep the best, with its gain in log-likelihood."""
    check, fits = CHECKS[finding.check], []
    for size in check.sizes:
        with suppress(*UNFIT):  # not every correlation is possible with the others
            numbers, noise = check.alternative(table, finding, size)
            fits.append((_log_likelihood(table, noise), numbers))
    if not fits:
        return finding
    best, numbers = max(fits, key=lambda fit: fit[0])
    better = numbers if best > usual else {}
    return replace(finding, gain=max(best - usual, 0.0), numbers=finding.numbers | better)


def _log_likelihood(table: Table, noise: Noise) -> float:
    """Log-likelihood of all rows that are looked at, by the mixture fitted under this noise."""
    data = replace(table.data, noise=noise)
    steps = STEPS if noise.as_mixture().n_parts == 1 else STEPS_OF_MANY
    stopping = Stopping(tol=1e-6, max_iter=steps, accelerate=True)
    settings = FitSettings(table.mixture.n_components, floor=FLOOR, stopping=stopping)
    fitted = PreparedData(data).fit(settings, np.random.RandomState(0), table.mixture)
    return len(data) * fitted.log_likelihood
