"""The contract of a check: its test, the causes that it may have, and its words.

Files of checks take all that they need of this package from here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from deconflow._types import Array
from deconflow.certificate import Finding
from deconflow.copies import Copies, find_copies
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations, check_groups
from deconflow.trust.lens import Rows, below, log_p
from deconflow.trust.table import (
    DEGREES,
    FLOOR,
    LogLikelihood,
    Sampler,
    Table,
    chosen_rows,
    make_table,
    of_smallest,
    one_sided,
    predictive_ranks,
    ratio,
    restricted,
    shape,
    two_sided,
    weight_inflation,
    with_covariance,
)

__all__ = [
    "ALIKE", "CONSTANT", "DEGREES", "FEW", "FEWEST_FOR_SHAPE", "FLOOR", "GROUPS", "LIKELIHOOD",
    "Alternative", "Case", "Check", "Finding", "Rows", "Table", "below", "chosen_rows", "log_p",
    "of_smallest", "one_sided", "predictive_ranks", "ratio", "restricted", "shape", "two_sided",
    "weight_inflation", "with_covariance", "worst",
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

#: Numbers that a cause is described by; the rows as they would be with it; and the logarithm of the
#: volume by which their densities have changed.
Alternative = tuple[dict[str, float], Observations, float]
#: Words with names of a finding's numbers, ``where`` and ``gain`` in braces, or what makes them.
Words = str | Callable[[Finding], str]


@dataclass(frozen=True)
class Case:
    """A fit and the rows that it was made of.

    Attributes
    ----------
    data : Observations
        The rows.
    sample : callable or None
        Draws true values ``(n, D)`` from the fitted model, given ``n`` and a seed; None for a
        mixture that is fitted to the rows in its place.
    names : list of str
        Names of the measured columns.
    working : GaussianMixture or None
        A mixture that fits the rows under their noise; None to fit one.
    log_p : callable or None
        Gives the model's ``log p(w)`` of rows, to compare it with that mixture; None for a model
        that was compared with others already.
    seed : int
        Of the choice of rows and the simulation.
    learned : Finding or None
        What the fit has learned of the errors.
    samples : tuple or None
        Rows whose noise was made of posterior samples, and the density of true values.
    """

    data: Observations
    sample: Sampler | None
    names: list[str]
    working: GaussianMixture | None = None
    log_p: LogLikelihood | None = None
    seed: int = 0
    learned: Finding | None = None
    samples: tuple[Observations, Callable[..., Any]] | None = None

    @cached_property
    def repeated(self) -> Copies:
        """Rows that repeat others."""
        return find_copies(replace(self.data, groups=None))

    @cached_property
    def grouped(self) -> bool:
        """Whether users have named groups, other than the copies that a fit keeps together."""
        given, copies = self.data.group_codes(), self.repeated
        if self.data.groups is None or given is None or not copies.surprising:
            return self.data.groups is not None
        both = np.column_stack([given, copies.groups])
        return len({len(np.unique(each, axis=0)) for each in (given, copies.groups, both)}) > 1

    @cached_property
    def rows(self) -> Observations:
        """The rows, with those that repeat others as a group if nobody has named groups."""
        if self.grouped:
            return self.data
        if not self.repeated.surprising:
            return replace(self.data, groups=None)
        return replace(self.data, groups=check_groups(self.data.w, self.repeated.groups, "groups"))

    @cached_property
    def n_rows(self) -> int:
        """Number of rows, or of groups of rows that belong together."""
        codes = self.rows.group_codes()
        return len(self.rows) if codes is None else int(codes.max()) + 1

    @cached_property
    def of_model(self) -> Table:
        """Rows with companions that the model simulates."""
        return make_table(self.rows, self.sample, self.names, self.working, self.seed)

    @cached_property
    def of_noise(self) -> Table:
        """Rows with companions of a mixture that was fitted to look at them.

        Those of a model would say more about its difference from the mixture than about the noise,
        and differ from fit to fit.
        """
        if self.sample is None:
            return self.of_model
        return make_table(self.rows, None, self.names, None, self.seed)

    def changed(self, rows: Observations, mixture: GaussianMixture) -> "Case":
        """Return the case of other rows, with a mixture for a model.

        Where one is quickly chosen, under noise of one Gaussian, that is another one.
        """
        quick = rows.noise.as_mixture().n_parts == 1
        working = None if quick else mixture
        return Case(replace(rows, groups=None), None, self.names, working, seed=self.seed)


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
    caution : str or function
        What is wrong and what to do, for a finding.
    figure : str or function
        What was measured in addition to the p-value.
    kind : str
        As for :class:`~deconflow.certificate.Finding`.
    alternative : function or None
        Rows as they would be with the cause that the check looks for, for each of the sizes; the
        mixture is fitted to each. It raises if there can be no such rows.
    sizes : tuple of float
        How large the changes are.
    additive : bool
        Whether it takes only noise that is added to the true values.
    rather : str
        The check whose cause says less and comes first, where it gives reason for doubt by itself
        and fits nearly as well.
    of_table : bool
        Whether it is about the table as it stands, which no other cause explains.
    """

    name: str
    meaning: str
    test: Callable[[Case], Finding | None]
    caution: Words
    figure: Words = ""
    kind: str = "rows"
    alternative: Any = None
    sizes: tuple[float, ...] = (1.0,)
    additive: bool = True
    rather: str = ""
    of_table: bool = False

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
        figure, caution = (_filled(words, finding) for words in (self.figure, self.caution))
        if self.kind != "count":
            figure = "; ".join(filter(None, [figure, f"p {finding.p:.2g}", finding.because]))
        return replace(about, figure=figure, caution=caution)


def _filled(words: Words, finding: Finding) -> str:
    if not isinstance(words, str):
        return words(finding)
    return words.format_map({**finding.numbers, "where": finding.where, "gain": finding.gain})


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
    sums = table.sums(functions)
    z = sums.z
    signal = np.array([each[:, 1:].std() for each in functions])
    known = ~np.isnan(z) & ((signal > LEAST_SIGNAL) | (side == 1))
    if not known.any():
        return Finding(
            reason="the errors are too small to matter" if table.differing.any() else ALIKE
        )
    p_value = two_sided if side == 2 else one_sided
    p = np.where(known, p_value(np.where(known, z, 0.0)), 1.0)
    most_at = int(p.argmin())
    top = float(z[most_at])
    gain = 0.5 * top**2 if side == 2 or top > 0 else 0.0
    columns = tuple(table.names[d] for d in choices[most_at])
    numbers = {"z": top, "unbounded z": float(sums.unbounded[most_at])}
    return Finding("", of_smallest(p[known]), gain, columns, numbers)
