"""Which noise explains the rows best: the mixture is fitted again under each that is likely.

Tests of the noise say that something is wrong; several may speak at once, since errors that are too
small look like heavy tails, too. Here each alternative is fitted.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from deconflow.certificate import Finding
from deconflow.noise import Noise
from deconflow.trust.check import UNFIT, Alternative
from deconflow.trust.table import FLOOR, Table
from deconflow.xd import FitSettings, PreparedData, Stopping

#: Of EM at most; fewer where the noise is a mixture of Gaussians, and each takes long.
STEPS, STEPS_OF_MANY = 200, 60


def refitted(
    table: Table, finding: Finding, alternatives: Iterable[Alternative], usual: float
) -> Finding:
    """Fit every alternative, and keep the best, with its gain in log-likelihood."""
    fits = []
    for numbers, law in alternatives:
        with suppress(*UNFIT):  # not every correlation is possible with the others
            fits.append((log_likelihood(table, law()), numbers))
    if not fits:
        return finding
    best, numbers = max(fits, key=lambda fit: fit[0])
    better = numbers if best > usual else {}
    return replace(finding, gain=max(best - usual, 0.0), numbers=finding.numbers | better)


def log_likelihood(table: Table, noise: Noise) -> float:
    """Log-likelihood of all rows that are looked at, by the mixture fitted under this noise."""
    data = replace(table.data, noise=noise)
    steps = STEPS if noise.as_mixture().n_parts == 1 else STEPS_OF_MANY
    stopping = Stopping(tol=1e-6, max_iter=steps, accelerate=True)
    settings = FitSettings(table.mixture.n_components, floor=FLOOR, stopping=stopping)
    fitted = PreparedData(data).fit(settings, np.random.RandomState(0), table.mixture)
    return len(data) * fitted.log_likelihood
