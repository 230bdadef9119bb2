"""``deconflow report``: one page that holds everything about a model, and needs no network."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

import deconflow
from deconflow.files import replacing
from deconflow.program.info import special_settings
from deconflow.program.messages import one_line_errors
from deconflow.program.options import TABLE_HELP, Model, Seed
from deconflow.program.plot import KINDS, Measured, draw, measured_rows, need_plots
from deconflow.program.saved import SavedModel, load, method_of

CAPTIONS = {
    "corner": "Measured values in grey, the deconvolved density in blue.",
    "marginals": "Each column: measured, and deconvolved; the band is what members disagree about.",
    "history": "The training: larger is better.",
    "diagnostics": "Above: what was measured, and what the model would measure. Below: these "
    "histograms stay in the grey band if the model and the errors are right.",
}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; color: #222; background: #fff; }
h1, h2 { font-weight: 600; line-height: 1.2; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd; padding-bottom: .3rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid #eee; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; height: auto; }
figure { margin: 1.5rem 0; }
figcaption { color: #555; }
pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; }
"""


def report(
    model: Model,
    table: Annotated[
        Path | None, typer.Argument(help=f"{TABLE_HELP} Without it, the one that was fitted.")
    ] = None,
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
    sections = [
        f"<h1>{_safe(title)}</h1>",
        f"<p>Deconvolved by deconflow {_safe(deconflow.__version__)}, "
        f"method {_safe(method_of(saved))}.</p>",
        _section("How far to trust it", _list(saved.about.get("certificate", []))),
        _section("Data", _data(saved)),
        _section("Pictures", _pictures(saved, data, seed)),
        _section("Settings", _settings(saved)),
        _section("In Python", _code(saved, path)),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_safe(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(sections)
        + "\n</body>\n</html>\n"
    )


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{_safe(title)}</h2>\n{content}\n</section>"


def _data(saved: SavedModel) -> str:
    about = saved.about.get("table")
    if about is None or saved.columns is None:
        return "<p>The model was saved from Python; nothing is known of its table.</p>"
    errors = dict(zip(saved.names, saved.columns.describe(), strict=True))
    rows = [
        [c["name"], errors[c["name"]].removeprefix(f"{c['name']} with "), c["measured"],
         c["mean"], c["sd"], c["median_error"]]
        for c in about["columns"]
    ]  # fmt: skip
    law = "split-normal" if saved.columns.uneven else saved.columns.noise
    return (
        f"<p>{_safe(about['path'])}: {about['used']} of {about['rows']} rows were used; "
        f"the noise is {_safe(law)}.</p>\n"
        + _table(["column", "error", "measured", "mean", "spread", "median error"], rows)
    )


def _settings(saved: SavedModel) -> str:
    rows = list(special_settings(saved).items())
    if "seconds" in saved.about:
        rows.append(("seconds of the fit", saved.about["seconds"]))
    return _table(["parameter", "value"], rows) + "\n<p>All others have their defaults.</p>"


def _pictures(saved: SavedModel, data: Measured | None, seed: int) -> str:
    figures = []
    for kind in KINDS:
        try:
            figure = draw(saved, kind, data, [], seed)
        except ValueError as error:  # a table that is gone, or a model without a history
            figures.append(f"<p>No picture of kind {kind}: {_safe(error)}</p>")
            continue
        figures.append(
            f'<figure>\n<img src="{_embedded(figure)}" alt="{_safe(CAPTIONS[kind])}">\n'
            f"<figcaption>{_safe(CAPTIONS[kind])}</figcaption>\n</figure>"
        )
    return "\n".join(figures)


def _embedded(figure: Any) -> str:
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    plt.close(figure)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _code(saved: SavedModel, path: Path) -> str:
    name = type(saved.estimator).__name__
    return "<pre>" + _safe(
        f"from deconflow import {name}\n\n"
        f"model = {name}.load({str(path)!r})\n"
        f"model.sample(1000)  # columns: {', '.join(saved.names)}\n"
        "model.score_samples(v)  # log p(v)\n"
        "model.posterior(w, noise=sd).mean\n"
    ) + "</pre>"  # fmt: skip


def _table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    head = "".join(f"<th>{_safe(cell)}</th>" for cell in header)
    body = "\n".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f'<td class="number">{value:.4g}</td>'
    kind = ' class="number"' if isinstance(value, int) else ""
    return f"<td{kind}>{_safe(value)}</td>"


def _list(lines: Iterable[str]) -> str:
    items = "\n".join(f"<li>{_safe(line)}</li>" for line in lines)
    return f"<ul>\n{items}\n</ul>" if items else "<p>Nothing was kept of the fit.</p>"


def _safe(text: Any) -> str:
    return html.escape(str(text))
