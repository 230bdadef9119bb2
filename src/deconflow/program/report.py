"""``deconflow info`` in a few lines; ``report``: one page that holds everything about a model."""

import base64
import html
import io
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from deconflow._version import __version__
from deconflow.checks import refuse_if
from deconflow.files import replacing
from deconflow.program.messages import TYPED, now, one_line_errors, say
from deconflow.program.model_folder import ModelFolder, load
from deconflow.program.options import Model, OptionalTable, Seed, as_options
from deconflow.program.plot import draw, measured_rows, need_plots
from deconflow.tables import COUNTS, Measurements, Rows

#: Correlations that are shown; of more, the largest.
MOST_PAIRS = 15
#: Rows that p-values are computed of; of more, so many at random.
MOST_ROWS = 20_000
#: Rows that are shown.
ODDEST = 10
BEHIND = "held-out log p(w) per row, less that of the best"
LIBRARIES = ("numpy", "scipy", "torch", "scikit-learn", "numba", "zuko", "pyarrow", "matplotlib")
#: Pictures, in the order of the page, and what they show.
CAPTIONS = {
    "marginals": "Each column: what was measured, and the density of the truth. The band, where "
    "there is one, should hold the true density at nine of ten places.",
    "corner": "Measured values in grey, the deconvolved density in blue.",
    "diagnostics": "Above: what was measured, and what the model would measure. Below: these "
    "histograms stay in the grey band if the model and the errors are right.",
}
CODE = """\
from deconflow.evaluation import unusual_rows
from deconflow.program.model_folder import load
saved = load({model!r})
model = saved.estimator  # as deconflow.load gives it
print(model.describe())
"""
CODE_WITHOUT_ROWS = "print(model.statistics())\n"
CODE_WITH_ROWS = """\
rows = saved.measurements({table!r}).rows  # as the fit has read them
print(rows.ask(model.statistics))
print(unusual_rows(rows.ask(model.p_values, random_state={seed})))
"""
#: How a page looks: light or dark, narrow or wide, on paper.
STYLE = """
:root { color-scheme: light dark;
        --ink: #222; --paper: #fff; --soft: #555; --line: #ddd; --faint: #eee;
        --code: #f5f5f5; --warn: #fff3cd; --warn-line: #d1495b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e4; --paper: #16181c; --soft: #a8acb3; --line: #3b3f46; --faint: #2a2d33;
          --code: #22252b; --warn: #3d3211; --warn-line: #e8727f; }
}
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; color: var(--ink); background: var(--paper); }
h1, h2, h3 { font-weight: 600; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); padding-bottom: .3rem; }
h3 { margin-top: 1.5rem; font-size: 1.05rem; }
p { overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .25rem 1.2rem .25rem 0;
         border-bottom: 1px solid var(--faint); }
td:first-child { white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.caution { background: var(--warn); padding: .5rem .8rem; border-left: 4px solid var(--warn-line); }
img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
figure { margin: 1.5rem 0; }
figcaption, .aside { color: var(--soft); }
pre { background: var(--code); padding: .8rem; overflow-x: auto; }
@media (max-width: 36rem) {
  table { font-size: .85rem; }
  th, td { padding-right: .7rem; }
}
@media print {
  :root { color-scheme: light; --ink: #000; --paper: #fff; --soft: #555; --line: #ddd;
          --faint: #eee; --code: #f5f5f5; --warn: #fff3cd; --warn-line: #d1495b; }
  .wide, pre { overflow: visible; } pre { white-space: pre-wrap; }
  figure, tr { break-inside: avoid; }
}
"""


def report(
    model: Model,
    table: OptionalTable = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Page to write: .html.")] = Path(
        "report.html"
    ),
    self_test: Annotated[
        int,
        typer.Option(
            "--self-test",
            min=0,
            metavar="N",
            help="Also test the model on N tables simulated from it; each takes as long as the "
            "fit.",
        ),
    ] = 0,
    seed: Seed = 0,
) -> None:
    """Write one page with a model's answer, to keep or to send.

    Figures of the truth with their errors beside the measured ones, pictures, certificate, what was
    chosen, components, the oddest rows, settings, the command that made the model, and Python that
    prints the numbers again. The page needs no network.

    Example: deconflow report model -o report.html
    """
    with one_line_errors():
        refuse_if(
            output.suffix.lower() not in (".html", ".htm"),
            f"Expected a page that ends in .html; got {output.name}.",
        )
        need_plots()
        saved = load(model)
        data = measured_rows(saved, table)
        tested = self_tested(saved, data, self_test, seed) if self_test else []
        text = page(saved, model, data, seed, table, tested)
        with replacing(output) as part:
            part.write_text(text, encoding="utf-8")
        say(f"Report written to {output}.")


def page(
    saved: ModelFolder,
    path: Path,
    data: Measurements | None,
    seed: int = 0,
    table: Path | None = None,
    tested: Sequence[str] = (),
) -> str:
    """Return the page as HTML; all that comes from a table or a model is escaped.

    ``table`` is where the rows come from, if not from the table that was fitted.
    """
    title = f"Density of {', '.join(saved.names)}"
    marginals, corner, diagnostics = (_picture(saved, kind, data, seed) for kind in CAPTIONS)
    sections = {
        "The answer": [*or_why_not(answer, saved, data), marginals, corner],
        "How far to trust it": [*_trust(saved), diagnostics],
        "Data": _data(saved),
        "What was chosen": or_why_not(chosen, saved),
        "Components": or_why_not(components, saved),
        "The oddest rows": or_why_not(odd_rows, saved, data, seed),
        **({"Self-test": tested} if tested else {}),
        "Settings": _settings(saved),
        "Where it comes from": _origin(saved),
        "The same in Python": [code(_python(saved, path, data, seed, table))],
    }
    return document(title, _beginning(saved), sections)


def _beginning(saved: ModelFolder) -> list[str]:
    """Say what the page is about, and that there is reason for doubt, if there is."""
    words = f"Deconvolved by deconflow {__version__}, method {saved.method}"
    about = saved.about.get("table")
    if about is not None:
        words += f", from {about['used']} rows of {Path(about['path']).name}"
    if "date" in saved.about:
        words += f", on {saved.about['date'][:10]}"
    lines = [paragraph(f"{words}.")]
    doubts = 0 if saved.certificate is None else len(saved.certificate.warnings)
    if doubts:
        count = "is a reason" if doubts == 1 else f"are {doubts} reasons"
        advice = "see how far to trust it, below, before you use the answer."
        lines.append(paragraph(f"There {count} for doubt: {advice}", "caution"))
    return lines


def _trust(saved: ModelFolder) -> list[str]:
    """Sentences of the certificate first, then its figures with what they mean."""
    certificate = saved.certificate
    if certificate is None:
        return [paragraph(line) for line in saved.known() or ["Nothing was kept of the fit."]]
    said = map(as_options, certificate.sentences())
    lines = [paragraph(line) for line in (saved.about["fitted"], *saved.known(), *said)]
    meanings = certificate.meanings()
    figures = [[name, text, meanings[name]] for name, text in certificate.figures().items()]
    return lines + ([table(["figure", "value", "what it says"], figures)] if figures else [])


def _data(saved: ModelFolder) -> list[str]:
    about = saved.about.get("table")
    if about is None or saved.columns is None:
        return [paragraph("The model was saved from Python; nothing is known of its table.")]
    columns = zip(saved.labels, saved.columns.error_words(), about["columns"], strict=True)
    figures = ("measured", "mean", "sd", "median_error")
    rows = [[label, error, *map(each.get, figures)] for label, error, each in columns]
    used = f"{about['used']} of {about['rows']} rows were used"
    return [
        paragraph(f"{about['path']}: {used}; the noise is {saved.columns.law}."),
        table(["column", "error", "measured", "mean", "spread", "median error"], rows),
    ]


def self_tested(
    saved: ModelFolder, data: Measurements | None, n_tables: int, seed: int
) -> list[str]:
    """Fit again to simulated tables, with a bar; sentences first, then the figures."""
    if data is None:
        raise ValueError("Expected a table for a self-test; got none. Name it.")
    if data.rows.limits is not None:
        raise ValueError(
            "Expected rows without limits for a self-test, because it is not known how limits come "
            "about; got some. Leave those rows out."
        )
    from deconflow.estimators import self_test

    found = data.rows.ask(
        self_test, saved.estimator, n_tables=n_tables, random_state=seed, verbose=True
    )
    lines = [paragraph(as_options(sentence)) for sentence in found.sentences()]
    return [*lines, table(["", "found"], found.figures().items())]


def _python(
    saved: ModelFolder, path: Path, data: Measurements | None, seed: int, table: Path | None
) -> str:
    """Return code that prints the figures of the page."""
    lines, model = CODE.format(model=str(path)), saved.estimator
    if data is None or "projected" in model.fit_.traits:
        return lines + CODE_WITHOUT_ROWS
    place = str(table or Path(saved.about["table"]["path"]))
    return lines + CODE_WITH_ROWS.format(table=place, seed=seed)


def _settings(saved: ModelFolder) -> list[str]:
    rows = saved.about.get("special_settings", {}).items()
    lines = [table(["parameter", "value"], rows)] if rows else []
    lines.append(paragraph("All others have their defaults." if rows else "All are the defaults."))
    if "seconds" in saved.about:
        lines.append(paragraph(f"The fit took {saved.about['seconds']:g} seconds."))
    return lines


def _origin(saved: ModelFolder) -> list[str]:
    """Say when, by which commands and with which versions the model and the page were made."""
    by = f"by deconflow {saved.files.description.get('deconflow', 'of an unknown version')}"
    when = f"on {saved.about['date']}" if saved.about else "on a date that was not kept"
    command = saved.about.get("command")
    return [
        paragraph(f"The model was fitted {by}, {when}:"),
        code(command) if command else paragraph("The command was not kept: it was made in Python."),
        paragraph(f"This page was written on {now()}, with {versions()}:"),
        code(TYPED.get() or "in Python"),
    ]


def versions() -> str:
    """Name the versions of this program, of Python and of what it computes with."""
    said = [f"deconflow {__version__}", f"Python {platform.python_version()}"]
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):  # of an extra that is not installed
            said.append(f"{name} {version(name)}")
    return ", ".join(said)


def _picture(saved: ModelFolder, kind: str, data: Measurements | None, seed: int) -> str:
    try:
        return figure(draw(saved, kind, data, [], seed), CAPTIONS[kind])
    except ValueError as error:  # a table that is gone, or rows that cannot be simulated
        return paragraph(f"No picture of kind {kind}: {error}", "aside")


def or_why_not(make: Callable[..., list[str]], *arguments: Any) -> list[str]:
    """Make a section; one that cannot be made says why in one line."""
    try:
        return make(*arguments)
    except ValueError as error:  # of this kind of model, or rows it cannot reach
        return [paragraph(f"Not shown: {as_options(str(error))}", "aside")]


def answer(saved: ModelFolder, data: Measurements | None) -> list[str]:
    """Mean, spread, quantiles and correlations of the truth, beside the measured ones."""
    model = saved.estimator
    if data is None or "projected" in model.fit_.traits:
        data, found = None, model.statistics()
    else:
        found = data.rows.ask(model.statistics)
    labels = dict(zip(saved.names, saved.labels, strict=True))
    figures = [[labels.get(name, name), *cells] for name, *cells in found.in_rows()]
    pairs = [row for row in figures if row[1] == "correlation"]
    correlation = found.truth.correlation
    size = np.abs(correlation[np.triu_indices(len(correlation), 1)])
    largest = np.argsort(-np.nan_to_num(size), kind="stable")[:MOST_PAIRS]
    shown = figures[: len(figures) - len(pairs)] + [pairs[i] for i in np.sort(largest)]
    heads = ["column", "figure", "deconvolved", "measured"]
    if data is None:
        heads, *shown = (row[:-1] for row in [heads, *shown])
    lines = [paragraph(line) for line in _about_figures(saved, data, found.how)]
    lines.append(table(heads, shown, figures=range(2, len(heads))))
    if len(pairs) > MOST_PAIRS:
        lines.append(paragraph(f"The {MOST_PAIRS} largest of {len(pairs)} correlations are shown."))
    return lines


def _about_figures(saved: ModelFolder, data: Measurements | None, how: str) -> list[str]:
    """Say what the figures are, and what to keep in mind."""
    model, what = saved.estimator, "Mean, spread (standard deviation), quantiles and correlations"
    lines = {
        f"{what} of the truth. There is no table, so that measured ones are not shown.":
            data is None,
        f"{what} of the truth, beside those of the measurements, in which errors are mixed with "
        "the truth.":
            data is not None,
        f"{as_options(how[0].upper() + how[1:])}.":
            True,
        "The truth depends on covariates: its figures are over those of the fitted rows.":
            model.fit_.covariates is not None,
        "The truth is that of all rows, seen or not; measured were those that were seen.":
            "selected" in model.fit_.traits,
        "Rows that are background are among the measured ones, but have no truth.":
            model.background_share_ > 0,
        "Values of which only a limit is known are left out of the measured figures.":
            data is not None and data.rows.limits is not None,
        "What was measured are counts; the truth is the rate or share behind them.":
            saved.columns is not None and saved.columns.noise in COUNTS,
    }  # fmt: skip
    return [line for line, holds in lines.items() if holds]


def chosen(saved: ModelFolder) -> list[str]:
    """What was fitted; candidates with their weights, and those of numbers of components."""
    model = saved.estimator
    lines = [paragraph(model.describe())]
    if isinstance(getattr(model, "weights_", None), dict):
        rows = [
            [name, f"{each.share:.3f}", _behind(each.behind, each.error)]
            for name, each in model.fit_.solution.fitted.standings.items()
        ]
        heads = ["candidate", "weight", BEHIND]
        lines += ["<h3>Candidates</h3>", table(heads, rows, figures=[1, 2])]
    selection = getattr(model, "selection_", None)
    if selection:
        lines += ["<h3>Numbers of components</h3>", _numbers_of_components(selection)]
    return lines


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


def components(saved: ModelFolder) -> list[str]:
    """The Gaussians of a mixture, if they are few."""
    from deconflow.estimators import components_of

    found = components_of(saved.estimator)
    lines = []
    if found.n_fits > 1:
        words = f"Means over {found.n_fits} fits, whose components are matched with each other"
        errors = "." if found.errors is None else ", with standard errors."
        lines.append(paragraph(words + errors))
    if saved.estimator.atom_weights_.size:
        lines.append(paragraph("They are those of the truths that are at no atom."))
    return [*lines, table(found.heads, found.in_rows(), figures=range(len(found.heads)))]


def odd_rows(saved: ModelFolder, data: Measurements | None, seed: int) -> list[str]:
    """The rows with the smallest p-values, and how many should be so by chance."""
    from deconflow.evaluation import unusual_rows

    if data is None:
        raise ValueError("Expected a table for p-values of its rows; got none. Name it.")
    drawn = np.sort(np.random.default_rng(0).permutation(len(data.rows))[:MOST_ROWS])
    some, places = data.rows[drawn], data.places[drawn]
    p = np.full(len(data), np.nan)
    p[places] = some.ask(saved.estimator.p_values, random_state=seed)
    found = unusual_rows(p)
    rows = [
        [
            str(row),
            f"{p[row]:.2g}",
            f"{found.q_values[row]:.2g}",
            *_measured(some, np.searchsorted(places, [row])),
        ]
        for row in np.argsort(p, kind="stable")[: min(ODDEST, len(places))]
    ]
    lines = {
        f"{found}.":
            True,
        "A p-value is the probability of a measurement as unusual as this, given its error; a "
        "q-value the share of false alarms among all rows that are at least as unusual. Rows are "
        "counted from 0, as score counts them.":
            True,
        f"Of {len(data.places)} rows {len(places)} were looked at, taken at random.":
            len(places) < len(data.places),
        "These p-values know nothing of the selection, and are rough near its edge.":
            "selected" in saved.estimator.fit_.traits,
    }  # fmt: skip
    shown = [paragraph(line) for line, holds in lines.items() if holds]
    heads = ["row", "p-value", "q-value", *saved.labels]
    return [*shown, table(heads, rows, figures=range(len(heads)))]


def _measured(rows: Rows, which: Any) -> list[str]:
    """Write the values of a row, with their errors."""
    one = rows[which]
    limits = np.zeros(one.w.shape, int) if one.limits is None else one.limits
    return [
        "missing" if np.isnan(w) else f"{('', '>', '<')[flag]}{w:.4g} +- {sd:.2g}"
        for w, sd, flag in zip(one.w[0], one.errors[0], limits[0], strict=True)
    ]


# -- pieces of HTML; whatever text goes into them is escaped --------------------------------------


def document(title: str, beginning: Iterable[str], sections: Mapping[str, Sequence[str]]) -> str:
    """Return a whole page, which may load nothing and run nothing."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    lines = [f"<h1>{safe(title)}</h1>", *beginning]
    for head, content in sections.items():
        lines += ["<section>", f"<h2>{safe(head)}</h2>", *content, "</section>"]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{safe(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(lines)
        + "\n</body>\n</html>\n"
    )


def paragraph(text: Any, kind: str = "") -> str:
    """Return a paragraph, of a class of the style if there is one; a caution has its own."""
    return f"<p{_class('caution' if str(text).startswith('CAUTION') else kind)}>{safe(text)}</p>"


def table(header: Iterable[str], rows: Iterable[Iterable[Any]], figures: Iterable[int] = ()) -> str:
    """Return a table, in a box of its own that scrolls if it is wide.

    Columns of numbers lean to the right, and so do those in ``figures``, by their place: numbers
    that are written out already.
    """
    names, body, written = list(header), [list(row) for row in rows], set(figures)
    kinds = [
        "number" if i in written or all(isinstance(row[i], int | float) for row in body) else ""
        for i in range(len(names))
    ]
    lines = [_row("th", names, kinds), *(_row("td", row, kinds) for row in body)]
    return "\n".join(['<div class="wide">', "<table>", *lines, "</table>", "</div>"])


def figure(picture: Any, caption: str) -> str:
    """Return a matplotlib figure, inside the page, and close it."""
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    picture.savefig(buffer, format="png", dpi=110)
    plt.close(picture)
    address = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
    return (
        f'<figure>\n<img src="{address}" alt="{safe(caption)}">\n'
        f"<figcaption>{safe(caption)}</figcaption>\n</figure>"
    )


def code(text: str) -> str:
    """Return lines of code."""
    return f"<pre>{safe(text)}</pre>"


def safe(text: Any) -> str:
    """Escape text, so that it is shown as it is written."""
    return html.escape(str(text))


def _row(tag: str, cells: list[Any], kinds: list[str]) -> str:
    texts = [f"{cell:.4g}" if isinstance(cell, float) else safe(cell) for cell in cells]
    pairs = zip(map(_class, kinds), texts, strict=True)
    return "<tr>" + "".join(f"<{tag}{kind}>{text}</{tag}>" for kind, text in pairs) + "</tr>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
