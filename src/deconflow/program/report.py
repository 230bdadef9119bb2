"""``deconflow report``: one page that holds everything about a model, and needs no network."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deconflow._version import __version__
from deconflow.files import replacing
from deconflow.program.html import code, document, figure, paragraph, safe, section, table
from deconflow.program.messages import one_line_errors, say
from deconflow.program.model_folder import ModelFolder, load
from deconflow.program.options import Model, OptionalTable, Seed, as_options
from deconflow.program.plot import Measured, draw, measured_rows, need_plots
from deconflow.program.provenance import now, typed_command, versions
from deconflow.program.report_answer import answer, chosen, components, odd_rows

if TYPE_CHECKING:
    from deconflow.estimators import SelfTest

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
        if output.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"Expected a page that ends in .html; got {output.name}.")
        need_plots()
        saved = load(model)
        data = measured_rows(saved, table)
        tested = _tested(saved, data, self_test, seed) if self_test else None
        text = page(saved, model, data, seed, table, tested)
        with replacing(output) as part:
            part.write_text(text, encoding="utf-8")
        say(f"Report written to {output}.")


def page(
    saved: ModelFolder,
    path: Path,
    data: Measured | None,
    seed: int = 0,
    table: Path | None = None,
    tested: "SelfTest | None" = None,
) -> str:
    """Return the page as HTML; all that comes from a table or a model is escaped.

    ``table`` is where the rows come from, if not from the table that was fitted.
    """
    title = f"Density of {', '.join(saved.names)}"
    marginals, corner, diagnostics = (_picture(saved, kind, data, seed) for kind in CAPTIONS)
    parts = {
        "The answer": answer(saved, data),
        "How far to trust it": [*_trust(saved), diagnostics],
        "Data": _data(saved),
        "What was chosen": chosen(saved),
        "Components": components(saved),
        "The oddest rows": odd_rows(saved, data, seed),
        **({} if tested is None else {"Self-test": _self_test(tested)}),
        "Settings": _settings(saved),
        "Where it comes from": _origin(saved),
        "The same in Python": [code(_python(saved, path, data, seed, table))],
    }
    parts["The answer"] += [marginals, corner]
    sections = [section(title, *part) for title, part in parts.items()]
    return document(title, [f"<h1>{safe(title)}</h1>", *_beginning(saved), *sections])


def _beginning(saved: ModelFolder) -> list[str]:
    """Say what the page is about, and that there is reason for doubt, if there is."""
    words = f"Deconvolved by deconflow {__version__}, method {saved.method}"
    about = saved.about.get("table")
    if about is not None:
        words += f", from {about['used']} rows of {Path(about['path']).name}"
    if "date" in saved.about:
        words += f", on {saved.about['date'][:10]}"
    doubts = 0 if saved.certificate is None else len(saved.certificate.warnings)
    if not doubts:
        return [paragraph(f"{words}.")]
    count = "is a reason" if doubts == 1 else f"are {doubts} reasons"
    said = f"There {count} for doubt: see how far to trust it, below, before you use the answer."
    return [paragraph(f"{words}."), paragraph(said, "caution")]


def _trust(saved: ModelFolder) -> list[str]:
    """Sentences of the certificate first, then its figures with what they mean."""
    if saved.certificate is None:
        kept = saved.known() or ["Nothing was kept of the fit."]
        return [paragraph(line) for line in kept]
    said = map(as_options, saved.certificate.sentences())
    sentences = [saved.about["fitted"], *saved.known(), *said]
    answer = [paragraph(s, "caution" if s.startswith("CAUTION") else "") for s in sentences]
    meanings = saved.certificate.meanings()
    figures = [[name, text, meanings[name]] for name, text in saved.certificate.figures().items()]
    return answer + ([table(["figure", "value", "what it says"], figures)] if figures else [])


def _data(saved: ModelFolder) -> list[str]:
    about = saved.about.get("table")
    if about is None or saved.columns is None:
        return [paragraph("The model was saved from Python; nothing is known of its table.")]
    errors = saved.columns.error_words()
    rows = [
        [label, error, c["measured"], c["mean"], c["sd"], c["median_error"]]
        for label, error, c in zip(saved.labels, errors, about["columns"], strict=True)
    ]
    used = f"{about['used']} of {about['rows']} rows were used"
    return [
        paragraph(f"{about['path']}: {used}; the noise is {saved.columns.law}."),
        table(["column", "error", "measured", "mean", "spread", "median error"], rows),
    ]


def _tested(saved: ModelFolder, data: Measured | None, n_tables: int, seed: int) -> "SelfTest":
    """Fit again to simulated tables, with a bar."""
    if data is None:
        raise ValueError("Expected a table for a self-test; got none. Name it.")
    if data.rows.limits is not None:
        raise ValueError(
            "Expected rows without limits for a self-test, because it is not known how limits come "
            "about; got some. Leave those rows out."
        )
    from deconflow.estimators import self_test

    return data.rows.ask(
        self_test, saved.estimator, n_tables=n_tables, random_state=seed, verbose=True
    )


def _python(
    saved: ModelFolder, path: Path, data: Measured | None, seed: int, table: Path | None
) -> str:
    """Return code that prints the figures of the page."""
    lines, model = CODE.format(model=str(path)), saved.estimator
    if data is None or "projected" in model.fit_.traits:
        return lines + CODE_WITHOUT_ROWS
    place = table or Path(saved.about["table"]["path"])
    return lines + CODE_WITH_ROWS.format(table=str(place), seed=seed)


def _self_test(found: "SelfTest") -> list[str]:
    """Sentences first, then the figures."""
    sentences = map(as_options, found.sentences())
    said = [paragraph(s, "caution" if s.startswith("CAUTION") else "") for s in sentences]
    return [*said, table(["", "found"], found.figures().items())]


def _settings(saved: ModelFolder) -> list[str]:
    rows = list(saved.about.get("special_settings", {}).items())
    seconds = saved.about.get("seconds")
    lines = [table(["parameter", "value"], rows)] if rows else []
    lines.append(paragraph("All others have their defaults." if rows else "All are the defaults."))
    return lines + ([] if seconds is None else [paragraph(f"The fit took {seconds:g} seconds.")])


def _origin(saved: ModelFolder) -> list[str]:
    """Say when, by which commands and with which versions the model and the page were made."""
    by = f"by deconflow {saved.files.description.get('deconflow', 'of an unknown version')}"
    when = f"on {saved.about['date']}" if saved.about else "on a date that was not kept"
    lines = [paragraph(f"The model was fitted {by}, {when}:")]
    if saved.about.get("command") is not None:
        lines.append(code(saved.about["command"]))
    else:
        lines.append(paragraph("The command was not kept: it was made in Python."))
    lines.append(paragraph(f"This page was written on {now()}, with {versions()}:"))
    return [*lines, code(typed_command() or "in Python")]


def _picture(saved: ModelFolder, kind: str, data: Measured | None, seed: int) -> str:
    try:
        return figure(draw(saved, kind, data, [], seed), CAPTIONS[kind])
    except ValueError as error:  # a table that is gone, or rows that cannot be simulated
        return paragraph(f"No picture of kind {kind}: {error}", "aside")
