"""Skewness of the noise."""

from dataclasses import replace

import numpy as np

from deconflow.noise import GaussianNoise, split_normal
from deconflow.trust.check import (
    FEW,
    FEWEST_FOR_SHAPE,
    Alternative,
    Case,
    Check,
    Finding,
    Table,
    restricted,
    worst,
)

#: How many times as long one of the bars is as the other.
LEANINGS = (1.5, 2.5, 6.0)


def _test(case: Case) -> Finding:
    table = case.of_noise
    if len(table.data) < FEWEST_FOR_SHAPE:
        return Finding(reason=FEW)
    columns = [(d,) for d in range(len(table.names))]
    return worst(table, columns, lambda each: table.view.skewness[..., each[0]])


def _alternative(table: Table, finding: Finding, size: float) -> Alternative:
    """Lean the noise of the column in the direction of the finding; its moments stay."""
    noise = table.data.noise
    if not (isinstance(noise, GaussianNoise) and noise.diagonal and noise.factor.min() > 0):
        raise ValueError(f"Expected independent Gaussian noise; got {noise!r}.")
    sd = noise.factor[0] if noise.shared else noise.factor
    lean = np.where([name in finding.columns for name in table.names], size**0.5, 1.0)
    lower, upper = (lean, 1 / lean) if finding.numbers["z"] > 0 else (1 / lean, lean)
    law = split_normal(sd * lower, sd * upper)
    law = law.divide(np.sqrt(np.asarray(law.variance()) / np.square(sd)).reshape(-1, len(lean))[0])
    law = replace(law, location=-law.mean())
    return {"bars": size}, table.under(restricted(law, noise)), 0.0


def _caution(finding: Finding) -> str:
    towards, bar = ("high", "lower") if finding.numbers["z"] > 0 else ("low", "upper")
    words = f"seems to be skewed towards {towards} values (p {finding.p:.2g})"
    if "bars" in finding.numbers:
        words = (
            f"is skewed towards {towards} values: a split normal of mean zero, its {bar} bar "
            f"{finding.numbers['bars']:g} times the other, fits better by {finding.gain:.0f} nats"
        )
    return (
        f"the noise in {finding.where} {words}. Use noise.split_normal(lower, upper), whose mean "
        "is not zero, or look for a zero point that drifts"
    )


CHECK = Check(
    "skew of the noise", "compared with the stated distribution, by column", _test, _caution,
    "most in {where}", "noise", _alternative, LEANINGS,
)  # fmt: skip
