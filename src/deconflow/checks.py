"""Checks shared by everything that takes arrays from users."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor


def as_floats(values: ArrayLike | Tensor, name: str) -> NDArray[np.float64]:
    """Turn anything array-like into float64, or say which cell is not a number."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    if hasattr(values, "toarray"):
        raise TypeError(f"Expected {name} as a dense array; got a sparse one. Call its .toarray().")
    if values is None or isinstance(values, str):
        raise TypeError(f"Expected numbers as {name}; got {values!r}.")
    refuse_text(values, name)
    if _is_complex(values):
        raise ValueError(f"Complex data not supported: expected real numbers in {name}.")
    try:
        return np.asarray(_without_na(values), dtype=np.float64)
    except TypeError as error:
        raise TypeError(f"Expected real numbers in {name}; got {error}") from error
    except ValueError as error:
        raise ValueError(
            f"Expected a rectangular array of numbers as {name}; got one that is not: {error}"
        ) from error


def refuse_text(values: ArrayLike, name: str) -> None:
    """Raise where a cell holds text that is no number, naming the cell."""
    try:
        array = np.asarray(values)
    except ValueError:  # ragged: as_floats says so
        return
    if array.dtype.kind not in "OUS":
        return
    for position, cell in np.ndenumerate(array):
        if isinstance(cell, str) and not _reads_as_number(cell):
            raise ValueError(
                f"Expected numbers in {name}; got {str(cell)!r} at {place(position)}. "
                "Convert the text, or use NaN for a missing value."
            )


def as_tensor(values: ArrayLike | Tensor, name: str) -> Tensor:
    """Turn anything array-like into a float64 tensor, which shares its memory where it can."""
    if isinstance(values, Tensor) and values.is_floating_point():
        return values.detach().cpu().to(torch.float64)
    array = as_floats(values, name)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


def place(position: tuple[int, ...]) -> str:
    """Name a cell: ``row 3, column 1``."""
    words = ("row", "column", "column")
    return ", ".join(f"{word} {int(i)}" for word, i in zip(words, position, strict=False))


def first_bad(bad: NDArray[np.bool_] | Tensor) -> tuple[int, ...] | None:
    """Return the index of the first true entry, or None."""
    flags = bad.cpu().numpy() if isinstance(bad, Tensor) else np.asarray(bad)
    if not flags.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(flags.argmax()), flags.shape))


def check_integer(name: str, value: Any, minimum: int) -> None:
    """Raise unless ``value`` is a whole number of at least ``minimum``."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < minimum:
        raise ValueError(f"Expected {name} as a whole number of at least {minimum}; got {value!r}.")


def check_number(
    name: str, value: Any, low: float, high: float = np.inf, *, open_low: bool = False
) -> None:
    """Raise unless ``value`` is a number in ``[low, high)``, or ``(low, high)`` if open."""
    right = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not right or not (low < value if open_low else low <= value) or not value < high:
        bracket = "(" if open_low else "["
        raise ValueError(f"Expected {name} in {bracket}{low:g}, {high:g}); got {value!r}.")


def check_choice(name: str, value: Any, known: Iterable[str]) -> None:
    """Raise unless a name is known."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"Expected {name} to be one of {sorted(known)}; got {value!r}.")


def _is_complex(values: Any) -> bool:
    try:
        return np.iscomplexobj(np.asarray(values))
    except ValueError:  # ragged: as_floats says so
        return False


def _without_na(values: Any) -> Any:
    """Turn pandas' NA into NaN."""
    if hasattr(values, "to_numpy") and hasattr(values, "isna"):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def _reads_as_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
