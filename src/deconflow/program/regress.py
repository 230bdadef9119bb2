"""``deconflow regress``: one column of the truth on others, errors in all of them."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from deconflow.checks import refuse_if
from deconflow.extras import need
from deconflow.program.messages import note, one_line_errors, say
from deconflow.program.model_folder import ModelFolder, load
from deconflow.program.options import Model, OptionalTable, Seed
from deconflow.program.plot import check_picture, measured_rows, need_plots, save
from deconflow.program.streaming import NewColumn, new_fields
from deconflow.tables import Measurements, format_of, split_list, writing

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
