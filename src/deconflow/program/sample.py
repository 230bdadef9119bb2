"""``deconflow sample``: draws of the truth."""

from typing import Annotated

import typer

from deconflow.extras import need
from deconflow.program.messages import one_line_errors, say
from deconflow.program.model_folder import load
from deconflow.program.options import Model, Output, Seed
from deconflow.program.streaming import NewColumn, new_fields
from deconflow.tables import writing

DRAWN_AT_ONCE = 100_000


def sample(
    model: Model,
    output: Output,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many rows.")] = 1000,
    seed: Seed = 0,
) -> None:
    """Draw true values from the deconvolved density.

    Draws of a model with covariates are over the mix that the fitted rows have.

    Example: deconflow sample model -n 100 -o draws.csv
    """
    with one_line_errors():
        saved, pa = load(model), need("pyarrow")
        columns = [
            NewColumn(name, f"draw of the true {name}", unit) for name, unit in saved.units.items()
        ]
        schema = pa.schema(new_fields(columns, output))
        with writing(output, schema) as write:
            for start in range(0, number, DRAWN_AT_ONCE):
                count = min(DRAWN_AT_ONCE, number - start)
                own_seed = seed + start // DRAWN_AT_ONCE
                drawn = saved.estimator.sample(count, random_state=own_seed)
                write(pa.table(list(drawn.T), schema=schema))
        say(f"{number} rows written to {output}.", table=output)
