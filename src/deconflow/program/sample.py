"""``deconflow sample``: draws of the truth."""

from __future__ import annotations

from typing import Annotated

import typer

from deconflow.program.messages import one_line_errors, say
from deconflow.program.model_folder import load
from deconflow.program.options import Model, Output, Seed
from deconflow.tables import need, writing

AT_ONCE = 100_000


def sample(
    model: Model,
    output: Output,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many rows.")] = 1000,
    seed: Seed = 0,
) -> None:
    """Draw true values from the deconvolved density.

    Example: deconflow sample model -n 100 -o draws.csv
    """
    with one_line_errors():
        saved, pa = load(model), need("pyarrow")
        schema = pa.schema([(name, pa.float64()) for name in saved.names])
        with writing(output, schema) as sink:
            for part, start in enumerate(range(0, number, AT_ONCE)):
                count = min(AT_ONCE, number - start)
                drawn = saved.estimator.sample(count, random_state=seed + part)
                sink.write(pa.table(list(drawn.T), schema=schema))
        say(f"{number} rows written to {output}.", table=output)
