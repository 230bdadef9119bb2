"""``deconflow sample``: draws of the truth."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deconflow import ranks
from deconflow._types import Array
from deconflow._version import __version__
from deconflow.program.known import values_of_covariates
from deconflow.program.many_files import refuse_resume
from deconflow.program.messages import one_line_errors, say
from deconflow.program.model_folder import load
from deconflow.program.options import Model, ResumeFiles, Seed
from deconflow.program.output_folder import Piece, output_folder
from deconflow.program.streaming import NewColumn, new_fields
from deconflow.tables import need, writing

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE = 100_000
ROWS_OF_A_FILE = 10 * AT_ONCE
Draw = Callable[..., Array]


def sample(
    model: Model,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="Table to write, as its ending says, or FOLDER/ for a folder of Parquet files; - "
            "for a pipe.",
        ),
    ],
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many rows.")] = 1000,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--given",
            metavar="NAME=VALUE",
            help="A value for each covariate, such as a=1.5,b=red, or 'error of x=0.3'.",
        ),
    ] = None,
    seed: Seed = 0,
    resume: ResumeFiles = False,
) -> None:
    """Draw true values from the deconvolved density.

    Without --given, draws of a model with covariates are over the mix that the fitted rows have.

    Example: deconflow sample model -n 100 -o draws.csv
    """
    path, many = Path(output), output.endswith(("/", "\\")) or Path(output).is_dir()
    with one_line_errors(" Go on with --resume." if many else ""):
        saved, pa = load(model), need("pyarrow")
        fixed = None if given is None else values_of_covariates(saved.estimator, given)
        units = saved.columns.units if saved.columns else ()
        columns = [
            NewColumn(name, f"draw of the true {name}", unit)
            for name, unit in zip_longest(saved.names, units)
        ]
        schema = pa.schema(new_fields(columns, path / _name(0) if many else path))
        draw = partial(saved.estimator.sample, given=fixed)
        if many:
            command = {
                "command": "sample", "number": number, "given": given or [], "seed": seed,
                "model": saved.digest, "deconflow": __version__,
            }  # fmt: skip
            n_files = _write_files(path, schema, draw, command, resume=resume)
            say(f"{number} rows of {n_files} files written to {output}.")
            return
        refuse_resume(resume)
        _write(path, schema, draw, range(number), seed)
        say(f"{number} rows written to {output}.", table=path)


def _write_files(
    path: Path, schema: pa.Schema, draw: Draw, command: dict[str, Any], *, resume: bool
) -> int:
    """Write the same rows as into one table, in several files; return how many these are."""
    rows = range(command["number"])
    parts = [rows[start : start + ROWS_OF_A_FILE] for start in rows[::ROWS_OF_A_FILE]]
    of_file = {_name(i): part for i, part in enumerate(parts)}

    def work(name: str) -> dict[str, Any]:
        _write(path / name, schema, draw, of_file[name], command["seed"])
        return {}

    pieces = [Piece(name, [len(part)]) for name, part in of_file.items()]
    with (
        ranks.started(),
        one_line_errors(" Go on with --resume."),
        output_folder(path, command, resume=resume) as folder,
    ):
        for why in folder.write_all(pieces, work).failed.values():
            raise ValueError(why)
    return len(pieces)


def _write(path: Path, schema: pa.Schema, draw: Draw, rows: range, seed: int) -> None:
    """Write some rows of all; each chunk has a seed of its own, by its place among all."""
    pa = need("pyarrow")
    with writing(path, schema) as sink:
        for start in rows[::AT_ONCE]:
            count = min(AT_ONCE, rows.stop - start)
            drawn = draw(count, random_state=seed + start // AT_ONCE)
            sink.write(pa.table(list(drawn.T), schema=schema))


def _name(number: int) -> str:
    return f"part-{number:05}.parquet"
