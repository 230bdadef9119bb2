"""``deconflow demo``."""

from pathlib import Path
from typing import Annotated

import typer

from deconflow.program.messages import one_line_errors, say


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the picture and the model.")
    ] = Path("demo_output"),
    table: Annotated[
        Path | None,
        typer.Option("--table", help="Only write the table that the examples need: stars.csv."),
    ] = None,
) -> None:
    """Deconvolve real data with real errors, and draw the result.

    Example: deconflow demo --table stars.csv
    """
    with one_line_errors():
        from deconflow.demo import run, write_stars

        say(*(run(output) if table is None else write_stars(table)).splitlines())
