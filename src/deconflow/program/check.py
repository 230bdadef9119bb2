"""``deconflow check``: whether a fit would recover itself from tables like this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from deconflow.files import replacing
from deconflow.model_files import SELF_TEST, add_text
from deconflow.program.how import refuse_simulation
from deconflow.program.known import refuse_covariates
from deconflow.program.messages import as_options, one_line_errors, say
from deconflow.program.model_folder import load
from deconflow.program.options import Model, OptionalTable, Quiet, Seed
from deconflow.program.plot import measured_rows

INTERRUPTED = 130
"""Exit code if only some of the tables are done."""


def check(
    model: Model,
    table: OptionalTable = None,
    n_tables: Annotated[
        int, typer.Option("-n", min=1, help="Tables to simulate; each takes as long as the fit.")
    ] = 5,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write what is found: .json.")
    ] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Test a model on tables simulated from it.

    They have the errors and missing values of the table, and are fitted as the model was: it says
    what is recovered. That is kept with the model, and shown by report.

    Example: deconflow check model stars.csv -n 2
    """
    with one_line_errors():
        if output is not None and output.suffix.lower() != ".json":
            raise ValueError(f"Expected a file that ends in .json; got {output.name}.")
        saved = load(model)
        refuse_covariates(saved.estimator, "a self-test")
        data = measured_rows(saved, table)
        if data is None:
            raise ValueError("Expected the table that was fitted; got none at its place. Name it.")
        from deconflow.estimators import run_self_test

        refuse_simulation(saved.estimator, data.rows, "a self-test")
        rows = saved.estimator._observe(data.w, data.rows.noise, None, data.rows.weights)
        rows = rows.with_weight()
        found = run_self_test(saved.estimator, rows, n_tables, seed, shown=not quiet)
        say(*map(as_options, found.in_words().splitlines()))
        text = json.dumps(found.as_dict(), indent=1) + "\n"
        if output is not None:
            with replacing(output) as part:
                part.write_text(text, encoding="utf-8")
        add_text(model, SELF_TEST, text)
        say(f"Kept with {model}; deconflow report shows it.")
        if found.n_tables < n_tables:
            raise typer.Exit(INTERRUPTED)
