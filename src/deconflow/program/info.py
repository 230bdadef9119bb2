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
    yield f"method     {saved.method} ({saved.files.description['class']})"
    table = saved.about.get("table", {})
    if table:
        yield f"table      {table['path']}"
        yield f"rows       {table['used']} used of {table['rows']}"
    if saved.columns is None:
        yield f"columns    {', '.join(saved.names)} (saved from Python)"
    else:
        for line in saved.columns.describe():
            yield f"column     {line}"
        yield f"noise      {saved.columns.law}"
    if table.get("weights"):
        yield f"weights    {table['weights']}"
    if "seconds" in saved.about:
        yield f"seconds    {saved.about['seconds']:g}"
    for name, value in saved.about.get("special_settings", {}).items():
        yield f"setting    {name} = {value}"
    for line in saved.known():
        yield f"known      {line}"
    if saved.certificate is not None:
        yield saved.about["fitted"]
        yield from as_options(saved.certificate.in_words()).splitlines()
