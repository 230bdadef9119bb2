"""What a check of a fit has found, in numbers and in words.

Nothing here needs a library: a saved certificate is shown at once. The words come from the check,
a file in :mod:`deconflow.trust.checks`.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Finding:
    """What one check has found.

    Attributes
    ----------
    check : str
        Its key in :data:`deconflow.trust.CHECKS`.
    p : float or None
        Probability of so large a deviation if model, noise and rows are right; None if the check
        cannot tell. It is 0 or 1 for a check that counts.
    gain : float
        By how much the log-likelihood of the rows looked at would rise with the cause it names.
    columns : tuple of str
        The columns that stand out most.
    numbers : dict of float
        What else was measured.
    reason : str
        Why it cannot tell; empty if it can.
    explains : bool
        Whether it explains better than any other check what another one has objected to.
    kind : str
        ``"count"``, ``"rows"``, ``"noise"``, or ``"fit"`` for one that finds something wrong, but
        not what.
    name, meaning : str
        What it looks at, and how to read its figure.
    figure : str
        What was measured, or why nothing was.
    caution : str
        What is wrong and what to do about it, if the p-value is small.
    """

    check: str = ""
    p: float | None = None
    gain: float = 0.0
    columns: tuple[str, ...] = ()
    numbers: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    explains: bool = False
    kind: str = "rows"
    name: str = ""
    meaning: str = ""
    figure: str = ""
    caution: str = ""

    @property
    def where(self) -> str:
        """The columns that stand out, in a sentence."""
        return " and ".join(self.columns)

    @property
    def tested(self) -> bool:
        """Whether a statistical test was made."""
        return self.p is not None and self.kind != "count"
