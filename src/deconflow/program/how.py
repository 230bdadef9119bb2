"""How rows were measured: the options of ``fit`` that say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from deconflow.tables import How, Source, find_how


@dataclass(frozen=True)
class HowSaid:
    """What was said of how rows were measured, as it was written."""

    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--limits",
            metavar="NAME=COLUMN",
            help="Which values are limits: -1 or < for upper ones, 1 or > for lower ones. "
            "Without it "
            "x_limit; none if that says something else. In a table of text, <1.5 is a limit, too.",
        ),
    ] = None
    replicates: Annotated[
        list[str] | None,
        typer.Option(
            "--replicates",
            metavar="NAME=COLUMNS",
            help="Repeated measurements, whose scatter is the error: -c x --replicates x1,x2; of "
            "several columns x=x1,x2 and y=y1,y2. Errors are taken to be the same in all rows.",
        ),
    ] = None
    id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="COLUMN",
            help="Rows are posterior samples: those with the same word or number here are draws of "
            "one object. In a table whose cells are lists of draws, it is not needed.",
        ),
    ] = None
    log_prior: Annotated[
        str | None,
        typer.Option(
            "--log-prior",
            metavar="COLUMN",
            help="Log prior of each posterior sample; without it, it is flat.",
        ),
    ] = None
    trials: Annotated[
        str | None,
        typer.Option("--trials", metavar="COLUMN", help="Trials of binomial counts."),
    ] = None
    exposure: Annotated[
        str | None,
        typer.Option(
            "--exposure", metavar="COLUMN", help="How long or how much poisson counts were counted."
        ),
    ] = None
    fit_errors: Annotated[
        str | None,
        typer.Option(
            "--fit-errors",
            metavar="PARTS",
            help="What to learn of errors that are not quite known: scale (a factor), "
            "correlation (of "
            "columns), jitter (an error beside them, with --replicates-by), or several: "
            "scale,jitter.",
        ),
    ] = None
    replicates_by: Annotated[
        str | None,
        typer.Option(
            "--replicates-by",
            metavar="COLUMN",
            help="With --fit-errors: rows with the same word or number here measure the same "
            "truth.",
        ),
    ] = None

    def find(self, source: Source, names: Sequence[str], noise: str) -> How:
        """Find the columns that it is about."""
        return find_how(
            source, names, noise=noise,
            limits=self.limits or (), replicate_columns=self.replicates or (),
            id=self.id, log_prior=self.log_prior, trials=self.trials, exposure=self.exposure,
            fit_errors=[self.fit_errors] if self.fit_errors is not None else (),
            replicates=self.replicates_by,
        )  # fmt: skip
