"""Errors that the fit has estimated."""

from deconflow.trust.check import Case, Check, Finding


def _test(case: Case) -> Finding | None:
    return case.learned


def _figure(finding: Finding) -> str:
    numbers = finding.numbers
    words = [
        f"{name} {value:.3g} +- {numbers[f'error of {name}']:.2g}"
        for name, value in numbers.items()
        if f"error of {name}" in numbers
    ]
    if "groups" in numbers:
        words.append(
            f"zero points of {numbers['groups']:.0f} groups, up to "
            f"{numbers['largest zero point']:.2g} of a column's spread"
        )
    if "tied" in numbers:
        words.append(f"scale and jitter correlated by {numbers['tied']:.2f}")
    return ", ".join(words)


def _caution(finding: Finding) -> str:
    return (
        f"the rows hardly determine the {', the '.join(finding.columns)}: the answer depends on "
        "the estimated errors, and its intervals ignore their uncertainty. Give replicates=, or "
        "state the errors"
    )


CHECK = Check(
    "learned errors", "estimates of errors that were left open", _test, _caution, _figure,
    kind="count",
)  # fmt: skip
