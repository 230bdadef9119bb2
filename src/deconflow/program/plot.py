"""``deconflow plot``: pictures of a model; and ``regress``: one column of the truth on others."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from deconflow import extras
from deconflow.extras import need
from deconflow.files import replacing
from deconflow.program.denoise import NewColumn, new_fields
from deconflow.program.messages import note, one_line_errors, say
from deconflow.program.model_folder import ModelFolder, load
from deconflow.program.options import Model, OptionalTable, Seed
from deconflow.refusals import refuse_if
from deconflow.tables import Measurements, Rows, format_of, is_many, split_list, split_part, writing

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


LEVEL = 0.9
SHARES = (0.16, 0.5, 0.84)


def regress(
    model: Model,
    target: Annotated[str, typer.Argument(help="Column to predict.")],
    on: Annotated[
        list[str], typer.Option("--on", metavar="NAMES", help="Columns to predict it from.")
    ],
    table: OptionalTable = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Table of the curve to write, for one column."),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", "-p", help="Picture to write, for one column: .png, .pdf, .svg."),
    ] = None,
    n_refits: Annotated[
        int, typer.Option("-n", min=2, help="Refits to the table, for the standard errors.")
    ] = 50,
    seed: Seed = 0,
) -> None:
    """Regress a column of the truth on others.

    Errors in all columns are allowed for. It says slopes, intercept and scatter of the best linear
    relation; the curve holds mean, 90 % band and quantiles.

    Example: deconflow regress model y stars.csv --on x -p curve.png
    """
    with one_line_errors():
        saved = load(model)
        given = _chosen(saved, target, split_list(on, saved.names))
        if output is not None:
            format_of(output)
        if picture is not None:
            check_picture(picture)
            need_plots()
        refuse_if(
            len(given) > 1 and (output or picture) is not None,
            f"Expected one column in --on for a curve or a picture; got {', '.join(given)}.",
        )
        covariates, ask = saved.estimator.fit_.covariates, saved.estimator.regress
        data = None if covariates else measured_rows(saved, table)
        if covariates:
            note("deconflow: note: a model with covariates is not refitted: no standard errors")
        elif data is None:
            note("deconflow: note: the table that was fitted is gone; name it for standard errors")
        else:
            ask = partial(data.rows.ask, ask)
        numbers = [saved.names.index(name) for name in given]
        found = ask(saved.names.index(target), numbers, n_refits=n_refits, random_state=seed)
        say(*found.summary().splitlines(), table=output)
        if output is not None:
            _write(saved, found, output)
            say(f"Curve written to {output}.", table=output)
        if picture is not None:
            save(_drawn(saved, found, data), picture)
            say(f"Picture written to {picture}.", table=output)


def _chosen(saved: ModelFolder, target: str, on: list[str]) -> list[str]:
    """Check names, and return those to regress on, each once."""
    for name, what in ((target, "the column to predict"), *((name, "--on") for name in on)):
        refuse_if(
            name not in saved.names,
            f"Expected {what} among {', '.join(saved.names)}; got {name!r}.",
        )
    if not on or target in on:
        others = ", ".join(name for name in saved.names if name != target)
        raise ValueError(f"Expected --on with some of {others}; got {', '.join(on) or 'none'}.")
    return list(dict.fromkeys(on))


def _write(saved: ModelFolder, found: Any, output: Path) -> None:
    """Write mean, band and quantiles of the target over the range of the other column."""
    pa, x, y, name = need("pyarrow"), found.grid(), found.target, found.on[0]
    unit = saved.units[y]
    columns = {
        NewColumn(name, f"true {name}", saved.units[name]): x,
        NewColumn("mean", f"mean {y}", unit): found.predict(x),
    }
    if found.replicates is not None:
        band, about = found.band(x, LEVEL), f"end of the 90 % band of the mean {y}"
        columns[NewColumn("low", f"low {about}", unit)] = band.lower
        columns[NewColumn("high", f"high {about}", unit)] = band.upper
    for share, values in zip(SHARES, found.quantile(np.array(SHARES), x), strict=True):
        percent = f"{100 * share:g}"
        columns[NewColumn(f"q{percent}", f"{percent} % quantile of the true {y}", unit)] = values
    schema = pa.schema(new_fields([*columns], output))
    with writing(output, schema) as write:
        write(pa.table([*columns.values()], schema=schema))


def _drawn(saved: ModelFolder, found: Any, data: Measurements | None) -> Any:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(layout="constrained")
    x, (target, on) = found.grid(), found.columns
    on_label, target_label = (saved.labels[d].replace("$", r"\$") for d in (on, target))
    if data is not None:
        ax.plot(
            data.rows.w[:, on], data.rows.w[:, target], ".", color="0.7", label="measured", zorder=1
        )
    if found.replicates is not None:
        band = found.band(x, LEVEL)
        ax.fill_between(x, band.lower, band.upper, alpha=0.4, label="90 % band")
    ax.plot(x, found.predict(x), label="mean of the true values")
    ax.plot(x, found.intercept + found.slope[0] * x, "--", label="best line")
    ax.set(xlabel=on_label, ylabel=target_label)
    ax.legend()
    return figure
