"""Rows that repeat another one."""

import numpy as np

from deconflow.trust.check import GROUPS, LIKELIHOOD, Case, Check, Finding

#: A larger share of rows that all but repeat another one is no chance.
NEAR_COPIES = 0.01


def _test(case: Case) -> Finding:
    if case.grouped or not case.data.noise.additive:
        return Finding(reason=GROUPS if case.grouped else LIKELIHOOD)
    copies = case.repeated
    repeated = copies.surprising or copies.near_share > NEAR_COPIES
    numbers = {"share": copies.share if copies.surprising else 0.0, "near": copies.near_share}
    gain = repeated * max(numbers.values()) * len(case.data) * np.log(len(case.data))
    return Finding(p=float(not repeated), gain=float(gain), numbers=numbers)


def _caution(finding: Finding) -> str:
    share, near = finding.numbers["share"], finding.numbers["near"]
    exact = f"{share:.0%} of the rows are exact copies of others"
    what = exact if near <= share else f"{near:.0%} of the rows all but repeat another one"
    return (
        f"{what}: they count as independent measurements, and all error bars are too small. "
        "Drop the copies, or name rows that belong together by groups="
    )


CHECK = Check(
    "copies", "rows that repeat another one, more often than chance allows", _test, _caution,
    "{share:.1%} of rows", kind="count",
)  # fmt: skip
