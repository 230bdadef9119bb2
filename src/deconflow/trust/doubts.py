"""All checks of a fit: the one place that knows which there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from deconflow.certificate import Certificate
from deconflow.copies import Copies, find_copies
from deconflow.findings import Finding
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.trust.causes import with_causes
from deconflow.trust.fit_tests import FIT_TESTS, LogLikelihood, dependence, too_simple
from deconflow.trust.noise_tests import NOISE_TESTS
from deconflow.trust.outliers import outliers
from deconflow.trust.rank_tests import columns_by_ranks
from deconflow.trust.row_tests import edges, order
from deconflow.trust.table import Sampler, Table, make_table
from deconflow.xd import n_parameters

ROWS_PER_PARAMETER = 10
"""Fewer rows per parameter of a single Gaussian are few."""
FEWEST_ROWS = 100
"""With fewer, no statistical check is made."""

SUSPECT = 0.05
"""Once a test has objected to the noise, all that have such a p-value may be the reason."""
UNFIT = (ValueError, ArithmeticError, np.linalg.LinAlgError)
"""What numbers raise that do not allow a check; it must not cost the user a finished fit."""
NEAR_COPIES = 0.01
"""A larger share of rows that all but repeat another one is no chance."""


def find_doubts(
    data: Observations,
    sample: Sampler,
    names: list[str],
    *,
    working: GaussianMixture | None = None,
    log_p: LogLikelihood | None = None,
    seed: int = 0,
) -> tuple[Finding, ...]:
    """Check a fit and the rows that it was made of.

    Parameters
    ----------
    data
        The rows.
    sample
        Draws true values ``(n, D)`` from the fitted model, given ``n`` and a seed.
    names
        Names of the measured columns.
    working
        A Gaussian mixture that fits the rows under their noise; None to fit one.
    log_p
        Gives the model's ``log p(w)`` of rows, to compare it with that mixture; None for a model
        that was compared with others already.
    seed
        Of the choice of rows and the simulation.
    """
    repeated = find_copies(replace(data, groups=None))
    named = data.groups is not None and not _same_groups(data, repeated)
    data = data if named else replace(data, groups=None)
    alone = data
    if repeated.surprising and not named:
        alone = replace(data, groups=torch.from_numpy(repeated.groups))
    found = [number_of_rows(alone), copies(data, repeated)]
    if independent_rows(alone) < FEWEST_ROWS:
        return (*found, *(Finding(check, reason="few") for check in TESTS))
    if not data.noise.additive:
        of_rows = columns_by_ranks(alone, sample, names, seed)
        others = [Finding(check, reason="likelihood") for check in TESTS if check != "columns"]
        return (*found, *others, of_rows)
    try:
        return (*found, *_tests(data, alone, sample, names, working, log_p, seed))
    except UNFIT:
        return (*found, *(Finding(check, reason="numbers") for check in TESTS))


def _tests(
    data: Observations,
    alone: Observations,
    sample: Sampler,
    names: list[str],
    working: GaussianMixture | None,
    log_p: LogLikelihood | None,
    seed: int,
) -> list[Finding]:
    """Make all tests; ``alone`` are the rows with those that repeat others as a group."""
    table = make_table(alone, sample, names, working, seed, averaged=log_p is None)
    of_model = [_tried(test, table) for test in FIT_TESTS]
    found = []
    if log_p is not None:
        found.append(too_simple(table, log_p))
        # What the noise is like, only a density that fits the rows can say.
        better = table.in_units
        table = make_table(alone, better.sample, names, better, seed, averaged=False)
    found += [order(table, data), *(_tried(test, table) for test in (edges, outliers, dependence))]
    found += _about_noise(table, found + of_model)
    return found + of_model


TESTS = ("order", "edges", "outliers", "factor", "tails", "skewness", "correlation", "swapped",
         "dependence", "columns", "joint")  # fmt: skip
"""All checks that are tests, of any model."""


def _tried(test: Callable[[Table], Finding], table: Table) -> Finding:
    """Make a check, unless the numbers do not allow it."""
    try:
        return test(table)
    except UNFIT:
        return Finding(test.__name__, reason="numbers")


def independent_rows(data: Observations) -> int:
    """Count rows, or groups of rows that belong together."""
    codes = data.group_codes()
    return len(data) if codes is None else int(codes.max()) + 1


def number_of_rows(data: Observations) -> Finding:
    """Look whether rows suffice for a single Gaussian: no test, so its p-value is 0 or 1."""
    parameters = n_parameters(1, data.latent_dim)
    rows = independent_rows(data)
    few = rows < ROWS_PER_PARAMETER * parameters
    numbers = {
        "rows": float(rows),
        "columns": float(data.dim),
        "parameters": float(parameters),
    }
    return Finding("rows", 0.0 if few else 1.0, 0.0, numbers=numbers)


def _same_groups(data: Observations, repeated: Copies) -> bool:
    """Whether groups are the copies that a fit keeps together by itself: nobody has named them."""
    given = data.group_codes()
    if given is None or not repeated.surprising:
        return False
    both = np.column_stack([given, repeated.groups])
    kinds = {len(np.unique(codes, axis=0)) for codes in (given, repeated.groups, both)}
    return len(kinds) == 1


def copies(data: Observations, found: Copies) -> Finding:
    """Look whether rows repeat others: no test either."""
    if data.groups is not None:
        return Finding("copies", reason="groups")
    if not data.noise.additive:
        return Finding("copies", reason="likelihood")
    repeated = found.surprising or found.near_share > NEAR_COPIES
    numbers = {"share": found.share if found.surprising else 0.0, "near": found.near_share}
    gain = repeated * max(numbers.values()) * len(data) * np.log(len(data))
    return Finding("copies", 0.0 if repeated else 1.0, float(gain), numbers=numbers)


def _about_noise(table: Table, others: list[Finding]) -> list[Finding]:
    """Test the noise; where a test objects, fit what may be the reason."""
    found = [_tried(test, table) for test in NOISE_TESTS]
    if any(each in found for each in Certificate(findings=tuple(others + found)).cautions):
        found = _with_reason(table, found)
    return found


def _with_reason(table: Table, found: list[Finding]) -> list[Finding]:
    """Fit all alternatives that may be, and mark the one that explains most."""
    suspects = [i for i, each in enumerate(found) if each.p is not None and each.p < SUSPECT]
    for i, finding in zip(suspects, with_causes(table, [found[i] for i in suspects]), strict=True):
        found[i] = finding
    best = max(suspects, key=lambda i: found[i].gain)
    found[best] = replace(found[best], explains=True)
    return found
