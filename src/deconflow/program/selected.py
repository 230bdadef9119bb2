"""Which rows were seen at all: the options of ``fit`` that say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from deconflow.tables import Measurements, row_name

OF = ("measured", "truth")


@dataclass(frozen=True)
class Selected:
    """What was said of the rows that were seen, as it was written."""

    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            metavar="RANGE",
            help="Only rows in this range were seen, such as 'g<18' or '0<x<2', by their measured "
            "values; may be given several times.",
        ),
    ] = None
    select_of: Annotated[
        str, typer.Option("--select-of", help="What decides if a row is seen: measured or truth.")
    ] = OF[0]
    efficiency: Annotated[
        Path | None,
        typer.Option(
            "--efficiency",
            metavar="FILE",
            help="Probability to be seen on a grid of the measured columns: numpy.savez of values, "
            "edges_0, edges_1, ...",
        ),
    ] = None

    def check(self) -> None:
        """Raise where it makes no sense, before a table is read."""
        if self.select_of not in OF:
            raise ValueError(f"Expected --select-of {' or '.join(OF)}; got {self.select_of!r}.")
        if self.select is not None and self.efficiency is not None:
            raise ValueError(
                "Expected one of --select and --efficiency; got both. Put zeros into the grid."
            )
        if self.nothing and self.select_of != OF[0]:
            raise ValueError("Expected --select or --efficiency with --select-of; got neither.")
        self._grid()

    def arguments(self, names: Sequence[str], rows: Measurements) -> dict[str, Any]:
        """Return arguments of ``fit``; rows that could not have been seen are refused by name."""
        if self.nothing:
            return {}
        found: dict[str, Any] = {"selection_of": self.select_of} if self.select_of != OF[0] else {}
        grid = self._grid()
        if grid is not None:
            return found | {"selection": grid}
        from deconflow.ranges import parse_ranges

        for each in parse_ranges(self.select or (), names, "--select"):
            values = rows.w[:, list(names).index(each.name)]
            outside = (values < each.lower) | (values > each.upper)
            if outside.any() and self.select_of == OF[0]:
                first = int(outside.argmax())
                place = row_name(int(np.flatnonzero(rows.usable)[first]))
                raise ValueError(
                    f"Expected rows that --select lets through; got {each.name} = "
                    f"{values[first]:g} in {place}. Leave such rows out, or change the range."
                )
        return found | {"selection": " and ".join(self.select or ())}

    @property
    def nothing(self) -> bool:
        """Whether nothing was said."""
        return self.select is None and self.efficiency is None

    def _grid(self) -> Any:
        if self.efficiency is None:
            return None
        from deconflow.measuring import Efficiency

        return Efficiency.from_npz(self.efficiency)
