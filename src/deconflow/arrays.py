"""Arrays in two languages: numpy, and torch where flows are trained."""

from types import ModuleType
from typing import Any

import numpy as np
from array_api_compat import (
    array_namespace,
    device,
    is_numpy_array,
    is_torch_array,
    is_torch_namespace,
)
from scipy import special

from deconflow._types import Array

__all__ = ["array_namespace", "as_array", "is_torch_array", "like", "moved", "solve_lower"]


def special_of(xp: ModuleType) -> Any:
    """Special functions of a namespace: those of scipy and torch have the same names."""
    if not is_torch_namespace(xp):
        return special
    import torch

    return torch.special


def like(a: Any, v: Any) -> Any:
    """Array ``a`` in the language and place of ``v``; floats get its precision."""
    if not is_torch_array(v):
        return as_array(a) if is_torch_array(a) else a
    import torch

    a = torch.as_tensor(a)
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
    import torch

    return torch.linalg.solve_triangular(factor, columns, upper=False)


def log_sum_exp(x: Any) -> Any:
    """Logarithm of a sum of exponentials over the last axis."""
    if is_torch_array(x):
        return x.logsumexp(-1)
    return special.logsumexp(x, axis=-1)


def take(a: Any, rows: Any) -> Any:
    """Rows of an array, by an index in either language; None stays None."""
    if a is None:
        return None
    return a[as_array(rows) if is_torch_array(rows) and not is_torch_array(a) else rows]
