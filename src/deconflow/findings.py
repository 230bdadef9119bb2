"""What checks of a fit have found, as numbers, and the words for each of them.

Nothing here needs a library, so that a saved certificate is shown at once. A new check is one more
line in :data:`CHECKS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

REASONS = {
    "alike": "all errors are alike, and a broader or narrower truth fits as well",
    "few": "there are too few rows",
    "columns": "there are more than six columns, or every pair of them has missing values",
    "small": "the errors are too small to matter",
    "constant": "a column is constant",
    "weights": "rows have weights",
    "numbers": "the numbers do not allow it",
    "one column": "there is one column",
    "incomplete": "values are missing or projected",
    "sorted": "the table is sorted by one of its columns",
    "groups": "rows of a group belong together",
    "likelihood": "each row has a likelihood that depends on what was measured, as a count has",
}
"""Why a check cannot tell."""


@dataclass(frozen=True)
class Finding:
    """What one check has found.

    Attributes
    ----------
    check : str
        Its name in :data:`CHECKS`.
    p : float or None
        How probable so large a deviation is if model, noise and rows are right; None if the check
        cannot tell.
    gain : float
        By how much the log-likelihood of the rows looked at would rise with the cause it names.
    columns : tuple of str
        The columns that stand out most.
    numbers : dict of float
        What else was measured.
    reason : str
        Why it cannot tell, a key of :data:`REASONS`; empty if it can.
    explains : bool
        Whether it explains better than any other check what another one has objected to.
    """

    check: str
    p: float | None = None
    gain: float = 0.0
    columns: tuple[str, ...] = ()
    numbers: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    explains: bool = False

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Finding:
        """Take what ``dataclasses.asdict`` gave."""
        return cls(**values | {"columns": tuple(values["columns"])})


@dataclass(frozen=True)
class Check:
    """The words of a check.

    Attributes
    ----------
    name : str
        What it looks at.
    meaning : str
        What its figure says.
    caution : function
        Says what is wrong, and what to do.
    value : function or None
        Says what was measured beside the p-value.
    unspecific : bool
        Whether it says that something is wrong, but not what.
    counts : bool
        Whether it counts rather than tests: then its p-value is 0 or 1.
    """

    name: str
    meaning: str
    caution: Callable[[Finding], str]
    value: Callable[[Finding], str] | None = None
    unspecific: bool = False
    counts: bool = False

    def figure(self, finding: Finding) -> str:
        """Say what was measured, or why it was not."""
        if finding.p is None:
            return f"cannot tell: {REASONS.get(finding.reason, finding.reason)}"
        value = "" if self.value is None else self.value(finding)
        if self.counts:
            return value
        return f"{value}{'; ' if value else ''}p {finding.p:.2g}"


def _listed(finding: Finding) -> str:
    return " and ".join(finding.columns)


def _factor(finding: Finding) -> float:
    return math.exp(max(-5.0, min(5.0, finding.numbers["log_factor"])))


def _of_factor(finding: Finding) -> str:
    where = f" in {_listed(finding)}" if finding.columns else ""
    best = finding.numbers.get("best", _factor(finding))
    return f"{best:.2f} times what was said{where}, +- {finding.numbers['error']:.0%}"


def _factor_caution(finding: Finding) -> str:
    fitted = "best" in finding.numbers
    best = finding.numbers["best"] if fitted else _factor(finding)
    size = "small" if best > 1 else "large"
    where = f" of {_listed(finding)}" if finding.columns else ""
    words = f"the stated errors{where} seem to be too {size} (p {finding.p:.2g})"
    if fitted:
        words = (
            f"errors{where} {best:.2g} times as large fit the rows better by {finding.gain:.0f} "
            f"nats: the stated errors are too {size}"
        )
    return (
        f"{words}; intervals of the truth are too {'narrow' if best > 1 else 'wide'}. Look up "
        "where they come from, or multiply them and fit again"
    )


def _tails_caution(finding: Finding) -> str:
    df = finding.numbers.get("df")
    if df is None:
        return (
            "the noise has heavier tails than its law says. Fit again with a law of heavier tails, "
            "or look for bad rows"
        )
    return (
        f"the noise has heavier tails than its law says: noise.student_t(sd, {df:g}) fits better "
        f"by {finding.gain:.0f} nats. Fit again with that law, or look for bad rows"
    )


def _skewness_caution(finding: Finding) -> str:
    up = finding.numbers["z"] > 0
    return (
        f"the noise of {_listed(finding)} leans {'up' if up else 'down'}wards more than its law "
        f"says. Say noise.split_normal(lower, upper) with the {'lower' if up else 'upper'} bar the "
        "longer, or look for a zero point that drifts"
    )


def _correlation_caution(finding: Finding) -> str:
    rho = finding.numbers.get("correlation")
    if rho is None:
        sign = "positively" if finding.numbers["z"] > 0 else "negatively"
        words = f"seem to be {sign} correlated (p {finding.p:.2g})"
    else:
        words = f"are correlated: {rho:+.1g} fits better by {finding.gain:.0f} nats"
    return (
        f"the errors of {_listed(finding)} {words}. Give covariances, or a column with correlations"
    )


def _swapped_caution(finding: Finding) -> str:
    return (
        f"the rows fit better if {_listed(finding)} exchange their errors: look whether the error "
        "columns stand in the right order"
    )


def _dependence_caution(finding: Finding) -> str:
    what = "spread" if finding.numbers.get("spread") else "place"
    more = "grows" if finding.numbers["z"] > 0 else "falls"
    return (
        f"the {what} of {_listed(finding)} {more} with the size of its error, though the fit takes "
        'the truth to be independent of it. Fit again with given="noise", so that its '
        "location and spread may depend on its error, or fit rows of similar errors by themselves"
    )


def _order_caution(finding: Finding) -> str:
    return (
        f"neighbouring rows are alike in {_listed(finding)} (correlation "
        f"{finding.numbers['correlation']:.2f}): objects measured several times, or a drift. All "
        "error bars are too small; if rows belong together, name them by groups=, and if the table "
        "is merely sorted by something like it, ignore this"
    )


def _edges_caution(finding: Finding) -> str:
    side = "above" if finding.numbers["upper"] else "below"
    return (
        f"the values of {_listed(finding)} end at {finding.numbers['edge']:.4g}, where the model "
        f"expects {finding.numbers['expected']:.0f} more rows {side}: the sample looks cut off, "
        "and the answer is that of the rows which are left. Say what was seen by selection= and "
        "fit again; or, if the truth itself ends by nature, say where by bounds="
    )


def _outliers_caution(finding: Finding) -> str:
    return (
        f"about {finding.numbers['share']:.1%} of the rows are spread evenly, far from all others: "
        "they look like outliers, and the answer takes them for truth. See `deconflow score`, "
        "which rows these are, and leave out what is junk; or fit again with "
        'background="uniform"'
    )


def _copies_caution(finding: Finding) -> str:
    share, near = finding.numbers["share"], finding.numbers.get("near", 0.0)
    what = f"{share:.0%} of the rows are exact copies of others"
    if near > share:
        what = f"{near:.0%} of the rows all but repeat another one"
    return (
        f"{what}: they count as independent measurements, so that all error bars are too small. "
        "Drop the copies, or name rows that belong together by groups="
    )


def _rows_caution(finding: Finding) -> str:
    numbers = finding.numbers
    return (
        f"{numbers['rows']:.0f} rows are few for {numbers['columns']:.0f} "
        f"column{'s' if numbers['columns'] > 1 else ''}: a single Gaussian has "
        f"{numbers['parameters']:.0f} parameters. Expect the density to be rough; use fewer columns"
    )


def _columns_caution(finding: Finding) -> str:
    return (
        f"simulated measurements do not look like the real ones in {_listed(finding)}: the errors "
        "may be wrong, or the model too simple. See `deconflow plot --kind diagnostics`"
    )


def _joint_caution(finding: Finding) -> str:
    return (
        "simulated rows do not look like the real ones as a whole: usual and unusual rows are not "
        "as frequent as they should be. The errors may be wrong, or the model too simple"
    )


def _coverage_caution(finding: Finding) -> str:
    return (
        f"in {finding.numbers['share']:.0%} of the rows fewer than {finding.numbers['fewest']:.0f} "
        f"of {finding.numbers['draws']:.0f} posterior samples lie where the fitted density is: "
        "what these rows say there rests on the shape of the Gaussians fitted to their samples. "
        "Draw more samples, or under a wider prior"
    )


def _learned(finding: Finding) -> str:
    numbers = finding.numbers
    found = [
        f"{name} {value:.3g} +- {numbers[f'error of {name}']:.2g}"
        for name, value in numbers.items()
        if f"error of {name}" in numbers
    ]
    if "groups" in numbers:
        found.append(
            f"zero points of {numbers['groups']:.0f} groups, up to "
            f"{numbers['largest zero point']:.2g} of a column's spread"
        )
    if "tied" in numbers:
        found.append(f"scale and jitter correlated by {numbers['tied']:.2f}")
    return ", ".join(found)


def _learned_caution(finding: Finding) -> str:
    return (
        f"the rows can hardly tell the {', the '.join(finding.columns)}: the answer hangs on what "
        "was learned of the errors, and its intervals do not know how uncertain that is. Give "
        "replicates=, or say what is known of the errors"
    )


CHECKS = {
    "rows": Check(
        "number of rows", "at least ten per parameter of one Gaussian", _rows_caution,
        lambda f: f"{f.numbers['rows']:.0f}", counts=True,
    ),
    "copies": Check(
        "copies", "rows that repeat another one, more often than chance allows", _copies_caution,
        lambda f: f"{f.numbers['share']:.1%} of rows", counts=True,
    ),
    "coverage": Check(
        "posterior samples", "rows with almost none where the fitted density is; below 5 % is good",
        _coverage_caution, lambda f: f"too few in {f.numbers['share']:.1%} of rows", counts=True,
    ),
    "order": Check(
        "neighbouring rows", "whether they are alike; independent rows are not", _order_caution,
        lambda f: f"correlation {f.numbers['correlation']:.2f} in {_listed(f)}",
    ),
    "edges": Check(
        "edges", "simulated rows beyond the outermost real one; about one is usual",
        _edges_caution, lambda f: f"{f.numbers['expected']:.1f} beyond, in {_listed(f)}",
    ),
    "outliers": Check(
        "outliers", "rows that an even background explains better", _outliers_caution,
        lambda f: f"{f.numbers['share']:.1%} of rows",
    ),
    "factor": Check(
        "size of the errors", "which multiple of the errors fits best", _factor_caution, _of_factor
    ),
    "learned": Check(
        "learned errors", "what the rows say of errors that were left open", _learned_caution,
        _learned, counts=True,
    ),
    "tails": Check("tails of the noise", "whether heavier than its law says", _tails_caution),
    "skewness": Check(
        "skew of the noise", "against its law, by column", _skewness_caution,
        lambda f: f"most in {_listed(f)}",
    ),
    "correlation": Check(
        "correlated errors", "more than was said, between columns", _correlation_caution,
        lambda f: f"most in {_listed(f)}",
    ),
    "swapped": Check(
        "errors exchanged", "whether two columns have each other's", _swapped_caution,
        lambda f: f"most in {_listed(f)}",
    ),
    "dependence": Check(
        "truth and its error", "whether the truth goes with the size of its error",
        _dependence_caution, lambda f: f"most in {_listed(f)}",
    ),
    "model": Check(
        "a plain mixture", "what one that AIC chooses gains in log p(w) over the model",
        lambda f: f"a mixture of {f.numbers['components']:.0f} Gaussians fits the rows better by "
        f"{f.gain:.0f} nats: the model is too simple, or its fit did not end well. Allow it more, "
        "or use Deconvolver",
        lambda f: f"{f.gain:.1f} nats with {f.numbers['components']:.0f} components",
        unspecific=True,
    ),
    "columns": Check(
        "columns", "simulated values against real ones, column by column", _columns_caution,
        lambda f: f"worst in {_listed(f)}", unspecific=True,
    ),
    "joint": Check(
        "rows as a whole", "simulated rows against real ones, by ranks of log p(w)",
        _joint_caution, unspecific=True,
    ),
}  # fmt: skip
"""All checks, in the order in which they are shown."""
