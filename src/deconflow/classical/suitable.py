"""Rows that a density on a grid can be fitted to."""

import numpy as np

from deconflow.observations import Observations


def refuse_unsuitable(data: Observations, name: str, most_columns: int) -> None:
    """Raise for too many columns, too few rows, and columns of one value."""
    if data.dim > most_columns:
        word = "one column" if most_columns == 1 else f"at most {most_columns} columns"
        raise ValueError(
            f"Expected {word} in w with {name}; got {data.dim}. "
            "Use XDGMM or FlowDeconvolver in more dimensions."
        )
    if len(data) < 2:
        raise ValueError(
            f"Expected at least 2 rows in w to fit a density; got n_samples = {len(data)}."
        )
    w = data.measured()
    constant = np.nanmax(w, axis=0) == np.nanmin(w, axis=0)
    if constant.any():
        raise ValueError(
            "Expected values that differ in every column of w; "
            f"got one value in column {int(constant.argmax())}. Drop it."
        )
