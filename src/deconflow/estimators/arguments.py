"""Arguments that are no observations: true values, and noise in the wrong place."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deconflow._types import Array
from deconflow.checks import as_floats, first_bad, place
from deconflow.frames import column_units, plain_table, refuse_other_names, refuse_other_units
from deconflow.models import Fit


def true_values(fit: Fit, v: ArrayLike) -> Array:
    """Check points ``(N, D)`` of the true values."""
    units, v = column_units(v), plain_table(v, "v")
    refuse_other_names(v, fit.names)
    refuse_other_units(units, fit.units, fit.names)
    values = as_floats(v, "v")
    if values.ndim != 2 or values.shape[1] != len(fit.names):
        raise ValueError(f"Expected v of shape (N, {len(fit.names)}); got {values.shape}.")
    position = first_bad(~np.isfinite(values))
    if position is not None:
        raise ValueError(
            f"Expected finite values in v; got NaN or inf at {place(position)}. "
            "A density has no value there."
        )
    return values


def refuse_noise_as_y(w: Any, y: Any, noise: Any) -> None:
    """Catch ``fit(w, noise)``, which would take the noise for labels that nobody reads."""
    if noise is None and y is not None and not _like_labels(y, w):
        raise TypeError("Expected noise by its name, as in fit(w, noise=...); got it as y.")


def _like_labels(y: Any, w: Any) -> bool:
    """Whether something is a label per row, which scikit-learn may pass to any estimator."""
    try:
        array = np.asarray(y)
    except (TypeError, ValueError):
        return False
    if array.ndim != 1 or array.size == 0 or array.dtype.kind != "f":
        return array.ndim == 1
    rows = w.shape[0] if hasattr(w, "shape") else len(w)
    return len(array) == rows and bool((array == np.round(array)).all())  # classes as floats
