"""Checks shared by everything that takes arrays from users."""

from __future__ import annotations

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
    if np.iscomplexobj(values):
        raise ValueError(f"Complex data not supported: expected real numbers in {name}.")
    refuse_text(values, name)
    try:
        return np.asarray(values, dtype=np.float64)
    except TypeError as error:
        raise TypeError(f"Expected numbers in {name}; got {error}") from error
    except ValueError as error:
        raise ValueError(
            f"Expected a rectangular array of numbers as {name}; got {error}"
        ) from error


def refuse_text(values: ArrayLike, name: str) -> None:
    """Raise where a cell holds text that is no number, naming the cell."""
    array = np.asarray(values) if not hasattr(values, "to_numpy") else values.to_numpy()
    if array.dtype.kind not in "OUS":
        return
    for position, cell in np.ndenumerate(array):
        if isinstance(cell, str) and not _reads_as_number(cell):
            raise ValueError(
                f"Expected numbers in {name}; got {cell!r} at {place(position)}. "
                "Convert the text, or use NaN for a missing value."
            )


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


def as_tensor(values: ArrayLike | Tensor, name: str) -> Tensor:
    """Turn anything array-like into a float64 tensor that owns or shares its memory."""
    if isinstance(values, Tensor) and values.is_floating_point():
        return values.detach().to(torch.float64)
    array = as_floats(values, name)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _reads_as_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
