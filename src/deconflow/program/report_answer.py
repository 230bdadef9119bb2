"""The answer on a report's page: figures of the truth, what was chosen, components, odd rows."""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np

from deconflow._types import Array
from deconflow.program.html import heading, paragraph, table
from deconflow.program.known import covariates_of
from deconflow.program.model_folder import ModelFolder
from deconflow.program.options import as_options
from deconflow.program.plot import Measured
from deconflow.tables import COUNTS

#: Correlations that are shown; of more, the largest.
MOST_PAIRS = 15
#: Rows that p-values are computed of; of more, so many at random.
MOST_ROWS = 20_000
#: Rows that are shown.
ODDEST = 10
BEHIND = "held-out log p(w) per row, less that of the best"


def or_why_not(make: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """Let a section that cannot be made say why in one line."""

    @wraps(make)
    def made(*arguments: Any) -> list[str]:
        try:
            return make(*arguments)
        except ValueError as error:  # of this kind of model, or rows it cannot reach
            return [paragraph(f"Not shown: {as_options(str(error))}", "aside")]

    return made


@or_why_not
def answer(saved: ModelFolder, data: Measured | None) -> list[str]:
    """Mean, spread, quantiles and correlations of the truth, beside the measured ones."""
    model = saved.estimator
    if data is None or "projected" in model.fit_.traits:
        data, found = None, model.statistics()
    else:
        found = data.rows.ask(model.statistics)
    labels = dict(zip(saved.names, saved.labels, strict=True))
    figures = [[labels.get(name, name), *cells] for name, *cells in found.in_rows()]
    pairs = [row for row in figures if row[1] == "correlation"]
    shown = figures[: len(figures) - len(pairs)] + _largest(pairs, found.truth.correlation)
    heads = ["column", "figure", "deconvolved", "measured"]
    if data is None:
        heads, *shown = (row[:-1] for row in [heads, *shown])
    lines = [paragraph(line) for line in _about_figures(saved, data, found.how)]
    lines.append(table(heads, shown, figures=range(2, len(heads))))
    if len(pairs) > MOST_PAIRS:
        words = f"The {MOST_PAIRS} largest of {len(pairs)} correlations are shown."
        lines.append(paragraph(words))
    return lines


def _largest(pairs: list[list[str]], correlation: Array) -> list[list[str]]:
    """Return the pairs of columns with the largest correlations, in their order."""
    size = np.abs(correlation[np.triu_indices(len(correlation), 1)])
    order = np.argsort(-np.nan_to_num(size), kind="stable")[:MOST_PAIRS]
    return [pairs[i] for i in np.sort(order)]


def _about_figures(saved: ModelFolder, data: Measured | None, how: str) -> Iterator[str]:
    """Say what the figures are, and what to keep in mind."""
    model, what = saved.estimator, "Mean, spread (standard deviation), quantiles and correlations"
    errors = f"{as_options(how[0].upper() + how[1:])}."
    if data is None:
        yield f"{what} of the truth. There is no table, so that measured ones are not shown."
    else:
        yield (
            f"{what} of the truth, beside those of the measurements, in which errors are mixed "
            "with the truth."
        )
    yield errors
    if covariates_of(model) is not None:
        yield "The truth depends on covariates: its figures are over those of the fitted rows."
    if "selected" in model.fit_.traits:
        yield "The truth is that of all rows, seen or not; measured were those that were seen."
    if model.background_share_ > 0:
        yield "Rows that are background are among the measured ones, but have no truth."
    if data is not None and data.rows.limits is not None:
        yield "Values of which only a limit is known are left out of the measured figures."
    if saved.columns is not None and saved.columns.noise in COUNTS:
        yield "What was measured are counts; the truth is the rate or share behind them."


@or_why_not
def chosen(saved: ModelFolder) -> list[str]:
    """What was fitted; candidates with their weights, and those of numbers of components."""
    model = saved.estimator
    lines = [paragraph(model.describe())]
    if isinstance(getattr(model, "weights_", None), dict):
        lines += [heading("Candidates"), _candidates(model)]
    selection = getattr(model, "selection_", None)
    if selection:
        lines += [heading("Numbers of components"), _numbers_of_components(selection)]
    return lines


def _candidates(model: Any) -> str:
    """Who got which weight, and how each did on rows that it had not seen."""
    rows = [
        [name, f"{each.share:.3f}", _behind(each.behind, each.error)]
        for name, each in model.fit_.solution.fitted.standings.items()
    ]
    return table(["candidate", "weight", BEHIND], rows, figures=[1, 2])


def _behind(behind: float, error: float) -> str:
    return f"{-behind:.4f} +- {error:.4f}" if behind > 0 else "the best"


def _numbers_of_components(selection: dict[str, Any]) -> str:
    """Weight of each number of components over all floors, and how its best did."""
    counts, share = np.asarray(selection["n_components"]), np.asarray(selection["share"])
    behind, error = selection["behind_best"], selection["behind_best_se"]
    rows = []
    for count in np.unique(counts):
        mine = np.flatnonzero(counts == count)
        best = mine[np.argmin(behind[mine])]
        rows.append([int(count), f"{share[mine].sum():.3f}", _behind(behind[best], error[best])])
    return table(["components", "weight", BEHIND], rows, figures=[1, 2])


@or_why_not
def components(saved: ModelFolder) -> list[str]:
    """The Gaussians of a mixture, if they are few."""
    from deconflow.estimators import components_of

    found = components_of(saved.estimator)
    lines = []
    if found.n_fits > 1:
        words = f"Means over {found.n_fits} fits, whose components are matched with each other"
        errors = ", with standard errors." if found.errors is not None else "."
        lines.append(paragraph(words + errors))
    if saved.estimator.atom_weights_.size:
        lines.append(paragraph("They are those of the truths that are at no atom."))
    heads = found.heads
    return [*lines, table(heads, found.in_rows(), figures=range(len(heads)))]


@or_why_not
def odd_rows(saved: ModelFolder, data: Measured | None, seed: int) -> list[str]:
    """The rows with the smallest p-values, and how many should be so by chance."""
    from deconflow.evaluation import unusual_rows

    if data is None:
        raise ValueError("Expected a table for p-values of its rows; got none. Name it.")
    some = data.some(MOST_ROWS)
    p = np.full(data.n_rows, np.nan)
    p[some.places] = some.rows.ask(saved.estimator.p_values, random_state=seed)
    found = unusual_rows(p)
    rows = [
        [str(row), f"{p[row]:.2g}", f"{found.q_values[row]:.2g}", *_measured(some, row)]
        for row in np.argsort(p, kind="stable")[: min(ODDEST, len(some.places))]
    ]
    heads = ["row", "p-value", "q-value", *saved.labels]
    lines = [paragraph(line) for line in _about_p_values(saved, some, data)]
    return [paragraph(f"{found}."), *lines, table(heads, rows, figures=range(len(heads)))]


def _measured(some: Measured, row: int) -> list[str]:
    """Write the values of a row of the table, with their errors."""
    one = some.rows[np.searchsorted(some.places, [row])]
    limits = np.zeros(one.w.shape, int) if one.limits is None else one.limits
    return [
        "missing" if np.isnan(w) else f"{('', '>', '<')[flag]}{w:.4g} +- {sd:.2g}"
        for w, sd, flag in zip(one.w[0], one.errors[0], limits[0], strict=True)
    ]


def _about_p_values(saved: ModelFolder, some: Measured, data: Measured) -> Iterator[str]:
    yield (
        "A p-value is the probability of a measurement as unusual as this, given its error; a "
        "q-value the share of false alarms among all rows that are at least as unusual. Rows are "
        "counted from 0, as score counts them."
    )
    if len(some.places) < len(data.places):
        yield f"Of {len(data.places)} rows {len(some.places)} were looked at, taken at random."
    if "selected" in saved.estimator.fit_.traits:
        yield "These p-values know nothing of the selection, and are rough near its edge."
