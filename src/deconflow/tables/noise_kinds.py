"""Noise laws by their names, made from error bars."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deconflow import noise as laws
from deconflow.noise import Noise

Array = NDArray[np.float64]

KINDS = {
    "gaussian": "the error is the standard deviation",
    "student-t": "the error is the scale; see --df",
    "laplace": "the error is the standard deviation",
    "uniform": "the error is the half width, as from rounding",
    "split-normal": "asymmetric errors",
}


def check_kind(kind: str, uneven: bool, correlated: bool) -> None:
    """Refuse laws that there are none of."""
    if kind not in KINDS:
        raise ValueError(f"Expected --noise as one of {', '.join(KINDS)}; got {kind!r}.")
    if uneven and kind not in ("gaussian", "split-normal"):
        raise ValueError(
            f"Expected --noise split-normal for asymmetric errors; got {kind!r}. "
            "Give one error for each column, or leave --noise out."
        )
    if correlated and (kind != "gaussian" or uneven):
        raise ValueError(
            "Expected symmetric gaussian errors where columns are correlated; got "
            f"{'asymmetric errors' if uneven else kind}. Leave the correlated columns out."
        )


def needs_positive(kind: str, uneven: bool) -> bool:
    """Whether an error of zero has no meaning under this law."""
    return uneven or kind != "gaussian"


def independent_noise(kind: str, lower: Array, upper: Array, df: float) -> Noise:
    """Make the noise of ``(N, D)`` error bars."""
    if kind == "split-normal" or (lower != upper).any():
        return laws.split_normal(lower=lower, upper=upper)
    if kind == "student-t":
        return laws.student_t(scale=lower, df=np.full_like(lower, df))
    if kind == "laplace":
        return laws.laplace(scale=lower / np.sqrt(2))
    if kind == "uniform":
        return laws.uniform(half_width=lower)
    return laws.gaussian(sd=lower)
