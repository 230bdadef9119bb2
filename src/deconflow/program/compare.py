"""``deconflow compare``: which method foretells rows that it has not seen."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from deconflow._types import Array
from deconflow.program.how import HowSaid
from deconflow.program.known import Known
from deconflow.program.messages import note, one_line_errors, say
from deconflow.program.methods import METHODS, make_estimator
from deconflow.program.option_groups import with_option_groups
from deconflow.program.options import Quiet, Seed
from deconflow.program.reading import TableSaid, read_table
from deconflow.program.waiting import waiting, watched
from deconflow.tables import Measurements, split_list

SHOWN_BIAS = 5e-5


@with_option_groups
def compare(
    *,
    said: TableSaid,
    how: HowSaid,
    known: Known,
    methods: Annotated[str, typer.Option("--methods", help="Methods to compare.")] = "xd,flow",
    held_out: Annotated[
        float, typer.Option("--held-out", min=0.01, max=0.9, help="Share of rows not fitted.")
    ] = 0.2,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Compare methods by the log density of rows that were held out.

    Example: deconflow compare stars.csv -c x,y --methods xd
    """
    with one_line_errors(), waiting(quiet=quiet) as progress:
        names = _checked_methods(methods)
        for name in names:
            known.check_method(name)
        progress.begin(f"reading {said.table}")
        found, rows, _ = read_table(said, how, known)
        parts = _split(rows, held_out, seed)
        estimates = {}
        for name in names:
            model = make_estimator(
                name, len(parts[0]), (), known.parameters(found.names),
                random_state=seed,
            )  # fmt: skip
            with watched(model.name_columns(found.names), progress):
                estimates[name] = _held_out(name, model, rows, *parts)
        scores = {name: each.log_p for name, each in estimates.items()}
        say(*verdict(scores, rows.rows[parts[1]].weights), *about_errors(estimates))


def verdict(scores: dict[str, Array], weights: Array | None = None) -> Iterator[str]:
    """Say which method is best, and whether that is more than luck."""
    found = {name: _mean(values, weights) for name, values in scores.items()}
    best = max(found, key=lambda name: found[name][0])
    width = max(map(len, scores))
    for name, (mean, error) in found.items():
        yield f"{name:{width}} held-out log p(w) {mean:.4f} +- {error:.4f} per row"
    for name, values in scores.items():
        if name == best:
            continue
        gap, error = _mean(scores[best] - values, weights)
        sure = "clearly better than" if gap > 2 * error else "not clearly better than"
        yield f"{best} is {sure} {name}: {gap:.4f} +- {error:.4f} per row"


def _mean(values: Array, weights: Array | None) -> tuple[float, float]:
    """Return the mean over rows, by their weights, and its standard error."""
    shares = np.ones(len(values)) if weights is None else weights
    shares = shares / shares.sum()
    mean = float(shares @ values)
    return mean, float(np.sqrt(shares**2 @ (values - mean) ** 2))


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
    model.fit(fitted.w, groups=groups, sample_weight=fitted.weights, **fitted.arguments)
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
