"""A fit and its rows, as checks look at them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from deconflow.copies import Copies, find_copies
from deconflow.certificate import Finding
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations, check_groups
from deconflow.trust.predictive import Sampler
from deconflow.trust.table import LogLikelihood, Table, make_table

#: Rows made of posterior samples, and the log density of true values.
Samples = tuple[Observations, Callable[..., Any]]


@dataclass(frozen=True)
class Case:
    """A fit and the rows that it was made of.

    Attributes
    ----------
    data : Observations
        The rows.
    sample : callable
        Draws true values ``(n, D)`` from the fitted model, given ``n`` and a seed.
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
    sample: Sampler
    names: list[str]
    working: GaussianMixture | None = None
    log_p: LogLikelihood | None = None
    seed: int = 0
    learned: Finding | None = None
    samples: Samples | None = None

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
        groups = check_groups(self.data.w, self.repeated.groups, "groups")
        return replace(self.data, groups=groups)

    @cached_property
    def n_rows(self) -> int:
        """Number of rows, or of groups of rows that belong together."""
        codes = self.rows.group_codes()
        return len(self.rows) if codes is None else int(codes.max()) + 1

    @cached_property
    def of_model(self) -> Table:
        """Rows with companions that the model simulates."""
        averaged = self.log_p is None
        return make_table(
            self.rows, self.sample, self.names, self.working, self.seed, averaged=averaged
        )

    @cached_property
    def of_noise(self) -> Table:
        """Rows with companions of a density that fits them: others say nothing of the noise."""
        if self.log_p is None:
            return self.of_model
        better = self.of_model.in_units
        return make_table(self.rows, better.sample, self.names, better, self.seed, averaged=False)
