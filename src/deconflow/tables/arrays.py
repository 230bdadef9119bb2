"""Between numpy's arrays, as astropy has them, and pyarrow's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def field_of(name: str, kind: pa.DataType, unit: str | None) -> pa.Field:
    """Make a field that remembers its unit."""
    return pa.field(name, kind, metadata={"unit": unit} if unit else None)


def as_arrow(values: NDArray[Any], mask: NDArray[np.bool_] | None = None) -> pa.Array:
    """Turn a column of numpy into one of pyarrow; arrays in cells become lists."""
    if mask is not None and not mask.any():
        mask = None
    if values.dtype == object:
        cells = [None if cell is None else _plain(cell) for cell in values]
        return pa.array(_hidden(cells, mask))
    if values.dtype.kind == "c":  # which pyarrow does not know
        values = values.astype(str)
    if values.ndim > 1:
        return _lists(values)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    if values.dtype.kind == "U":
        return pa.array(_hidden(values.tolist(), mask), pa.string())
    return pa.array(np.ascontiguousarray(values, values.dtype.newbyteorder("=")), mask=mask)


def as_masked(column: pa.ChunkedArray) -> Any:
    """Turn a column of pyarrow into one of numpy, masked where it has nulls."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        flat = pa.concat_arrays(column.chunks).flatten() if column.num_chunks else []
        return np.asarray(flat).reshape(-1, kind.list_size)
    if pa.types.is_floating(kind):
        return column.fill_null(float("nan")).to_numpy()
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        missing = column.is_null().to_numpy()
        values = column.fill_null(False if pa.types.is_boolean(kind) else 0).to_numpy()
        return np.ma.array(values, mask=missing) if missing.any() else values
    return np.array([_as_text(cell) for cell in column.to_pylist()], dtype=str)


def _lists(values: NDArray[Any]) -> pa.Array:
    """Two dimensions as lists of a fixed length; more are flattened."""
    width = math.prod(values.shape[1:])
    flat = np.ascontiguousarray(values.reshape(len(values), width), values.dtype.newbyteorder("="))
    if values.dtype.kind in "SU" or width == 0:
        return pa.array([str(_plain(row)) for row in flat])
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), width)


def _plain(cell: Any) -> Any:
    return cell.tolist() if isinstance(cell, np.ndarray | np.generic) else cell


def _hidden(cells: list[Any], mask: NDArray[np.bool_] | None) -> list[Any]:
    if mask is None:
        return cells
    return [None if hide else cell for cell, hide in zip(cells, mask, strict=True)]


def _as_text(cell: Any) -> str:
    if cell is None:
        return ""
    return cell.decode(errors="replace") if isinstance(cell, bytes) else str(cell)
