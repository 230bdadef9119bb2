"""``deconflow compare``: which method foretells rows that it has not seen."""

from collections.abc import Iterator
from typing import Annotated

import numpy as np
import typer

from deconflow._types import AnyArray, Array
from deconflow.checks import refuse_if
from deconflow.program.messages import note, one_line_errors, say
from deconflow.program.methods import check_known, make_estimator, parameters_of
from deconflow.program.options import ABOUT_ROWS, Namespace, Quiet, Seed, with_options
from deconflow.program.reading import (
    find_rows,
    read_all,
    refuse_too_large,
)
from deconflow.progress import Progress
from deconflow.tables import Rows, split_list


@with_options(*ABOUT_ROWS)
def compare(
    *,
    options: Namespace,
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
    with one_line_errors(), Progress(shown=not quiet, tell=note) as progress:
        names = list(dict.fromkeys(split_list([methods])))
        refuse_if(not names, "Expected one or more --methods; got none.")
        for name in names:
            check_known(options, name)
        progress.begin(f"reading {options.table}")
        reader = find_rows(options)
        refuse_too_large(reader)
        rows = read_all(reader)[0].rows
        train, test = _split(rows, held_out, seed)
        from deconflow.core import shown_by

        known, scores = parameters_of(options, rows.names), {}
        for name in names:
            model = make_estimator(name, known=known, random_state=seed)
            progress.begin("fitting")
            with shown_by(progress):
                rows[train].ask(model.fit)
            scores[name] = rows[test].ask(model.score_observations)
        say(*verdict(scores, rows[test].weights))


def verdict(scores: dict[str, Array], weights: Array | None = None) -> Iterator[str]:
    """Say which method is best, and whether that is more than luck."""
    found = {name: _mean(values, weights) for name, values in scores.items()}
    best, width = max(found, key=lambda name: found[name][0]), max(map(len, scores))
    for name, (mean, error) in found.items():
        yield f"{name:{width}} held-out log p(w) {mean:.4f} +- {error:.4f} per row"
    for name in [name for name in scores if name != best]:
        gap, error = _mean(scores[best] - scores[name], weights)
        sure = "clearly better than" if gap > 2 * error else "not clearly better than"
        yield f"{best} is {sure} {name}: {gap:.4f} +- {error:.4f} per row"


def _mean(values: Array, weights: Array | None) -> tuple[float, float]:
    """Return the mean over rows, by their weights, and its standard error."""
    shares = np.ones(len(values)) if weights is None else weights
    shares = shares / shares.sum()
    mean = float(shares @ values)
    return mean, float(np.sqrt(shares**2 @ (values - mean) ** 2))


def _split(rows: Rows, share: float, seed: int) -> tuple[AnyArray, AnyArray]:
    """Number the rows to fit and those to hold out; groups, or copies, are not parted."""
    from deconflow.copies import keep_copies_together
    from deconflow.observations import Observations, hold_out

    order = np.random.default_rng(seed).permutation(len(rows))
    n_test = max(1, round(share * len(order)))
    data = Observations.from_arrays(rows.w, rows.stated, groups=rows.groups)
    codes = keep_copies_together(data).group_codes()
    held = hold_out(codes, order, n_test)
    refuse_if((~held).sum() < 2, f"Expected enough rows to hold some out; got {len(rows)}.")
    return order[~held], order[held]
