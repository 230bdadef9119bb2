"""What is known of the truth: the options of ``fit`` that say it, and how it is read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from deconflow.program.methods import METHODS, check_method
from deconflow.tables import (
    GivenColumns,
    parse_atoms,
    parse_bounds,
)

UNIFORM = "uniform"


@dataclass(frozen=True)
class Known:
    """What was said of the truth, as it was written."""

    given: Annotated[
        list[str] | None,
        typer.Option(
            "--given",
            metavar="NAMES",
            help="Columns known exactly, of numbers or text, that the truth may depend on, such as "
            "a,b; the word noise is for the rows' own errors.",
        ),
    ] = None
    bounds: Annotated[
        list[str] | None,
        typer.Option(
            "--bounds", metavar="NAME=LOW:HIGH", help="Where the truth ends: x=0:, x=:10 or x=0:1."
        ),
    ] = None
    atoms: Annotated[
        list[str] | None,
        typer.Option(
            "--atoms",
            metavar="POINTS",
            help="Values that a share of the truths has exactly: 0 or 0,1; of several columns "
            "whole "
            "points, 0:0.",
        ),
    ] = None
    background: Annotated[
        str | None,
        typer.Option(
            "--background",
            metavar="KIND",
            help="uniform: some rows tell nothing of a truth, and may be anywhere.",
        ),
    ] = None

    def check_method(self, method: str) -> None:
        """Raise if a method does not take what was said, before a table is read."""
        if self.background not in (None, UNIFORM):
            raise ValueError(f"Expected --background {UNIFORM}; got {self.background!r}.")
        for name in ("given", "bounds", "atoms", "background"):
            if getattr(self, name) is not None:
                _check_takes(method, name)

    def parameters(self, names: Sequence[str]) -> dict[str, Any]:
        """Return parameters of an estimator of these columns."""
        found: dict[str, Any] = {}
        if self.bounds is not None:
            ends = parse_bounds(self.bounds, names)
            found["bounds"] = [ends.get(name) for name in names] if ends else []
        if self.atoms is not None:
            found["atoms"] = parse_atoms(self.atoms, names)
        if self.background is not None:
            found["background"] = self.background
        for name in ("bounds", "atoms"):
            if name in found and not found[name]:
                raise ValueError(f"Expected values after --{name}; got none.")
        return found


def _check_takes(method: str, name: str) -> None:
    from deconflow.estimators import ESTIMATORS

    check_method(method)
    classes = {key: ESTIMATORS[each.class_name] for key, each in METHODS.items()}
    able = [
        key for key, cls in classes.items()
        if (cls._takes_covariates if name == "given" else hasattr(cls(), name))
    ]  # fmt: skip
    if method not in able:
        raise ValueError(
            f"Expected no --{name} with --method {method}; got one. Use --method "
            f"{', '.join(able[:-1])} or {able[-1]}, which take it."
        )


def covariates_of(estimator: Any) -> Any:
    """Return the covariates that a model was fitted with; None for none."""
    knowledge = estimator._knowledge
    return None if knowledge is None else knowledge.covariates


def given_columns(estimator: Any) -> GivenColumns | None:
    """Name the columns of a table that a model wants to know beside what is measured."""
    found = covariates_of(estimator)
    if found is None:
        return None
    own = found.columns[len(found.errors) :]
    return GivenColumns({c.name: c.categories for c in own}, errors=bool(found.errors))
