"""Whatever users call noise becomes a Noise here."""

import sys
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from deconflow._types import Array
from deconflow.checks import as_floats, refuse_if, take
from deconflow.noise.base import Noise, Reading, RowIndex
from deconflow.noise.gaussian_noise import FreeErrors, from_covariance, from_sd

ACCEPTED = (
    "standard deviations (D,) or (N, D), covariances (D, D) or (N, D, D), a deconflow noise, "
    "or a torch distribution"
)


def as_noise(noise: Any, n_rows: int, dim: int, observed: Any = None) -> Noise:
    """Turn ``noise`` into a Noise bound to ``n_rows`` rows of ``dim`` values.

    ``(D,)`` and ``(N, D)`` are standard deviations, ``(D, D)`` and ``(N, D, D)`` covariances, a
    single number is one standard deviation for everything. NaN is allowed where ``observed``
    (boolean ``(N, D)``) says that the value is missing.
    """
    if not isinstance(noise, Noise | np.ndarray):
        noise = _law_or_numbers(noise)
    if not isinstance(noise, Noise):
        noise = _from_array(as_floats(noise, "noise"), n_rows, dim, observed)
    elif noise.observed is not None:
        raise ValueError(
            "Expected noise of whole rows; got noise restricted to the values that other data "
            "observed, without its missing values. Pass the noise you made those data from."
        )
    elif noise.dim != dim:
        raise ValueError(f"Expected noise for {dim} values per row; got {noise.dim}.")
    return noise.bind(n_rows, observed)


def _law_or_numbers(noise: Any) -> Any:
    """Make a distribution of torch a law, and refuse what is neither a law nor numbers."""
    if is_distribution(noise):
        from deconflow.noise.law_noise import same_for_all

        return same_for_all(noise)
    if noise is None or isinstance(noise, str):
        raise TypeError(f"Expected noise as {ACCEPTED}; got {noise!r}.")
    if isinstance(noise, FreeErrors):
        raise TypeError(
            f"Expected errors that are known here; got {noise!r}. Only fit of an estimator learns "
            "them, and questions to the model that was fitted so."
        )
    refuse_if(
        isinstance(noise, Reading),
        f"Expected noise as {ACCEPTED}; got a likelihood of measured values, which none are "
        "beside it here. Use a law.",
        TypeError,
    )
    if callable(noise):
        raise TypeError(
            f"Expected noise as {ACCEPTED}; got the law {noise!r} without parameters. "
            "Use deconflow.noise.from_law(law, ...)."
        )
    return noise


def is_distribution(thing: Any) -> bool:
    """Whether this is a distribution of torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.distributions.Distribution)


def _from_array(array: Array, n_rows: int, dim: int, observed: Any) -> Noise:
    shape = array.shape
    refuse_if(
        shape == (dim, dim) and n_rows == dim,
        f"Expected noise that can be told apart; got shape {shape} for {n_rows} rows of {dim} "
        "values, which could be standard deviations or one covariance. "
        "Say deconflow.noise.gaussian(sd=...) or deconflow.noise.gaussian(covariance=...).",
    )
    if shape in ((), (dim,)):
        return from_sd(np.broadcast_to(array, (dim,)))
    if shape == (n_rows, dim):  # whatever stands where nothing was observed
        return from_sd(array if observed is None else np.where(observed, array, 1.0))
    if shape in ((dim, dim), (n_rows, dim, dim)):
        if len(shape) == 3 and observed is not None:
            array = np.where(observed[:, :, None] & observed[:, None], array, np.eye(dim))
        return from_covariance(array)
    hint = " Reshape it to (N, 1)." if shape == (n_rows,) and dim == 1 else ""
    raise ValueError(
        f"Expected noise as {ACCEPTED}, with N = {n_rows} and D = {dim}; got shape {shape}.{hint}"
    )


def rows_in_law(noise: Any) -> int | None:
    """Count the rows of what :func:`as_noise` takes; None if it is for any number of them."""
    if isinstance(noise, Noise):
        return noise.n_rows
    known = isinstance(noise, list | tuple) or is_array_api_obj(noise)
    shape: tuple[int, ...] = tuple(np.shape(noise)) if known else ()
    return shape[0] if len(shape) > 1 else None


def rows_of_law(noise: Any, rows: RowIndex, n_rows: int | None) -> Any:
    """Take some of ``n_rows`` rows of what :func:`as_noise` takes; one law for all stays it."""
    if n_rows is None or rows_in_law(noise) != n_rows:
        return noise
    return noise[rows] if isinstance(noise, Noise) else take(as_floats(noise, "noise"), rows)
