"""The program ``deconflow``; it needs the ``cli`` extra."""

from pathlib import Path
from typing import Annotated

import typer

from deconflow._version import __version__
from deconflow.program.compare import compare
from deconflow.program.denoise import denoise
from deconflow.program.fit import fit
from deconflow.program.info import info
from deconflow.program.messages import KeepsWhatWasTyped, one_line_errors, say
from deconflow.program.plot import plot
from deconflow.program.regress import regress
from deconflow.program.report import report
from deconflow.program.sample import sample
from deconflow.program.score import score


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


COMMANDS = (fit, info, denoise, score, sample, regress, compare, plot, report, demo)

app = typer.Typer(
    cls=KeepsWhatWasTyped,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Density deconvolution: the density of the truth, from measurements with known noise.",
)
for command in COMMANDS:
    app.command()(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"deconflow {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Hold what all commands share."""
