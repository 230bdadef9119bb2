"""Skewness of the noise."""

from deconflow.trust.check import FEW, FEWEST_FOR_SHAPE, Case, Check, Finding, worst


def _test(case: Case) -> Finding:
    table = case.of_noise
    if len(table.data) < FEWEST_FOR_SHAPE:
        return Finding(reason=FEW)
    columns = [(d,) for d in range(len(table.names))]
    return worst(table, columns, lambda each: table.view.skewness[..., each[0]])


def _caution(finding: Finding) -> str:
    towards, bar = ("high", "lower") if finding.numbers["z"] > 0 else ("low", "upper")
    return (
        f"the noise in {finding.where} is more skewed towards {towards} values than the stated "
        f"distribution. Use noise.split_normal(lower, upper) with a longer {bar} bar, or look for "
        "a zero point that drifts"
    )


CHECK = Check(
    "skew of the noise", "compared with the stated distribution, by column", _test, _caution,
    "most in {where}", "noise",
)  # fmt: skip
