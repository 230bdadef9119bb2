"""The program ``deconflow``; it needs the ``cli`` extra."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import deconflow

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Density deconvolution: the density of the truth, from measurements with known noise.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"deconflow {deconflow.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Hold what all commands share."""


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the picture and the model.")
    ] = Path("demo_output"),
) -> None:
    """Deconvolve real data with real errors, and draw the result.

    Example: deconflow demo -o demo_output
    """
    try:
        from deconflow.demo import run

        typer.echo(run(output))
    except ModuleNotFoundError as error:
        _fail(f"{error.name} is not installed; pip install 'deconflow[all]' brings it.")


def _fail(message: str) -> None:
    typer.echo(f"deconflow: {message}", err=True)
    raise typer.Exit(2)


def main() -> None:
    """Run the program; errors are one line, and never a traceback."""
    try:
        app()
    except (ValueError, OSError) as error:
        typer.echo(f"deconflow: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("deconflow: interrupted; nothing was written.", err=True)
        sys.exit(130)


if __name__ == "__main__":
    main()
