"""Facts about true values, and about the rows that were seen at all, as the library takes them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from deconflow.program.methods import METHODS, check_method
from deconflow.program.options import RowOptions, SelectionOptions
from deconflow.tables import (
    GivenColumns,
    Measurements,
    Rows,
    parse_atoms,
    parse_bounds,
    row_name,
)

UNIFORM = "uniform"
MEASURED, TRUTH = "measured", "truth"


def check_known(options: RowOptions, method: str) -> None:
    """Raise if a method does not take a fact about true values, before a table is read."""
    check_method(method)
    if options.background not in (None, UNIFORM):
        raise ValueError(f"Expected --background {UNIFORM}; got {options.background!r}.")
    for name in ("given", "bounds", "atoms", "background"):
        if getattr(options, name) is None:
            continue
        from deconflow.estimators import ESTIMATORS

        classes = {key: ESTIMATORS[each.class_name] for key, each in METHODS.items()}
        able = [
            key for key, cls in classes.items()
            if ("covariates" if name == "given" else name) in cls._engine_type.takes
        ]  # fmt: skip
        if method not in able:
            raise ValueError(
                f"Expected no --{name} with --method {method}; got one. Use --method "
                f"{', '.join(able[:-1])} or {able[-1]}, which take it."
            )


def parameters_of(options: RowOptions, names: Sequence[str]) -> dict[str, Any]:
    """Return parameters of an estimator of these columns."""
    found: dict[str, Any] = {}
    if options.bounds is not None:
        ends = parse_bounds(options.bounds, names)
        found["bounds"] = [ends.get(name) for name in names] if ends else []
    if options.atoms is not None:
        found["atoms"] = parse_atoms(options.atoms, names)
    if options.background is not None:
        found["background"] = options.background
    for name, values in found.items():
        if not values:
            raise ValueError(f"Expected values after --{name}; got none.")
    return found


def selection_of(options: SelectionOptions) -> dict[str, Any]:
    """Return the arguments of ``fit`` about the rows that were seen; none if all were."""
    if options.select_of not in (MEASURED, TRUTH):
        raise ValueError(f"Expected --select-of {MEASURED} or {TRUTH}; got {options.select_of!r}.")
    if options.select is not None and options.efficiency is not None:
        raise ValueError(
            "Expected one of --select and --efficiency; got both. Put zeros into the grid."
        )
    found: dict[str, Any] = {} if options.select_of == MEASURED else {"selection_of": TRUTH}
    if options.select is not None:
        return found | {"selection": " and ".join(options.select)}
    if options.efficiency is not None:
        from deconflow.measuring import Efficiency

        return found | {"selection": Efficiency.from_npz(options.efficiency)}
    if found:
        raise ValueError("Expected --select or --efficiency with --select-of; got neither.")
    return {}


def with_selection(
    found: Measurements, options: SelectionOptions, selection: dict[str, Any], names: Sequence[str]
) -> Rows:
    """Return rows with their selection; rows that could not have been seen are refused."""
    from deconflow.ranges import parse_ranges

    for each in parse_ranges(options.select or (), names, "--select"):
        values = found.rows.w[:, list(names).index(each.name)]
        outside = (values < each.lower) | (values > each.upper)
        if outside.any() and options.select_of == MEASURED:
            first = int(outside.argmax())
            place = row_name(int(np.flatnonzero(found.usable)[first]))
            raise ValueError(
                f"Expected rows that --select lets through; got {each.name} = "
                f"{values[first]:g} in {place}. Leave such rows out, or change the range."
            )
    return replace(found.rows, selection=selection)


def covariates_of(estimator: Any) -> Any:
    """Return the covariates that a model was fitted with; None for none."""
    return estimator.fit_.covariates


def given_columns(estimator: Any) -> GivenColumns | None:
    """Name the covariates that a model needs from a table."""
    found = covariates_of(estimator)
    if found is None:
        return None
    own = found.columns[len(found.errors) :]
    return GivenColumns({c.name: c.categories for c in own}, errors=bool(found.errors))
