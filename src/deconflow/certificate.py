"""The certificate: what a fit can say of itself, as numbers; words are made where it is shown.

Nothing here needs a library, so that a saved certificate is shown at once. The words of findings
come from their checks, the files in :mod:`deconflow.trust.checks`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

LOWEST_EFFICIENCY, LOW_EFFICIENCY = 0.02, 0.1
LARGEST_K, MOST_ABOVE = 0.7, 0.1
LARGEST_GAP, LOWEST_REFRESH = 0.1, 0.05
#: The share of right fits that may get a caution, over all checks that have a p-value. It is small
#: because far out, where verdicts are made, p-values are rougher than they are near one half.
FALSE_ALARMS = 0.01
LOW_SIZE, MOST_ROUGH = 10, 0.05
#: After all causes.
MANY = 1000
#: Before the name of the cause that explains a finding.
EXPLAINED = "explained by: "


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
    explains : int
        1 for the cause that explains best what is wrong, 2 for the next where that is taken into
        account, and so on; 0 for none.
    because : str
        Why it is no reason for doubt, whatever its p-value; empty for no such reason.
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
    explains: int = 0
    because: str = ""
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


@dataclass(frozen=True)
class Certificate:
    """How far a fitted density can be trusted; None stands for what was not looked at.

    Attributes
    ----------
    held_out, held_out_error : float or None
        Mean ``log p(w)`` of rows by fits that have not seen them, and its standard error.
    gain, gain_error : float or None
        How much of that is the average's gain over the mixtures of Extreme Deconvolution alone, row
        by row; zero if these have the whole weight.
    efficiency : tuple of float or None
        Effective sample size of the proposals, as a share of the draws: the 5 % quantile of the
        rows, and the median.
    refresh_rate : tuple of float or None
        How often the rows' chains moved: 5 % quantile and median; ones without chains.
    pareto_k : tuple of float or None
        Tail of the importance weights: the median, and the share of rows above 0.7.
    gap, gap_error : float or None
        Upper less lower bound of ``log p(w)`` on simulated rows.
    fitted, fitted_error : float or None
        Mean ``log p(w)`` of rows that were fitted, and its standard error.
    fitted_rows, fitted_of : int or None
        How many these were, taken at random from how many.
    converged : bool or None
        Whether the fit converged.
    posterior_size : tuple of float or None
        Effective sample size of the rows' posteriors: the median, and the share of rows below 10.
    findings : tuple of Finding
        What every check of the model and the rows has found.
    """

    held_out: float | None = None
    held_out_error: float | None = None
    gain: float | None = None
    gain_error: float | None = None
    efficiency: tuple[float, float] | None = None
    refresh_rate: tuple[float, float] | None = None
    pareto_k: tuple[float, float] | None = None
    gap: float | None = None
    gap_error: float | None = None
    fitted: float | None = None
    fitted_error: float | None = None
    fitted_rows: int | None = None
    fitted_of: int | None = None
    converged: bool | None = None
    posterior_size: tuple[float, float] | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """What is wrong, in words, the likeliest cause first; empty if nothing is."""
        rough = [each for each in self._draws() if each.p == 0]
        return [each.caution for each in [*self.cautions, *rough]]

    @property
    def cautions(self) -> list[Finding]:
        """Findings that give a reason for doubt, the likeliest cause first.

        What names a cause comes before what says only that something does not fit; causes are in
        the order of the log-likelihood that they would gain.
        """
        alarming = [
            f for f in self.findings
            if f.explains or (f.p is not None and f.p < self.limit and not f.because)
        ]  # fmt: skip
        return sorted(alarming, key=lambda f: (f.explains or MANY, f.kind == "fit", -f.gain))

    @property
    def limit(self) -> float:
        """The p-value below which a check is a reason for doubt."""
        return FALSE_ALARMS / max(1, sum(each.tested for each in self.findings))

    def finding(self, check: str) -> Finding | None:
        """Return what one check has found; None if it was not made."""
        return next((each for each in self.findings if each.check == check), None)

    @property
    def trusted(self) -> bool:
        """Whether nothing is wrong."""
        return not self.warnings

    def _draws(self) -> Iterator[Finding]:
        """Yield what is known of the fit's own draws, by p-values of 0 for what is rough."""
        if self.held_out is not None:
            yield Finding(
                name="held-out log p(w)",
                meaning="rows that a fit had not seen; larger is better",
                figure=f"{self.held_out:.4f} +- {self.held_out_error:.4f} per row",
            )
        low, median = self.efficiency or (1.0, 1.0)
        if self.efficiency is not None:
            yield Finding(
                p=float(median >= LOWEST_EFFICIENCY),
                name="effective sample size",
                meaning="how many draws of a row's posterior count; above 10 % is good",
                figure=f"{median:.0%} of the draws (median), {low:.0%} (worst twentieth)",
                caution=f"half of the rows have an effective sample size under {median:.1%} of "
                "their draws: posteriors and log p(w) are rough",
            )
        if self.pareto_k is not None:
            k, share = self.pareto_k
            yield Finding(
                p=float(share <= MOST_ABOVE or low >= LOW_EFFICIENCY),
                name="Pareto k",
                meaning="tails of the weights; above 0.7 a row's answer is rough",
                figure=f"{k:.2f} (median), above 0.7 in {share:.1%} of rows",
                caution=f"the importance weights of {share:.0%} of the rows have a heavy tail "
                "(Pareto k above 0.7): ask for more draws there, or look at those rows",
            )
        if self.gap is not None:
            yield Finding(
                p=float(self.gap <= LARGEST_GAP),
                name="bounds of log p(w)",
                meaning="the true value lies between two bounds; below 0.1 is good",
                figure=f"{self.gap:.4f} +- {self.gap_error:.4f} apart, simulated rows"
                + ", closer than the draws can tell" * (self.gap < 0),
                caution=f"lower and upper bound of log p(w) differ by {self.gap:.2f} on simulated "
                "rows: the posterior is not resolved",
            )
        if self.gain_error:
            yield Finding(
                name="gain of the average",
                meaning="over the mixtures alone, on held-out rows; above two errors it is real",
                figure=f"{self.gain:+.4f} +- {self.gain_error:.4f} per row",
            )
        if self.refresh_rate not in (None, (1.0, 1.0)):
            low, median = self.refresh_rate
            yield Finding(
                p=float(low >= LOWEST_REFRESH),
                name="chains moved",
                meaning="a chain that hardly moves still carries its start; above 5 % is good",
                figure=f"{median:.0%} of visits (median), {low:.0%} (worst twentieth)",
                caution=f"the chains of one row in twenty moved at under {low:.1%} of their "
                "visits: the fit may still carry its start",
            )

    def figures(self) -> dict[str, str]:
        """Return what was measured of the fit, by name."""
        return {each.name: each.figure for each in [*self._draws(), *self.findings]}

    def meanings(self) -> dict[str, str]:
        """Return how to read the figures, by name."""
        return {each.name: each.meaning for each in [*self._draws(), *self.findings]}

    def sentences(self) -> list[str]:
        """Return the verdicts, in words."""
        found = [f"CAUTION: {warning}." for warning in self.warnings]
        causes = [each for each in self.cautions if each.explains]
        if len(self.cautions) > len(causes) > 0:
            found[0] += " What follows may be a consequence of it."
        for number, cause in enumerate(causes):
            names = [f.name for f in self.findings if f.because == EXPLAINED + cause.name]
            if names:
                found[number] += f" Taken into account, it explains: {', '.join(names)}."
        if not found and (self.held_out is not None or self.findings):
            found.append(self._no_doubt())
        if self.fitted is not None:
            all_rows = self.fitted_of in (None, self.fitted_rows)
            which = "" if all_rows else f" of the {self.fitted_of}, taken at random"
            found.append(
                f"Mean log p(w) of {self.fitted_rows} fitted rows{which}: {self.fitted:.4f} +- "
                f"{self.fitted_error:.4f} (that of rows not fitted is lower)."
            )
        if self.converged is False:
            found.append("The fit did not converge: raise max_iter.")
        if self.posterior_size is not None:
            median, rough = self.posterior_size
            many = rough >= MOST_ROUGH
            usable = "are rough in many rows: try another method" if many else "can be used"
            found.append(
                f"Effective sample size of posteriors: median {median:.0f}, below {LOW_SIZE} in "
                f"{rough:.0%} of rows; they {usable}."
            )
        return found

    def _no_doubt(self) -> str:
        """Say how many checks were made, and which could not be."""
        made = [each for each in self.findings if each.p is not None]
        missed: dict[str, list[str]] = {}
        for each in self.findings:
            if each.p is None:
                missed.setdefault(each.reason, []).append(each.name)
        if len(missed) == 1 and not any(each.tested for each in made):
            return f"No test could be made: {next(iter(missed))}."
        found = f"No reason for doubt was found in {len(made)} check{'s' * (len(made) != 1)}"
        count = len(self.findings) - len(made)
        why = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in missed.items())
        return f"{found}; {count} could not be made: {why}." if missed else f"{found}."

    def in_words(self) -> str:
        """Say it in a few lines: figures, then sentences."""
        lines = [f"{name:<24}{value}" for name, value in self.figures().items()]
        return "\n".join(lines + self.sentences())
