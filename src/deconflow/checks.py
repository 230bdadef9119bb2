"""Arrays: checks of what users pass, and functions for numpy and torch alike."""

import contextlib
import datetime
import numbers
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from array_api_compat import (
    array_namespace,
    device,
    is_numpy_array,
    is_torch_array,
)
from numpy.typing import ArrayLike

from deconflow._types import AnyArray, Array

#: Sizes of values beyond which squares overflow, or vanish.
LARGEST, SMALLEST = 1e152, 1e-152


def as_floats(values: ArrayLike, name: str) -> Array:
    """Turn anything array-like into float64, or say which cell is not a number.

    Masked cells become NaN.
    """
    if type(values) is np.ndarray and values.dtype == np.float64:
        return values
    values = unmasked(values, name)
    if hasattr(values, "toarray"):
        raise TypeError(f"Expected {name} as a dense array; got a sparse one. Call its .toarray().")
    if values is None or isinstance(values, str | bool):
        raise TypeError(f"Expected numbers as {name}; got {values!r}.")
    refuse_odd_cells(values, name)
    if any(array.dtype.kind == "c" for _, array in _parts(values)):
        raise ValueError(f"Complex data not supported: expected real numbers in {name}.")
    try:
        return np.asarray(_without_na(values), dtype=np.float64)
    except (TypeError, OverflowError) as error:
        raise TypeError(f"Expected real numbers in {name}; got {error}") from error
    except ValueError as error:
        raise ValueError(
            f"Expected a rectangular array of numbers as {name}; got one that is not: {error}"
        ) from error


def as_parameter(values: ArrayLike, name: str) -> Array:
    """Turn a parameter of a law into an array; a law keeps no names, so tables are refused."""
    columns = getattr(values, "columns", [])
    if len(columns) > 1:
        raise TypeError(
            f"Expected plain numbers as {name}, in the order of the columns of w; got a table of "
            f"{', '.join(map(str, columns))}, whose names a law does not keep. "
            "Pass its .to_numpy()."
        )
    return as_floats(values, name)


def unmasked(values: Any, name: str) -> Any:
    """Put NaN into masked cells, and take tensors as arrays; refuse units, which would be lost."""
    if is_torch_array(values):
        return _from_torch(values, name)
    if isinstance(values, list | tuple) and any(isinstance(x, np.ndarray) for x in values):
        return [unmasked(x, name) for x in values]
    unit = getattr(values, "unit", None) if isinstance(values, np.ndarray) else None
    if str(unit or ""):
        raise TypeError(
            f"Expected plain numbers in {name}; got a quantity in {unit}. "
            f"Pass its numbers: .to_value(unit)."
        )
    if not all(hasattr(values, part) for part in ("mask", "filled", "dtype")):
        return values
    kind = values.dtype.kind
    if kind in "bmMV":  # refused in any case
        return values
    cells = object if kind in "US" else np.result_type(values.dtype, np.float32)
    return np.asarray(values.astype(cells).filled(np.nan))


def refuse_odd_cells(values: Any, name: str) -> None:
    """Raise where something is no number though numpy would make one of it, or none at all.

    Text that reads as a number passes, and None, which is a missing value.
    """
    for number, array in _parts(values):
        kind, fields = array.dtype.kind, array.dtype.names
        what = {"b": "booleans", "M": "dates", "m": "times"}.get(kind)
        where = "" if number is None else f" in column {number}"
        if what is not None:
            raise TypeError(
                f"Expected numbers in {name}; got {what}{where}. Convert them by .astype(float)."
            )
        if fields:
            raise TypeError(
                f"Expected a plain array of numbers as {name}; got one with the fields "
                f"{', '.join(fields)}. Pass a pandas data frame or an astropy table of it."
            )
        if kind in "OUST":
            for position, cell in np.ndenumerate(array):
                at = position if number is None else (*position, number)
                _refuse_odd_cell(cell, at, name)


def _refuse_odd_cell(cell: Any, position: tuple[int, ...], name: str) -> None:
    where = f" at {place(position)}" if position else ""
    if isinstance(cell, str | bytes):
        try:
            float(cell)
        except ValueError as error:
            raise ValueError(
                f"Expected numbers in {name}; got {np.array(cell).item()!r}{where}. "
                "Convert the text, or use NaN for a missing value."
            ) from error
    elif isinstance(cell, list | tuple | np.ndarray) and position:
        raise ValueError(
            f"Expected a rectangular array of numbers as {name}; got {len(cell)} values{where}."
        )
    elif isinstance(cell, bool | np.bool_ | np.datetime64 | np.timedelta64 | datetime.date) or not (
        cell is None
        or hasattr(cell, "__float__")
        or hasattr(cell, "__index__")
        or type(cell).__name__ == "NAType"
    ):
        raise TypeError(  # the words in brackets are those of float(), by which others know it
            f"Expected numbers in {name}; got {type(cell).__name__}{where} (argument must be a "
            "string or a real number)."
        )


def _parts(values: Any) -> Iterator[tuple[int | None, AnyArray]]:
    """An array as it is; a table column by column, whose types a common one would hide."""
    if hasattr(values, "columns") and hasattr(values, "shape"):
        for d in range(values.shape[1]):
            column = values.iloc[:, d] if hasattr(values, "iloc") else values[:, d]
            yield d, np.asarray(_without_na(column))
        return
    try:
        yield None, np.asarray(_without_na(values))
    except (TypeError, ValueError):  # ragged: as_floats says so
        return


def _from_torch(values: Any, name: str) -> AnyArray:
    if "sparse" in str(values.layout):
        raise TypeError(f"Expected {name} as a dense array; got a sparse one. Call .to_dense().")
    if values.is_floating_point():
        values = values.double()  # numpy has no bfloat16
    try:
        return values.numpy(force=True)
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise TypeError(f"Expected numbers as {name}; got a tensor without: {error}") from error


def place(position: tuple[int, ...]) -> str:
    """Name a cell: ``row 3, column 1``."""
    words = ("row", "column", "column")
    return ", ".join(f"{word} {int(i)}" for word, i in zip(words, position, strict=False))


def first_bad(bad: Any) -> tuple[int, ...] | None:
    """Return the index of the first true entry, or None."""
    flags = as_array(bad) if is_torch_array(bad) else np.asarray(bad)
    if not flags.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(flags.argmax()), flags.shape))


def refuse_if(wrong: object, words: str, error: type[Exception] = ValueError) -> None:
    """Raise an error with these words if something is wrong.

    The words are made in any case: use it where they cost next to nothing.
    """
    if wrong:
        raise error(words)


def refuse_where(
    bad: Any,
    expected: str,
    values: Any = None,
    got: str = "{:g}",
    *,
    advice: str = "",
    shared: bool = False,
    first: int = 0,
) -> None:
    """Raise for the first place that is flagged, with its value in ``got``.

    Rows are counted from ``first``, and not named where they share their parameters.
    """
    position = first_bad(bad)
    if position is None:
        return
    if shared:
        where = " at dimension " + ", and ".join(map(str, position[1:])) if position[1:] else ""
    else:
        preposition = "in" if len(position) == 1 else "at"
        where = f" {preposition} {place((first + position[0], *position[1:]))}"
    value = got if values is None else got.format(values[position])
    raise ValueError(f"Expected {expected}; got {value}{where}. {advice}".rstrip())


def refuse_extremes(name: str, values: Array) -> None:
    """Raise for values whose squares overflow."""
    refuse_where(
        (values > LARGEST) | (values < -LARGEST),  # no second array of numbers
        f"{name} of at most {LARGEST:g} in size",
        values,
        advice="Change the units, or leave such a value out.",
    )


def check_integer(name: str, value: Any, minimum: int, maximum: float = np.inf) -> None:
    """Raise unless ``value`` is a whole number of at least ``minimum``, and at most ``maximum``."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or not minimum <= value <= maximum:
        most = f" and at most {maximum}" if maximum < np.inf else ""
        raise ValueError(
            f"Expected {name} as a whole number of at least {minimum}{most}; got {value!r}."
        )


def check_number(
    name: str, value: Any, low: float, high: float = np.inf, *, open_low: bool = False
) -> None:
    """Raise unless ``value`` is a number in ``[low, high)``, or ``(low, high)`` if open."""
    right = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not right or not (low < value if open_low else low <= value) or not value < high:
        bracket = "(" if open_low else "["
        raise ValueError(f"Expected {name} in {bracket}{low:g}, {high:g}); got {value!r}.")


def check_seed(random_state: Any) -> None:
    """Raise unless ``random_state`` is what scikit-learn takes for one."""
    whole = isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool)
    if not (
        random_state is None
        or isinstance(random_state, np.random.RandomState)
        or (whole and 0 <= random_state < 2**32)
    ):
        raise ValueError(
            "Expected random_state as None, a whole number from 0 to 2**32 - 1, or a numpy "
            f"RandomState; got {random_state!r}."
        )


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line, outside this library, that has led here."""
    inside = (str(Path(__file__).parent), contextlib.__file__)  # the latter for decorators
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def check_choice(name: str, value: Any, known: Iterable[str]) -> None:
    """Raise unless a name is known."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"Expected {name} to be one of {sorted(known)}; got {value!r}.")


def _without_na(values: Any) -> Any:
    """Turn pandas' NA among numbers into NaN."""
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    if hasattr(values, "isna") and (kind in [*"iuf"] or hasattr(values, "columns")):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


# -- numpy and torch ---------------------------------------------------------------------------


def special_of(xp: ModuleType) -> Any:
    """Special functions of a namespace; scipy, which is loaded late, and torch name them alike."""
    from scipy import special

    return getattr(xp, "special", special)


def like(a: Any, v: Any) -> Any:
    """Array ``a`` in the language and place of ``v``; floats get its precision."""
    if not is_torch_array(v):
        return as_array(a) if is_torch_array(a) else a
    a = array_namespace(v).as_tensor(a)
    return a.to(dtype=v.dtype if a.is_floating_point() else None, device=device(v))


def moved(a: Any, dtype: Any = None, place: Any = None) -> Any:
    """Array as a tensor on a device; floats in this precision, None for their own."""
    if not (is_numpy_array(a) or is_torch_array(a)):
        return a
    import torch

    if is_numpy_array(a) and not (a.flags.writeable and all(s >= 0 for s in a.strides)):
        a = a.copy()
    tensor = torch.as_tensor(a)
    return tensor.to(dtype=dtype if tensor.is_floating_point() else None, device=place)


def as_array(a: Any) -> Array:
    """Array of numpy, floats in double precision."""
    if is_torch_array(a):
        a = a.detach().cpu().numpy()
    return a.astype(np.float64, copy=False) if a.dtype.kind == "f" else a


def diagonals(values: Any) -> Any:
    """Square matrices ``(..., D, D)`` with these values ``(..., D)`` on their diagonals."""
    xp = array_namespace(values)
    return values[..., None] * xp.eye(values.shape[-1], dtype=values.dtype, device=device(values))


def solve_lower(factor: Any, columns: Any) -> Any:
    """Solve ``L x = b`` for lower triangular ``(..., M, M)`` and columns ``(..., M, K)``."""
    if not is_torch_array(factor):
        return np.linalg.solve(factor, columns)
    return array_namespace(factor).linalg.solve_triangular(factor, columns, upper=False)


def log_sum_exp(x: Any) -> Any:
    """Logarithm of a sum of exponentials over the last axis."""
    xp = array_namespace(x)
    return x.logsumexp(-1) if is_torch_array(x) else special_of(xp).logsumexp(x, axis=-1)


def take(a: Any, rows: Any) -> Any:
    """Rows of an array, by an index in either language; None stays None."""
    if a is None:
        return None
    return a[as_array(rows) if is_torch_array(rows) and not is_torch_array(a) else rows]
