"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deconflow.program.messages import as_options
from deconflow.tables import NOISE_KINDS

TABLE_HELP = "CSV, TSV, Parquet, FITS, ECSV, VOTable or text file, also packed (.gz); - for a pipe."

Model = Annotated[Path, typer.Argument(help="Folder of a fitted model.")]
Table = Annotated[Path, typer.Argument(help=TABLE_HELP)]
OptionalTable = Annotated[
    Path | None, typer.Argument(help=f"{TABLE_HELP} Without it, the one that was fitted.")
]
Output = Annotated[
    Path, typer.Option("--output", "-o", help="Table to write, as its ending says; - for a pipe.")
]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=2**31, help="The same seed gives the same answer.")
]
Chunk = Annotated[int, typer.Option("--chunk", min=1, help="Rows to hold in memory at once.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]
Prefix = Annotated[str, typer.Option("--prefix", help="Put before the names of new columns.")]
Quantiles = Annotated[
    str, typer.Option("--quantiles", help="Posterior quantiles, such as 0.16,0.5,0.84.")
]
MeasuredColumns = Annotated[
    list[str], typer.Option("--columns", "-c", help="Measured columns, such as x,y,z.")
]
Errors = Annotated[
    list[str] | None,
    typer.Option(
        "--errors",
        help="Errors: x=COLUMN, x=0.1, x=LOWER:UPPER. Without it x_err, x_error, e_x, sigma_x, or "
        "x_err_lo with x_err_hi.",
    ),
]
Covariances = Annotated[
    list[str] | None,
    typer.Option("--cov", help="Covariances: x:y=COLUMN; variances: x:x=COLUMN."),
]
Correlations = Annotated[
    list[str] | None,
    typer.Option("--corr", help="Error correlations: x:y=COLUMN, or none. Without it x_y_corr."),
]
Noise = Annotated[
    str,
    typer.Option(
        "--noise",
        help=as_options("; ".join(f"{name}: {words}" for name, words in NOISE_KINDS.items())) + ".",
    ),
]
DegreesOfFreedom = Annotated[
    float, typer.Option("--df", min=0.1, help="Degrees of freedom of student-t noise.")
]
Missing = Annotated[
    list[str] | None,
    typer.Option("--missing", help="Numbers that stand for a missing value, such as -999."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="A parameter of the method: NAME=VALUE, such as epochs=50."),
]
