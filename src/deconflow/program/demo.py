"""``deconflow demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deconflow.program.messages import one_line_errors, say


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the picture and the model.")
    ] = Path("demo_output"),
) -> None:
    """Deconvolve real data with real errors, and draw the result.

    Example: deconflow demo -o demo_output
    """
    with one_line_errors():
        from deconflow.demo import run

        say(*run(output).splitlines())
