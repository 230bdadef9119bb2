"""Parts of a report: what is shown, and the Python that prints its numbers again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

from deconflow.program.html import paragraph
from deconflow.program.messages import as_options

MODEL_ONLY = """\
import deconflow
model = deconflow.load({model!r})
"""
WITH_TABLE = """\
import numpy as np
from deconflow.program.model_folder import load
saved = load({model!r})
model = saved.estimator  # as deconflow.load gives it
table = saved.measurements({table!r})  # as the fit has read it
rows = table.rows
"""


@dataclass(frozen=True)
class Part:
    """Pieces of HTML, and the Python for their numbers.

    Attributes
    ----------
    content : list of str
        Pieces, in their order.
    python : str
        Prints their numbers, given ``model`` and, if there is a table, ``table`` and its ``rows``;
        imports are single lines.
    """

    content: list[str]
    python: str = ""


def or_why_not(make: Callable[..., Part]) -> Callable[..., Part]:
    """Let a part that cannot be made say why in one line."""

    @wraps(make)
    def made(*arguments: Any) -> Part:
        try:
            return make(*arguments)
        except ValueError as error:  # of this kind of model, or rows it cannot reach
            return Part([paragraph(f"Not shown: {as_options(str(error))}", "aside")])

    return made


def python_code(parts: Iterable[Part], model: Path, table: Path | None) -> str:
    """Put the Python of all parts together, after lines that read the model and the table."""
    start = MODEL_ONLY if table is None else WITH_TABLE
    pieces = [start.format(model=str(model), table=str(table)), *(part.python for part in parts)]
    lines = "\n".join(piece for piece in pieces if piece).splitlines()
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    rest = "\n".join(line for line in lines if line not in imports)
    return "\n".join([*sorted(imports, key=lambda line: line.startswith("from")), "", rest, ""])
