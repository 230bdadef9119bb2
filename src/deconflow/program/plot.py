"""``deconflow plot``: pictures of a model; and ``regress``: one column of the truth on others."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from deconflow import extras
from deconflow.checks import refuse_if
from deconflow.files import replacing
from deconflow.program.messages import one_line_errors, say
from deconflow.program.model_folder import ModelFolder, load
from deconflow.program.options import Model, OptionalTable, Seed
from deconflow.tables import Measurements, Rows, is_many, split_list, split_part

KINDS = ("corner", "marginals", "row", "before_after", "diagnostics")
TAKE_ROWS = ("corner", "row")
#: Facts of rows that pictures take.
DRAWN = ("noise", "given", "limits")
DPI = 200


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
    dpi: Annotated[float, typer.Option("--dpi", help="Dots per inch.")] = DPI,
    seed: Seed = 0,
) -> None:
    """Draw the density, or how well it fits.

    Example: deconflow plot model stars.csv -o corner.png --rows 0,17
    """
    with one_line_errors():
        refuse_if(kind not in KINDS, f"Expected --kind as one of {', '.join(KINDS)}; got {kind!r}.")
        refuse_if(not 10 <= dpi <= 5000, f"Expected --dpi in [10, 5000]; got {dpi:g}.")
        check_picture(output)
        try:
            chosen = [int(part) for part in split_list([rows])]
        except ValueError as error:
            raise ValueError(
                f"Expected --rows as whole numbers, such as 0,17; got {rows!r}."
            ) from error
        need_plots()
        saved = load(model)
        shown = split_list(columns, saved.names) if columns else None
        save(draw(saved, kind, measured_rows(saved, table), chosen, seed, shown), output, dpi)
        say(f"Picture written to {output}.")


def by_weight(rows: Rows, first: list[int], seed: int) -> Rows:
    """Take some rows, and then all rows by chance, as often as their weights say."""
    weights = np.asarray(rows.weights)
    shares = weights / weights.sum()
    drawn = np.random.default_rng(seed).choice(len(shares), len(shares), p=shares)
    return rows[np.array([*first, *np.sort(drawn)])]


def measured_rows(saved: ModelFolder, table: Path | None) -> Measurements | None:
    """Read a table, or the one that was fitted; None if that is gone."""
    if table is None:
        path = saved.about.get("table", {}).get("path")
        if path is None or not (split_part(path)[0].is_file() or is_many(path)):
            return None
        table = Path(path)
    return saved.measurements(table)


def draw(
    saved: ModelFolder,
    kind: str,
    data: Measurements | None,
    rows: list[int],
    seed: int = 0,
    columns: list[str] | None = None,
) -> Any:
    """Draw a picture of one kind, as a matplotlib figure; rows are called as in the table."""
    options: dict[str, Any] = {"columns": columns, "names": saved.labels, "random_state": seed}
    refuse_if(
        rows and kind not in TAKE_ROWS,
        f"Expected no --rows for a picture of kind {kind}; got {rows}.",
    )
    if data is None:
        refuse_if(
            kind != "marginals",
            f"Expected a table for a picture of kind {kind}; got none. Name it.",
        )
    else:
        for row in rows:
            refuse_if(
                row not in data.places,
                f"Expected --rows among the {len(data.places)} that can be used of "
                f"{len(data)}, from {data.places[0]} to {data.places[-1]}; got {row}.",
            )
        measured, places = data.rows, np.searchsorted(data.places, rows).tolist()
        if measured.weights is not None:
            refuse_if(
                kind == "diagnostics",
                "Expected rows that count equally for a picture of kind diagnostics; got "
                "weights. The certificate allows for them.",
            )
            measured, places = by_weight(measured, places, seed), list(range(len(places)))
        if kind in TAKE_ROWS:
            options |= {"rows": places, "row_names": rows}
        facts = measured.facts
        options |= {name: facts[name] for name in DRAWN if name in facts} | {"w": measured.w}
    return np.ravel(saved.estimator.plot(kind, **options))[0].figure


def save(figure: Any, output: Path, dpi: float = DPI) -> None:
    """Write a figure in the format of the ending, all or nothing; of a PDF with whole fonts."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    with replacing(output) as part, mpl.rc_context({"pdf.fonttype": 42}):
        figure.savefig(part, dpi=dpi, format=output.suffix[1:].lower())
    plt.close(figure)


def need_plots() -> None:
    """Take matplotlib without a window, or say which extra brings it."""
    extras.need_plots()
    extras.need("pyarrow")
    import matplotlib as mpl

    mpl.use("Agg")


def check_picture(output: Path) -> None:
    """Raise unless the name is that of a picture."""
    refuse_if(
        output.suffix.lower() not in (".png", ".pdf", ".svg"),
        f"Expected a picture that ends in .png, .pdf or .svg; got {output.name}.",
    )
