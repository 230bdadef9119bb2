"""Arguments that are no observations: parameters, true values, and noise in the wrong place."""

import numbers
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deconflow._types import Array
from deconflow.checks import (
    as_floats,
    check_integer,
    check_number,
    check_seed,
    first_bad,
    place,
)
from deconflow.classical import COARSEST, FINEST
from deconflow.engines import FEWEST_INTERVALS, MOST_INTERVALS
from deconflow.files import as_path
from deconflow.frames import column_units, plain_table, refuse_other_names, refuse_other_units
from deconflow.guests import check_device
from deconflow.models import Fit

#: What a parameter of this name must be, in every estimator that has one.
PARAMETERS: dict[str, Callable[[str, Any], Any]] = {
    "random_state": lambda _, value: check_seed(value),
    "device": lambda _, value: check_device(value),
    "checkpoint": lambda name, value: as_path(value, name),
    **dict.fromkeys(
        (
            "n_jobs",
            "max_iter",
            "n_init",
            "n_members",
            "n_chains",
            "n_snapshots",
            "n_draws",
            "n_layers",
            "hidden",
            "base_components",
            "batch_size",
            "epochs",
        ),
        partial(check_integer, minimum=1),
    ),
    "n_sweeps": partial(check_integer, minimum=3),
    "n_intervals": partial(check_integer, minimum=FEWEST_INTERVALS, maximum=MOST_INTERVALS[1]),
    "level": partial(check_integer, minimum=COARSEST, maximum=FINEST),
    "tol": partial(check_number, low=0.0),
    "learning_rate": partial(check_number, low=0.0, open_low=True),
    "validation_fraction": partial(check_number, low=0.0, high=1.0),
}


def check_parameters(model: Any) -> None:
    """Raise where a parameter makes no sense by itself; None does where it is the default."""
    for name, parameter in signature(type(model)).parameters.items():
        value = getattr(model, name)
        if name == "n_jobs" and value == -1:
            continue
        if name in PARAMETERS and (value is not None or parameter.default is not None):
            PARAMETERS[name](name, value)
    if getattr(model, "checkpoint", None) is None:
        return
    if not isinstance(model.random_state, numbers.Integral):
        raise ValueError(
            "Expected an integer random_state for a checkpoint, so that the fit can go on; "
            f"got {model.random_state!r}."
        )


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
