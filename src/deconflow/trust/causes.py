"""Which wrong noise explains the rows best: the mixture is fitted again under each that is likely.

The tests of :mod:`deconflow.trust.noise_tests` say that something is wrong; several may speak at
once, since errors that are too small look like heavy tails, too. Here each alternative is fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from deconflow.findings import Finding
from deconflow.noise import GaussianNoise, Noise, gaussian, student_t
from deconflow.observations import Observations
from deconflow.trust.table import FLOOR, Table
from deconflow.xd import FitSettings, PreparedData, Stopping

STEPS, STEPS_OF_MANY = 200, 60
"""Of EM at most; fewer where the noise is a mixture of Gaussians, and each takes long."""
FACTORS = (1.25, 1.5, 2.0, 3.0, 4.0)
DEGREES_OF_FREEDOM = (3.0, 6.0)
CORRELATIONS = (0.3, 0.6, 0.8, 0.95)


def with_causes(table: Table, findings: list[Finding]) -> list[Finding]:
    """Return findings about the noise with the gain in log-likelihood that each brings."""
    usual = log_likelihood(table, table.data.noise)
    return [_tried(table, finding, usual) for finding in findings]


def _tried(table: Table, finding: Finding, usual: float) -> Finding:
    """Fit every alternative of one kind, and keep the best."""
    fits = []
    for numbers, law in _alternatives(table, finding):
        with suppress(ValueError):  # not every correlation is possible beside the others
            fits.append((log_likelihood(table, law()), numbers))
    if not fits:
        return finding
    best, numbers = max(fits, key=lambda fit: fit[0])
    gain = best - usual
    better = numbers if gain > 0 else {}
    return replace(finding, gain=max(gain, 0.0), numbers=finding.numbers | better)


def _alternatives(
    table: Table, finding: Finding
) -> Iterator[tuple[dict[str, float], Callable[[], Noise]]]:
    """Yield laws to try."""
    noise = table.data.noise
    if finding.check == "factor":
        larger = finding.numbers["log_factor"] > 0
        for each in FACTORS:
            factor = each if larger else 1 / each
            changed = [not finding.columns or name in finding.columns for name in table.names]
            unit = torch.where(torch.tensor(changed), 1 / factor, 1.0).double()
            yield {"best": factor}, partial(noise.divide, unit)
    if not isinstance(noise, GaussianNoise):
        return
    if finding.check == "swapped":
        a, b = (table.names.index(name) for name in finding.columns)
        yield {}, partial(_exchanged, noise, a, b, table.units.measured_scale)
    if finding.check == "tails" and noise.diagonal and noise.factor.amin() > 0:
        for df in DEGREES_OF_FREEDOM:
            yield {"df": df}, partial(_heavy, noise, df)
    if finding.check == "correlation":
        a, b = (table.names.index(name) for name in finding.columns)
        for size in CORRELATIONS:
            rho = float(np.sign(finding.numbers["z"])) * size
            yield {"correlation": rho}, partial(_correlated, noise, a, b, rho)


def _heavy(noise: GaussianNoise, df: float) -> Noise:
    scale = noise.factor[0] if noise.shared else noise.factor
    return _restricted(student_t(scale, df), noise)


def _correlated(noise: GaussianNoise, a: int, b: int, rho: float) -> Noise:
    covariance = noise.covariance().clone()
    both = rho * (covariance[:, a, a] * covariance[:, b, b]).sqrt()
    covariance[:, a, b] = covariance[:, b, a] = both
    covariance = covariance[0] if noise.shared else covariance
    return _restricted(gaussian(covariance=covariance), noise)


def _exchanged(noise: GaussianNoise, a: int, b: int, scale: torch.Tensor) -> Noise:
    """Exchange the errors of two columns, in the units of the data."""
    order = list(range(noise.dim))
    order[a], order[b] = b, a
    ratio = scale[order] / scale
    covariance = noise.covariance()[:, order][:, :, order] * ratio * ratio[:, None]
    return gaussian(covariance=covariance[0] if noise.shared else covariance).bind(len(noise))


def _restricted(law: Noise, like: Noise) -> Noise:
    law = law.bind(len(like))
    return law if like.observed is None else law.restrict(like.observed)


def log_likelihood(table: Table, noise: Noise) -> float:
    """Log-likelihood of all rows that are looked at, by the mixture fitted under this noise."""
    data: Observations = replace(table.data, noise=noise)
    steps = STEPS if noise.as_mixture().n_parts == 1 else STEPS_OF_MANY
    stopping = Stopping(tol=1e-6, max_iter=steps, accelerate=True)
    settings = FitSettings(table.mixture.n_components, floor=FLOOR, stopping=stopping)
    fitted = PreparedData(data).fit(settings, np.random.RandomState(0), table.mixture)
    return len(data) * fitted.log_likelihood
