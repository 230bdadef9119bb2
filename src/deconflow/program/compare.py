"""``deconflow compare``: which method foretells rows that it has not seen."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from deconflow._types import Array
from deconflow.program.how import (
    Exposure,
    FitErrors,
    HowSaid,
    Id,
    Limits,
    LogPrior,
    Replicates,
    ReplicatesBy,
    Trials,
)
from deconflow.program.known import Atoms, Background, Bounds, Given, Known
from deconflow.program.messages import note, one_line_errors, say
from deconflow.program.methods import METHODS, make_estimator
from deconflow.program.options import (
    Correlations,
    Covariances,
    DegreesOfFreedom,
    Errors,
    Groups,
    MeasuredColumns,
    Missing,
    Noise,
    Quiet,
    Seed,
    Table,
)
from deconflow.program.reading import read_table
from deconflow.tables import Measurements, split_list

SHOWN_BIAS = 5e-5


def compare(
    table: Table,
    columns: MeasuredColumns,
    methods: Annotated[str, typer.Option("--methods", help="Methods to compare.")] = "xd,flow",
    held_out: Annotated[
        float, typer.Option("--held-out", min=0.01, max=0.9, help="Share of rows not fitted.")
    ] = 0.2,
    errors: Errors = None,
    cov: Covariances = None,
    corr: Correlations = None,
    noise: Noise = "gaussian",
    df: DegreesOfFreedom = 3.0,
    missing: Missing = None,
    groups: Groups = None,
    limits: Limits = None,
    replicates: Replicates = None,
    id: Id = None,
    log_prior: LogPrior = None,
    trials: Trials = None,
    exposure: Exposure = None,
    fit_errors: FitErrors = None,
    replicates_by: ReplicatesBy = None,
    given: Given = None,
    bounds: Bounds = None,
    atoms: Atoms = None,
    background: Background = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Compare methods by the log density of rows that were held out.

    Example: deconflow compare stars.csv -c x,y --methods xd
    """
    with one_line_errors():
        names = _checked_methods(methods)
        known = Known(given, bounds, atoms, background)
        for name in names:
            known.check_method(name)
        how = HowSaid(
            limits, replicates, id, log_prior, trials, exposure, fit_errors, replicates_by
        )
        found, rows = read_table(
            table, columns, errors, cov, corr, noise, df, missing, groups, known, how
        )
        parts = _split(rows, held_out, seed)
        estimates = {}
        for name in names:
            model = make_estimator(
                name, len(parts[0]), (), known.parameters(found.names),
                random_state=seed, verbose=not quiet,
            )  # fmt: skip
            estimates[name] = _held_out(name, model.name_columns(found.names), rows, *parts)
        scores = {name: each.log_p for name, each in estimates.items()}
        say(*verdict(scores), *about_errors(estimates))


def verdict(scores: dict[str, Array]) -> Iterator[str]:
    """Say which method is best, and whether that is more than luck."""
    best = max(scores, key=lambda name: scores[name].mean())
    width = max(map(len, scores))
    for name, values in scores.items():
        error = values.std() / np.sqrt(len(values))
        yield f"{name:{width}} held-out log p(w) {values.mean():.4f} +- {error:.4f} per row"
    for name, values in scores.items():
        if name == best:
            continue
        gap = scores[best] - values
        error = gap.std() / np.sqrt(len(gap))
        sure = "clearly better than" if gap.mean() > 2 * error else "not clearly better than"
        yield f"{best} is {sure} {name}: {gap.mean():.4f} +- {error:.4f} per row"


def about_errors(estimates: dict[str, Any]) -> Iterator[str]:
    """Say whose log densities are estimates: an exact one and a lower bound are not the same."""
    for name, estimate in estimates.items():
        if estimate.error.any():
            bias = estimate.bias.mean()
            low = f", and the mean is about {bias:.4f} too low" if bias >= SHOWN_BIAS else ""
            yield (
                f"{name}: log p(w) is estimated, not exact; the error of a row is "
                f"{estimate.error.mean():.1g} on average{low}"
            )


def _checked_methods(methods: str) -> Sequence[str]:
    names = split_list([methods])
    for name in names:
        if name not in METHODS:
            raise ValueError(f"Expected --methods of {', '.join(METHODS)}; got {name!r}.")
    if not names:
        raise ValueError("Expected one or more --methods; got none.")
    return list(dict.fromkeys(names))


def _held_out(
    name: str, model: Any, rows: Measurements, train: NDArray[Any], test: NDArray[Any]
) -> Any:
    """Fit some rows, and estimate the log density of others."""
    fitted, held_out = rows.rows[train], rows.rows[test]
    start = time.perf_counter()
    groups = None if rows.groups is None else rows.groups[train]
    model.fit(fitted.w, groups=groups, **fitted.arguments)
    note(f"{name}: fitted {len(train)} rows in {time.perf_counter() - start:.1f} s")
    return model.estimate_observations(held_out.w, **held_out.arguments)


def _split(rows: Measurements, share: float, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Number the rows to fit and those to hold out; groups, or copies, are not parted."""
    from deconflow.copies import keep_copies_together
    from deconflow.observations import Observations, hold_out

    order = np.random.default_rng(seed).permutation(len(rows.w))
    n_test = max(1, round(share * len(order)))
    data = Observations.from_arrays(rows.w, rows.rows.said, groups=rows.groups)
    codes = keep_copies_together(data).group_codes()
    held = np.arange(len(order)) < n_test
    if codes is not None:
        held = hold_out(codes, order, n_test)[order]
    if (~held).sum() < 2:
        raise ValueError(f"Expected enough rows to hold some out; got {len(rows.w)}.")
    return order[~held], order[held]
