"""The program ``deconflow``; it needs the ``cli`` extra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

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
    with _one_line_errors():
        from deconflow.demo import run

        typer.echo(run(output))


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn what users can cause into one line and an exit code, never a traceback."""
    try:
        yield
    except ModuleNotFoundError as error:
        _fail(f"{error.name} is not installed; pip install 'deconflow[all]' brings it.")
    except (ValueError, TypeError, ArithmeticError, OSError) as error:
        _fail(" ".join(str(error).split()))
    except KeyboardInterrupt:
        _fail("interrupted; no file was left half written.", code=130)


def _fail(message: str, code: int = 2) -> NoReturn:
    typer.echo(f"deconflow: {message}", err=True)
    raise typer.Exit(code)


def main() -> None:
    """Run the program."""
    app()


if __name__ == "__main__":
    main()
