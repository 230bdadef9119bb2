"""Tables that users hand over where arrays are: pandas, polars and astropy.

Here errors find the columns they belong to, by the names of :mod:`deconflow.tables`, in the units
of these; what cannot be told is refused.
"""

import re
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from deconflow._types import Array, BoolArray
from deconflow.checks import as_floats, place, refuse_odd_cells, warn_caller
from deconflow.extras import need
from deconflow.noise import GaussianNoise, from_samples, gaussian
from deconflow.tables import conversion, error_columns, independent_noise, one_sign

Units = list[str | None]
#: Texts of cells that are missing, among numbers of uncertainties.
MISSING = ("None", "nan", "<NA>")


def plain_tables(w: Any, noise: Any, label: str = "w") -> tuple[Any, Any]:
    """Bring tables into forms that scikit-learn reads, errors in the order and units of ``w``."""
    if all(type(each) is np.ndarray and each.dtype.kind == "f" for each in (w, noise)):
        return w, noise
    units, (w, noise) = column_units(w), parted(w, noise, label)
    w = plain_table(w, label)
    if len(w.shape) != 2:  # refused by whoever asked
        return w, noise
    n_rows, dim = w.shape
    noise_units, (noise, shared) = column_units(noise), _as_table(noise, n_rows, dim)
    names, errors = column_names(w), column_names(noise)
    if errors and [*getattr(noise, "index", [])] == errors:
        return w, _covariance(noise, names or errors)
    by_row = hasattr(noise, "iloc") and noise.shape not in ((dim,), (dim, dim))
    if (errors or by_row) and not shared:
        refuse_other_rows(w, noise, "noise", label)
    if errors and names:
        missing = np.zeros((1, dim), dtype=bool) if shared else np.isnan(as_floats(w, label))
        lower, upper = _bars(noise, missing, names, errors, units, noise_units)
        return w, independent_noise(*((lower[0], upper[0]) if shared else (lower, upper)))
    _refuse_other_labels(w, noise)
    if errors or noise_units:
        return w, _by_position(noise, noise_units, units, w.shape)
    return w, noise


def plain_table(table: Any, label: str) -> Any:
    """Turn what is no table of pandas or polars into an array, and astropy's into one of pandas.

    A single named column becomes a table of one.
    """
    if is_astropy(table) or _is_named_column(table):
        table = _as_frame(table, label)
    elif hasattr(table, "to_frame"):  # a series
        table = table.to_frame()
    elif hasattr(table, "to_value") and hasattr(table, "unit"):  # a quantity of astropy
        table = table.to_value(table.unit)
    if not hasattr(table, "columns"):
        return as_floats(table, label)
    names = list(table.columns)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"Expected each column once in {label}; got {twice[0]!r} twice.")
    refuse_odd_cells(table, label)
    return table


def limit_flags(w: Any, limits: Any) -> Array:
    """Bring flags of limits into the order of the columns of ``w``, ``(N, M)``.

    A table has them by the names of ``w``, as ``x`` or ``x_limit``; columns without one have none.
    """
    limits = plain_table(limits, "limits")
    names, flagged = column_names(w), column_names(limits)
    if hasattr(limits, "iloc"):
        refuse_other_rows(w, limits, "limits")
    if names is None or flagged is None:
        return as_floats(limits, "limits")
    found = np.zeros((len(w), len(names)))
    for label in flagged:
        name = label if label in names else label.removesuffix("_limit")
        if name not in names or (name != label and name in flagged):
            raise ValueError(
                f"Expected columns of limits for {', '.join(names)}, under the same names or such "
                f"as {names[0]}_limit; got {label!r}. Choose and rename them."
            )
        found[:, names.index(name)] = as_floats(limits[label], "limits")
    return found


def is_astropy(table: Any) -> bool:
    """Whether this is a table of astropy."""
    return hasattr(table, "colnames") and hasattr(table, "to_pandas")


def column_names(table: Any) -> list[str] | None:
    """Names of a table's columns; None if it has none, or numbers."""
    names = list(getattr(table, "columns", []))
    return names if names and all(isinstance(name, str) for name in names) else None


def column_units(table: Any) -> Units | None:
    """Units of the columns of what astropy made, None for those without; None for all others."""
    if is_astropy(table):
        columns = [table[name] for name in table.colnames]
    elif isinstance(table, np.ndarray) and hasattr(table, "unit"):
        columns = [table] * (table.shape[1] if table.ndim == 2 else 1)
    else:
        return None
    given = (getattr(column, "unit", None) for column in columns)
    return [None if unit is None else unit.to_string() for unit in given]


def refuse_other_names(table: Any, names: list[str]) -> None:
    """Raise if a table names its columns, and they are not these; made-up names hold for any."""
    own = column_names(table)
    if own and own != names and not all(re.fullmatch(r"v\d+", name) for name in names):
        raise ValueError(
            f"Expected the columns {', '.join(names)}, in this order; got {', '.join(own)}. "
            "Choose and order them so, or pass .to_numpy()."
        )


def refuse_other_units(units: Units | None, known: Units | None, names: Sequence[str]) -> None:
    """Raise if a table has other units than that which was fitted."""
    for name, unit, wanted in zip(names, units or [], known or [], strict=False):
        if unit and wanted and conversion(unit, [wanted], name) != 1.0:
            raise ValueError(
                f"Expected column {name!r} in {wanted}, as in the fit; got {unit}. Convert it."
            )


def refuse_other_rows(w: Any, other: Any, name: str, label: str = "w") -> None:
    """Raise if two tables have not the same rows: as many, and by pandas under the same labels."""
    if len(other) != len(w):
        raise ValueError(f"Expected {name} with {len(w)} rows, as {label} has; got {len(other)}.")
    if all(hasattr(table, "iloc") for table in (w, other)) and not w.index.equals(other.index):
        raise ValueError(
            f"Expected {name} with the index of {label}; got another, so that rows may not belong "
            "together. Align them; or, if they are in the same order, call .reset_index(drop=True) "
            f"on both, or pass {name} by .to_numpy()."
        )


def _refuse_other_labels(w: Any, noise: Any) -> None:
    """Raise where labels that are no names speak against taking errors by position.

    Numbers do if they are those of the other table in another order, several levels always.
    """
    tables = [table for table in (w, noise) if hasattr(table, "iloc") and hasattr(table, "columns")]
    if len(tables) < 2:
        return
    ours, theirs = (list(table.columns) for table in tables)
    levels = any(isinstance(label, tuple) for label in ours + theirs)
    if ours != theirs and (levels or {*ours} == {*theirs}):
        raise ValueError(
            f"Expected noise with the columns of w, {ours}, or names such as x_err for x; got "
            f"{theirs}. Rename them; or, if they are in the order of the columns, pass noise by "
            ".to_numpy()."
        )


def _as_table(noise: Any, n_rows: int, dim: int) -> tuple[Any, bool]:
    """Turn noise into a table if it is one or a column of one; and whether all rows share it."""
    if is_astropy(noise) or _is_named_column(noise):
        return _as_frame(noise, "noise"), False
    if not hasattr(noise, "to_frame"):
        return noise, False
    if dim == 1 and len(noise) == n_rows:
        return noise.to_frame(), False
    if hasattr(noise, "index") and all(isinstance(name, str) for name in noise.index):
        return noise.to_frame().T, True  # an error for each name
    return noise, False


def _is_named_column(table: Any) -> bool:
    """Whether this is a column of an astropy table."""
    return hasattr(table, "parent_table") and getattr(table, "name", None) is not None


def _as_frame(table: Any, label: str) -> Any:
    if _is_named_column(table):
        from astropy.table import Table

        table = Table([table])
    for name in table.colnames:
        if len(table[name].shape) != 1:
            raise ValueError(
                f"Expected one number per row in column {name!r} of {label}; "
                f"got {table[name].shape[1:]} of them. Split the column."
            )
    need("pandas", "astropy tables need it")
    return table.to_pandas(index=False)


def _pairs(names: list[str], available: list[str]) -> list[tuple[str, str]]:
    """Find each column's errors, lower and upper: under its own name, or one by convention."""
    found = [
        [(name, name)] if name in available else error_columns([*names, *available], name, names)
        for name in names
    ]
    used = {bar for bars in found for both in bars for bar in both}
    if all(len(bars) == 1 for bars in found) and sorted(used) == sorted(available):
        return [bars[0] for bars in found]
    several = next((bars for bars in found if len(bars) > 1), None)
    lost = [name for name in available if name not in used]
    if several:
        got = f"several for one column: {', '.join(':'.join(dict.fromkeys(b)) for b in several)}"
    elif lost:
        got = f"{', '.join(available)}, with no column for {', '.join(lost)}"
    else:
        got = ", ".join(available)
    raise ValueError(
        f"Expected one column of errors in noise for each of {', '.join(names)}, under the same "
        f"names or such as {names[0]}_err or e_{names[0]}; got {got}. Choose and rename them; or, "
        "if they are in the order of the columns, pass noise by .to_numpy()."
    )


def _bars(
    noise: Any,
    missing: BoolArray,
    names: list[str],
    errors: list[str],
    units: Units | None,
    noise_units: Units | None,
) -> tuple[Array, Array]:
    """Lower and upper errors ``(N, D)``, one where there is no value, as in the program.

    Those without a unit are taken in the unit of their column.
    """
    lower, upper = np.ones(missing.shape), np.ones(missing.shape)
    unit_of = dict(zip(errors, noise_units or [], strict=False))
    for d, (low, high) in enumerate(_pairs(names, errors)):
        seen = ~missing[:, d]
        sizes = {each: as_floats(noise[each], "noise") for each in (low, high)}
        if low != high:
            sizes[low] = one_sign(sizes[low], seen, low)[0]
        for column in [each for each in sizes if each in unit_of]:
            wanted = units[d] if units else None
            sizes[column] = sizes[column] * _factor(unit_of[column], wanted, 1, column, names[d])
        lower[seen, d], upper[seen, d] = sizes[low][seen], sizes[high][seen]
    return lower, upper


def _factor(unit: str | None, wanted: str | None, power: int, column: str, name: str) -> float:
    """By how much to multiply errors, or covariances if the power is 2; says what it assumes."""
    if unit and wanted:
        return conversion(unit, [wanted] * power, column)
    if unit or wanted:
        with_one, without = (name, column) if wanted else (column, name)
        warn_caller(
            f"{with_one} is in {wanted or unit} and {without} has no unit: it is taken to be in "
            f"{wanted or unit}, too."
        )
    return 1.0


def _by_position(
    noise: Any, noise_units: Units | None, units: Units | None, shape: tuple[int, int]
) -> Array:
    """Take noise in the order of the columns, because one of the two has no names."""
    values = as_floats(noise.value if hasattr(noise, "to_value") else noise, "noise")
    if noise_units is None:
        return values
    square = values.ndim == 3 or (values.shape == (shape[1],) * 2 and shape[0] != shape[1])
    wanted = units or [None]
    if len({*wanted}) > 1 and (square or len(noise_units) != shape[1]):
        raise ValueError(
            f"Expected noise as a table with units, because the columns of w are in "
            f"{', '.join(map(str, wanted))}; got an array in {noise_units[0]}."
        )
    if len({*noise_units}) == len({*wanted}) == 1:
        return values * _factor(noise_units[0], wanted[0], 2 if square else 1, "noise", "w")
    pairs = zip(noise_units, wanted * (shape[1] // len(wanted)), strict=False)
    return values * [_factor(unit, one, 1, "noise", "w") for unit, one in pairs]


def _covariance(noise: Any, names: list[str]) -> Any:
    """Take a covariance whose rows and columns are named, in the order of the columns."""
    if sorted(names) != sorted(noise.columns):
        raise ValueError(
            f"Expected a covariance of {', '.join(names)} as noise; "
            f"got one of {', '.join(noise.columns)}."
        )
    return gaussian(covariance=as_floats(noise.loc[names, names], "noise"))


# -- values that carry their errors ------------------------------------------------------------


def parted(w: Any, noise: Any, label: str = "w") -> tuple[Any, Any]:
    """Split values that carry their errors into plain values and noise; others stay as they are.

    Draws of astropy are taken as draws of posteriors under a flat prior.
    """
    numbers = _numbers(w)
    draws: Any = _draws(w, label) if numbers is None else None
    if draws is None and numbers is None:
        return w, noise
    if noise is not None:
        raise ValueError(
            f"Expected no noise with values in {label} that carry their errors; got both. Leave "
            "out noise."
        )
    values, law = from_samples(draws) if numbers is None else _gaussian(numbers, label)
    if hasattr(w, "colnames"):
        return type(w)(values, names=w.colnames), law
    if hasattr(w, "iloc"):
        w = w.to_frame() if hasattr(w, "to_frame") else w
        return type(w)(values, index=w.index, columns=w.columns), law
    return type(w)(values, schema=w.columns) if hasattr(w, "columns") else values, law


def _draws(w: Any, label: str) -> Array | None:
    """Return draws ``(N, K, D)`` of a distribution, or of a table with distributions."""
    table = hasattr(w, "colnames")
    found: list[Any] = [
        _samples(column) for column in ([w[name] for name in w.colnames] if table else [w])
    ]
    if all(each is None for each in found):
        return None
    shapes = [None if each is None else each.shape for each in found]
    whole = found[0] if not table else np.stack(found, -2) if len({*shapes}) == 1 else None
    if whole is None or whole.ndim not in (2, 3):
        raise ValueError(
            f"Expected {label} as a distribution of shape (N,) or (N, D), or a table with one of "
            f"shape (N,) in every column, all with as many draws; got draws of shapes {shapes}."
        )
    return np.moveaxis(whole if whole.ndim == 3 else whole[:, None], -1, 1)


def _samples(column: Any) -> Array | None:
    """Return draws ``(..., K)`` of a distribution; a table keeps a plain one in its own form."""
    if hasattr(column, "distribution") and hasattr(column, "n_samples"):
        column = getattr(column.distribution, "value", column.distribution)
    elif getattr(getattr(column, "dtype", None), "names", None) == ("samples",):
        column = np.asarray(column)["samples"]["sample"]
    else:
        return None
    return np.asarray(column, dtype=np.float64)


def _numbers(w: Any) -> Any:
    """Return cells ``(N, D)`` among which there are numbers of uncertainties."""
    table = hasattr(w, "to_numpy")
    if "uncertainties" not in sys.modules or not (table or isinstance(w, np.ndarray | list)):
        return None
    from uncertainties import UFloat

    try:
        cells = w.to_numpy() if table else np.asarray(w)
    except (TypeError, ValueError, RuntimeError):  # ragged, or no numbers: refused later
        return None
    if not any(isinstance(cell, UFloat) for cell in cells.flat if cells.dtype.kind == "O"):
        return None
    return cells[:, None] if cells.ndim == 1 else cells


def _gaussian(cells: Any, label: str) -> tuple[Array, GaussianNoise]:
    """Return values and their noise, with the correlations between columns of a row."""
    from uncertainties import UFloat, covariance_matrix

    values, sd = np.full(cells.shape, np.nan), np.ones(cells.shape)
    for position, cell in np.ndenumerate(cells):
        if isinstance(cell, UFloat):
            values[position], sd[position] = cell.nominal_value, cell.std_dev
        elif str(cell) not in MISSING:
            raise ValueError(
                f"Expected every value in {label} with its error, as ufloat(value, error) has it; "
                f"got {cell!r} at {place(position)}. Use ufloat(value, 0) for an exact one."
            )
    sd[np.isnan(values)] = 1.0
    covariance = np.square(sd)[:, None] * np.eye(cells.shape[1])
    owner: dict[Any, int] = {}
    for row, numbers in enumerate(cells):
        seen = np.flatnonzero(~np.isnan(values[row]))
        covariance[row, seen[:, None], seen] = covariance_matrix(numbers[seen])
        derivatives = [pair for cell in numbers[seen] for pair in cell.derivatives.items()]
        for source in {source for source, slope in derivatives if slope and source.std_dev}:
            if owner.setdefault(source, row) != row:
                raise ValueError(
                    f"Expected rows of {label} whose errors are independent; got rows "
                    f"{owner[source]} and {row}, which share one. Pass unumpy.nominal_values(w) "
                    "and noise=unumpy.std_devs(w) to take them as independent."
                )
    independent = (covariance == covariance * np.eye(cells.shape[1])).all()
    return values, gaussian(sd=sd) if independent else gaussian(covariance=covariance)
