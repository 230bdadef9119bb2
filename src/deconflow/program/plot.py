"""``deconflow plot``: pictures of a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from deconflow import extras
from deconflow._types import Array
from deconflow.files import replacing
from deconflow.program.messages import one_line_errors, say
from deconflow.program.model_folder import ModelFolder, load
from deconflow.program.options import Model, OptionalTable, Seed
from deconflow.tables import (
    Rows,
    is_many,
    need,
    parse_bounds,
    split_list,
    split_part,
)

KINDS = ("corner", "marginals", "row", "before_after", "diagnostics", "history")
DPI = 200
"""Dots per inch, where nothing else is said."""


def plot(
    model: Model,
    table: OptionalTable = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Picture to write: .png, .pdf or .svg.")
    ] = Path("deconvolved.png"),
    kind: Annotated[str, typer.Option("--kind", "-k", help=f"{', '.join(KINDS)}.")] = "corner",
    rows: Annotated[
        str,
        typer.Option("--rows", help="Rows whose posteriors to show, in a corner or a row: 0,17."),
    ] = "",
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", "-c", metavar="NAMES", help="Columns to show, in this order."),
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range", metavar="NAME=LOW:HIGH", help="Ends of axes: x=0:10, x=0: or x=:10."
        ),
    ] = None,
    bins: Annotated[
        int | None, typer.Option("--bins", help="Bins of histograms; else as suits the values.")
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="NAMES", help="Columns with logarithmic axes."),
    ] = None,
    invert: Annotated[
        list[str] | None,
        typer.Option("--invert", metavar="NAMES", help="Columns whose axes run backwards."),
    ] = None,
    size: Annotated[
        str | None, typer.Option("--size", metavar="WIDTHxHEIGHT", help="Inches, such as 7x4.")
    ] = None,
    dpi: Annotated[
        float | None, typer.Option("--dpi", help=f"Dots per inch, {DPI} if it is not said.")
    ] = None,
    title: Annotated[
        str | None,
        typer.Option("--title", help="Words above the picture, with mathematics between $ signs."),
    ] = None,
    seed: Seed = 0,
) -> None:
    """Draw the density, or how well it fits.

    Example: deconflow plot model stars.csv -o corner.png --rows 0,17
    """
    with one_line_errors():
        _check(output, kind)
        chosen, inches = _parse_rows(rows), _parse_size(size)
        need_plots()
        saved = load(model)
        look = {
            "columns": split_list(columns, saved.names) if columns else None,
            "range": parse_bounds(ranges or [], saved.names, "range"),
            "bins": bins,
            "log": split_list(log or [], saved.names),
            "invert": split_list(invert or [], saved.names),
            "size": inches,
            "dpi": dpi,
            "title": title,
        }
        figure = draw(saved, kind, measured_rows(saved, table), chosen, seed, **look)
        save(figure, output, dpi)
        say(f"Picture written to {output}.")


@dataclass(frozen=True)
class Measured:
    """The usable rows of a table; ``places`` are their numbers among its ``n_rows``."""

    rows: Rows
    places: NDArray[np.int64]
    n_rows: int

    @property
    def w(self) -> Array:
        """What was measured, NaN where it is missing."""
        return self.rows.w

    def some(self, count: int, seed: int = 0) -> Measured:
        """Take some rows at random, in their order."""
        rows = np.sort(np.random.default_rng(seed).permutation(len(self.rows))[:count])
        return Measured(self.rows[rows], self.places[rows], self.n_rows)

    def by_weight(self, first: list[int], seed: int) -> Measured:
        """Take some rows, and then all of them as often as they count, by chance."""
        weights = np.ones(len(self.rows)) if self.rows.weights is None else self.rows.weights
        drawn = np.random.default_rng(seed).choice(
            len(weights), len(weights), p=weights / weights.sum()
        )
        rows = np.array([*first, *np.sort(drawn)])
        return Measured(self.rows[rows], self.places[rows], self.n_rows)

    def named(self, rows: list[int]) -> NDArray[np.int64]:
        """Find rows by their numbers in the table."""
        for row in rows:
            if row not in self.places:
                raise ValueError(
                    f"Expected --rows among the {len(self.places)} that can be used of "
                    f"{self.n_rows}, from {self.places[0]} to {self.places[-1]}; got {row}."
                )
        return np.searchsorted(self.places, rows)


def measured_rows(saved: ModelFolder, table: Path | None) -> Measured | None:
    """Read a table, or the one that was fitted; None if that is gone."""
    if table is None:
        path = saved.about.get("table", {}).get("path")
        if path is None or not (split_part(path)[0].is_file() or is_many(path)):
            return None
        table = Path(path)
    rows = saved.measurements(table)
    return Measured(rows.rows, np.flatnonzero(rows.usable), len(rows))


def draw(
    saved: ModelFolder,
    kind: str,
    data: Measured | None,
    rows: list[int],
    seed: int = 0,
    **look: Any,
) -> Any:
    """Draw a picture of one kind, as a matplotlib figure; rows are called as in the table."""
    from deconflow import plots

    if data is None and kind not in ("history", "marginals"):
        raise ValueError(f"Expected a table for a picture of kind {kind}; got none. Name it.")
    places = [] if data is None or not rows else data.named(rows).tolist()
    if data is not None and data.rows.weights is not None:
        if kind == "diagnostics":
            raise ValueError(
                "Expected rows that count equally for a picture of kind diagnostics; got weights. "
                "The certificate allows for them."
            )
        data, places = data.by_weight(places, seed), list(range(len(places)))
    given = {} if data is None or kind == "history" else {"w": data.w, **data.rows.arguments}
    axes = plots.picture(
        saved.estimator, kind, **given, rows=places, row_names=rows, names=saved.labels,
        random_state=seed, **look,
    )  # fmt: skip
    return np.ravel(axes)[0].figure


def save(figure: Any, output: Path, dpi: float | None = None) -> None:
    """Write a figure in the format of the ending, all or nothing; of a PDF with whole fonts."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    with replacing(output) as part, mpl.rc_context({"pdf.fonttype": 42}):
        figure.savefig(part, dpi=dpi or DPI, format=output.suffix[1:].lower())
    plt.close(figure)


def need_plots() -> None:
    """Take matplotlib without a window, or say which extra brings it."""
    extras.need_plots()
    import matplotlib as mpl

    mpl.use("Agg")
    need("pyarrow")


def _check(output: Path, kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"Expected --kind as one of {', '.join(KINDS)}; got {kind!r}.")
    check_picture(output)


def check_picture(output: Path) -> None:
    """Raise unless the name is that of a picture."""
    if output.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ValueError(f"Expected a picture that ends in .png, .pdf or .svg; got {output.name}.")


def _parse_rows(text: str) -> list[int]:
    try:
        return [int(part) for part in split_list([text])]
    except ValueError as error:
        raise ValueError(
            f"Expected --rows as whole numbers, such as 0,17; got {text!r}."
        ) from error


def _parse_size(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        width, height = (float(part) for part in text.lower().split("x"))
    except ValueError as error:
        raise ValueError(f"Expected --size as WIDTHxHEIGHT, such as 7x4; got {text!r}.") from error
    return width, height
