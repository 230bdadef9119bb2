"""The contract of a check: its test, the causes that it may have, and its words.

Files of checks take all that they need of this package from here.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deconflow._types import Array
from deconflow.certificate import Finding
from deconflow.noise import Noise
from deconflow.trust.case import Case
from deconflow.trust.comparison import DEGREES, of_smallest, one_sided, ratio, shape, two_sided
from deconflow.trust.lens import Rows, below, log_p
from deconflow.trust.table import FLOOR, Table, chosen_rows, restricted, weight_inflation

__all__ = [
    "ALIKE", "CONSTANT", "DEGREES", "FEW", "FEWEST_FOR_SHAPE", "FLOOR", "GROUPS", "LIKELIHOOD",
    "Alternative", "Case", "Check", "Finding", "Rows", "Table", "below", "chosen_rows", "log_p",
    "of_smallest", "one_sided", "ratio", "restricted", "shape", "two_sided", "weight_inflation",
    "worst",
]  # fmt: skip

#: With fewer, no statistical check is made.
FEWEST_ROWS = 100
#: With fewer rows a density that the mixture does not quite fit looks like noise of another
#: shape.
FEWEST_FOR_SHAPE = 1000
#: Functions that vary by less from one simulated row to another say nothing of noise: it is so much
#: smaller than the spread of the true values that only the fit of these would be seen.
LEAST_SIGNAL = 0.05
#: What numbers raise that do not allow a check; it must not cost the user a finished fit.
UNFIT = (ValueError, ArithmeticError, np.linalg.LinAlgError)

FEW = "there are too few rows"
ALIKE = "all errors are alike, and a broader or narrower density fits as well"
LIKELIHOOD = "each row has a likelihood that depends on what was measured, as a count has"
CONSTANT = "a column is constant"
GROUPS = "rows of a group belong together"

#: Numbers that a cause is described by, and the noise that it would be.
Alternative = tuple[dict[str, float], Callable[[], Noise]]


@dataclass(frozen=True)
class Check:
    """A check of a fit.

    Attributes
    ----------
    name, meaning : str
        What it looks at, and how to read its figure.
    test : function
        Makes it: p-value, gain, columns and numbers, or the reason why it cannot tell; None if
        it is not about such fits.
    caution : function
        What is wrong and what to do, for a finding.
    figure : function or None
        What was measured in addition to the p-value.
    kind : str
        As for :class:`~deconflow.certificate.Finding`.
    alternatives : function or None
        Noise that would explain a finding; the mixture is fitted again under each.
    additive : bool
        Whether it takes only noise that is added to the true values.
    """

    name: str
    meaning: str
    test: Callable[[Case], Finding | None]
    caution: Callable[[Finding], str]
    figure: Callable[[Finding], str] | None = None
    kind: str = "rows"
    alternatives: Callable[[Table, Finding], Iterable[Alternative]] | None = None
    additive: bool = True

    def made(self, case: Case) -> Finding | None:
        """Make the check, as far as rows and numbers allow it."""
        try:
            if self.kind == "count":
                return self.test(case)
            if case.n_rows < FEWEST_ROWS:
                return Finding(reason=FEW)
            if self.additive and not case.data.noise.additive:
                return Finding(reason=LIKELIHOOD)
            return self.test(case)
        except UNFIT:
            return Finding(reason="the numbers do not allow it")

    def worded(self, finding: Finding) -> Finding:
        """Put a finding into words."""
        about = replace(finding, name=self.name, meaning=self.meaning, kind=self.kind)
        if finding.p is None:
            return replace(about, figure=f"cannot tell: {finding.reason}")
        figures = [self.figure(finding)] if self.figure is not None else []
        if self.kind != "count":
            figures.append(f"p {finding.p:.2g}")
        return replace(about, figure="; ".join(figures), caution=self.caution(finding))


def worst(
    table: Table,
    choices: Sequence[tuple[int, ...]],
    function: Callable[[tuple[int, ...]], Array],
    side: int = 2,
) -> Finding:
    """Look at several columns, or pairs of them, and report the one that stands out most."""
    if not choices:
        few = len(table.names) == 1
        most = "there are more than six columns, or every pair of them has missing values"
        return Finding(reason="there is one column" if few else most)
    functions = [function(each) for each in choices]
    z = table.sums(functions).z
    signal = np.array([each[:, 1:].std() for each in functions])
    known = ~np.isnan(z) & ((signal > LEAST_SIGNAL) | (side == 1))
    if not known.any():
        return Finding(reason="the errors are too small to matter" if table.by_row else ALIKE)
    p_value = two_sided if side == 2 else one_sided
    p = np.array([p_value(each) for each in np.where(known, z, 0.0)])
    p[~known] = 1.0
    most_at = int(p.argmin())
    gain = 0.5 * z[most_at] ** 2 if side == 2 or z[most_at] > 0 else 0.0
    columns = tuple(table.names[d] for d in choices[most_at])
    numbers = {"z": float(z[most_at])}
    return Finding("", of_smallest(p[known].tolist()), float(gain), columns, numbers)
