"""The program ``deconflow``; it needs the ``cli`` extra."""

import signal
from collections.abc import Iterable
from typing import Annotated

import typer

from deconflow._version import __version__
from deconflow.program.compare import compare
from deconflow.program.demo import demo
from deconflow.program.denoise import denoise
from deconflow.program.fit import fit
from deconflow.program.info import info
from deconflow.program.messages import interrupt
from deconflow.program.plot import plot
from deconflow.program.provenance import KeepsWhatWasTyped
from deconflow.program.regress import regress
from deconflow.program.report import report
from deconflow.program.sample import sample
from deconflow.program.score import score

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


def start(signals: Iterable[int]) -> None:
    """Run the program, which these signals end in order."""
    for number in signals:
        signal.signal(number, interrupt)
    app(prog_name="deconflow")  # also as python -m deconflow, whose name no shell could complete


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
