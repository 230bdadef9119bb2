"""``deconflow info``: what a model is."""

from collections.abc import Iterator

from deconflow.program.messages import one_line_errors, say
from deconflow.program.model_folder import ModelFolder, load
from deconflow.program.options import Model, as_options


def info(model: Model) -> None:
    """Say what a model was fitted to, and how far it can be trusted.

    Example: deconflow info model
    """
    with one_line_errors():
        say(*describe(load(model)))


def describe(saved: ModelFolder) -> Iterator[str]:
    """Go through what is known of a model, line by line."""
    about, columns, table = saved.about, saved.columns, saved.about.get("table", {})
    known = {
        "method": [f"{saved.method} ({saved.files.description['class']})"],
        "table": [table["path"]] if table else [],
        "rows": [f"{table['used']} used of {table['rows']}"] if table else [],
        "columns": [] if columns else [f"{', '.join(saved.names)} (saved from Python)"],
        "column": columns.describe() if columns else [],
        "noise": [columns.law] if columns else [],
        "weights": [table["weights"]] if table.get("weights") else [],
        "seconds": [f"{about['seconds']:g}"] if "seconds" in about else [],
        "setting": [f"{name} = {x}" for name, x in about.get("special_settings", {}).items()],
        "known": saved.known(),
    }
    yield from (f"{what:10} {line}" for what, lines in known.items() for line in lines)
    if saved.certificate is not None:
        yield about["fitted"]
        yield from as_options(saved.certificate.in_words()).splitlines()
