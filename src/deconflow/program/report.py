"""``deconflow report``: one page that holds everything about a model, and needs no network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

import deconflow
from deconflow.files import replacing
from deconflow.program.info import special_settings
from deconflow.program.markup import code, document, figure, paragraph, safe, section, table
from deconflow.program.messages import one_line_errors
from deconflow.program.options import Model, OptionalTable, Seed
from deconflow.program.plot import KINDS, Measured, draw, measured_rows, need_plots
from deconflow.program.saved import SavedModel, load, method_of

CAPTIONS = {
    "corner": "Measured values in grey, the deconvolved density in blue.",
    "marginals": "Each column: what was measured, and the density of the truth; the band, where "
    "there is one, is what members of the average disagree about.",
    "history": "How the model came about: larger is better.",
    "diagnostics": "Above: what was measured, and what the model would measure. Below: these "
    "histograms stay in the grey band if the model and the errors are right.",
}
MEANINGS = {
    "held-out log p(w)": "rows that a fit had not seen; larger is better",
    "effective sample size": "how many draws of a row's posterior count; above 10 % is good",
    "Pareto k": "tails of the weights; above 0.7 a row's answer is rough",
    "bounds of log p(w)": "the true value lies between two bounds; below 0.1 is good",
    "flows' gain over XD": "on rows that neither had seen; above two errors it is real",
    "chains moved": "a chain that hardly moves still carries its start; above 5 % is good",
}
"""What the figures of a certificate say."""


def report(
    model: Model,
    table: OptionalTable = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Page to write: .html.")] = Path(
        "report.html"
    ),
    seed: Seed = 0,
) -> None:
    """Write one page about a model.

    It holds data, fit, pictures, certificate and settings, and needs no network.

    Example: deconflow report model -o report.html
    """
    with one_line_errors():
        if output.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"Expected a page that ends in .html; got {output.name}.")
        need_plots()
        saved = load(model)
        text = page(saved, model, measured_rows(saved, table), seed)
        with replacing(output) as part:
            part.write_text(text, encoding="utf-8")
        typer.echo(f"Report written to {output}.")


def page(saved: SavedModel, path: Path, data: Measured | None, seed: int = 0) -> str:
    """Return the page as HTML; all that comes from a table or a model is escaped."""
    title = f"Density of {', '.join(saved.names)}"
    made = f"Deconvolved by deconflow {deconflow.__version__}, method {method_of(saved)}."
    sections = [
        f"<h1>{safe(title)}</h1>",
        paragraph(made),
        section("How far to trust it", *_trust(saved.about.get("certificate", []))),
        section("Data", *_data(saved)),
        section("Pictures", *(_picture(saved, kind, data, seed) for kind in KINDS)),
        section("Settings", *_settings(saved)),
        section("In Python", _code(saved, path)),
    ]
    return document(title, sections)


def _trust(certificate: list[str]) -> list[str]:
    """Sentences of a certificate first, then its figures with what they mean."""
    if not certificate:
        return [paragraph("Nothing was kept of the fit.")]
    parts = [re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in certificate]
    sentences = [part[0] for part in parts if len(part) == 1]
    figures = [[*part, MEANINGS.get(part[0], "")] for part in parts if len(part) == 2]
    answer = [paragraph(s, "caution" if s.startswith("CAUTION") else "") for s in sentences]
    return answer + ([table(["figure", "value", "what it says"], figures)] if figures else [])


def _data(saved: SavedModel) -> list[str]:
    about = saved.about.get("table")
    if about is None or saved.columns is None:
        return [paragraph("The model was saved from Python; nothing is known of its table.")]
    errors = [line.partition(" with error ")[2] for line in saved.columns.describe()]
    rows = [
        [label, error, c["measured"], c["mean"], c["sd"], c["median_error"]]
        for label, error, c in zip(saved.labels, errors, about["columns"], strict=True)
    ]
    used = f"{about['used']} of {about['rows']} rows were used"
    return [
        paragraph(f"{about['path']}: {used}; the noise is {saved.columns.law}."),
        table(["column", "error", "measured", "mean", "spread", "median error"], rows),
    ]


def _settings(saved: SavedModel) -> list[str]:
    rows = list(special_settings(saved).items())
    seconds = saved.about.get("seconds")
    lines = [table(["parameter", "value"], rows)] if rows else []
    lines.append(paragraph("All others have their defaults." if rows else "All are the defaults."))
    return lines + ([] if seconds is None else [paragraph(f"The fit took {seconds:g} seconds.")])


def _picture(saved: SavedModel, kind: str, data: Measured | None, seed: int) -> str:
    try:
        return figure(draw(saved, kind, data, [], seed), CAPTIONS[kind])
    except ValueError as error:  # a table that is gone, or a model without a history
        return paragraph(f"No picture of kind {kind}: {error}")


def _code(saved: SavedModel, path: Path) -> str:
    name = type(saved.estimator).__name__
    return code(
        f"from deconflow import {name}\n\n"
        f"model = {name}.load({str(path)!r})\n"
        f"model.sample(1000)  # columns: {', '.join(saved.names)}\n"
        "model.score_samples(v)  # log p(v)\n"
        "model.posterior(w, noise=sd).mean\n"
    )
