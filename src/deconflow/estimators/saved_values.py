"""Values of a saved model: taken if they are what they must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.saving import NUMBERS, check_form
from deconflow.standardising import SAVED, Standardiser

SAVED_HISTORY = {
    **{name: [float] for name in ("train", "validation", "learning_rate", "seconds")},
    "skipped_steps": int,
    "best_epoch": (int, None),
    "stopped_early": bool,
}
PARTS = ("weights", "means", "covariances")
"""What a mixture is saved as."""
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool)
CLOSE = 1e-6
"""By how much sums may differ from one, and covariances from symmetric ones."""


def saved_mixture(arrays: dict[str, Tensor], names: tuple[str, ...], dim: int) -> GaussianMixture:
    """Take weights, means and covariances of a mixture, if they are such."""
    weights, means, covariances = (_doubles(arrays, name) for name in names)
    count = weights.size
    if means.shape != (count, dim) or covariances.shape != (count, dim, dim) or weights.ndim != 1:
        raise ValueError(f"{names[0]} and its means and covariances do not fit together")
    refuse(names[0], (weights < 0).any() or abs(weights.sum() - 1) > CLOSE, "positive with sum one")
    size = np.abs(covariances).max(axis=(1, 2), initial=0.0)
    uneven = np.abs(covariances - covariances.swapaxes(1, 2)).max(axis=(1, 2), initial=0.0)
    refuse(names[2], (uneven > CLOSE * size).any() or not _positive(covariances), "positive")
    return GaussianMixture(weights, means, covariances)


def under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the arrays whose names begin with a prefix, without it."""
    start = f"{prefix}."
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}


def prefixed(prefix: str, tensors: dict[str, Any]) -> dict[str, Any]:
    """Return arrays by names that begin with a prefix: the way back of :func:`under`."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def joined(mixtures: Sequence[GaussianMixture]) -> dict[str, Tensor]:
    """Put mixtures one after another, as they are: so they are loaded to the last bit."""
    return {
        part: torch.from_numpy(np.concatenate([getattr(each, part) for each in mixtures]))
        for part in PARTS
    }


def parted(arrays: dict[str, Tensor], sizes: Sequence[int], dim: int) -> list[GaussianMixture]:
    """Take what :func:`joined` gave, if it is mixtures of these sizes."""
    weights = arrays["weights"]
    average = saved_mixture({**arrays, "weights": weights / max(1, len(sizes))}, PARTS, dim)
    right = min(sizes, default=0) > 0 and sum(sizes) == average.n_components
    refuse("sizes", not right, "those of its mixture")
    edges = np.cumsum(sizes)[:-1]
    pieces = (
        np.split(array, edges) for array in (weights.numpy(), average.means, average.covariances)
    )
    parts = [GaussianMixture(*each) for each in zip(*pieces, strict=True)]
    refuse("weights", any(abs(part.weights.sum() - 1) > CLOSE for part in parts), "of sum one")
    return parts


def saved_standardiser(arrays: dict[str, Tensor], dim: int, measured: int) -> Standardiser:
    """Take a change of units, if it is one."""
    tensors = {name: torch.from_numpy(_doubles(arrays, name)) for name in SAVED}
    for name, size in zip(SAVED, (dim, dim, measured), strict=True):
        refuse(name, tensors[name].shape != (size,), f"of {size} numbers")
        refuse(name, name != "location" and bool((tensors[name] <= 0).any()), "positive")
    return Standardiser.from_dict(tensors)


def saved_table(values: Any) -> dict[str, Array]:
    """Take columns of a table that is kept as lists, all of one length."""
    check_form(values, {str: (NUMBERS, [bool])}, "selection")
    refuse("selection", len({len(column) for column in values.values()}) > 1, "of one length")
    return {name: np.array(column) for name, column in values.items()}


def saved_arrays(arrays: dict[str, Tensor], names: tuple[str, ...]) -> list[Array]:
    """Take arrays in double precision."""
    return [_doubles(arrays, name) for name in names]


def refuse(name: str, wrong: Any, wanted: str) -> None:
    """Raise if a saved value is not what it must be."""
    if wrong:
        raise ValueError(f"{name} is not {wanted}")


def check_arrays(arrays: dict[str, Tensor]) -> None:
    """Raise if an array is of another type than models have, or not finite."""
    for name, array in arrays.items():
        refuse(name, array.dtype not in DTYPES, f"of a type that models have; it is {array.dtype}")
        refuse(name, array.is_floating_point() and not array.isfinite().all(), "finite")


def _positive(covariances: Array) -> bool:
    """Whether covariances have what densities need, a Cholesky factor."""
    try:
        np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:
        return False
    return True


def _doubles(arrays: dict[str, Tensor], name: str) -> Array:
    refuse(name, arrays[name].dtype != torch.float64, "in double precision")
    return arrays[name].numpy()
