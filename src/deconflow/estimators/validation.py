"""What all estimators do with the arrays that users hand them."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor
from torch.distributions import Distribution

from deconflow.checks import as_tensor, first_bad, place, warn_caller
from deconflow.files import as_path
from deconflow.frames import column_units, plain_table, plain_tables, refuse_other_units
from deconflow.noise import Noise, Reading
from deconflow.observations import (
    Observations,
    check_groups,
    check_rows_and_columns,
    check_weights,
)


def observe(
    estimator: Any,
    w: ArrayLike,
    noise: Any,
    projection: ArrayLike | None,
    sample_weight: ArrayLike | None = None,
    groups: Any = None,
    *,
    reset: bool = False,
) -> Observations:
    """Check measurements; ``reset`` is for ``fit``, which learns names and dimensions."""
    if not reset:
        check_is_fitted(estimator)
    units = column_units(w)
    w, noise = plain_tables(w, noise)
    if sample_weight is not None:
        sample_weight = check_weights(w, sample_weight, "sample_weight")
    if groups is not None:
        groups = check_groups(w, groups)
    w = _validated(estimator, w, "w", reset=reset)
    if reset:
        estimator._units = units
    else:
        refuse_other_units(units, estimator._units, _measured_names(estimator))
    if noise is None and not reset and estimator.noise_given_:
        raise ValueError(
            "Expected noise, because the model was fitted with noise; got none. Where scikit-learn "
            "calls, as in GridSearchCV, it passes noise on only after "
            "sklearn.set_config(enable_metadata_routing=True)."
        )
    if reset:
        estimator.noise_given_ = noise is not None
    if noise is None:
        warn_caller(
            "noise was not given, so w is taken as exact. Pass noise=..., or noise=0.0 to say so."
        )
        noise = 0.0
    data = Observations.from_arrays(
        w, noise, projection=projection, weights=sample_weight, groups=groups
    )
    if reset:
        estimator.n_latent_ = data.latent_dim
    elif data.latent_dim != estimator.n_latent_:
        raise ValueError(
            f"Expected a truth of {estimator.n_latent_} dimensions, as in fit; "
            f"got a projection from {data.latent_dim}."
        )
    return data


def as_arguments(data: Observations) -> dict[str, Any]:
    """Return noise and projection as a fit takes them: for whole rows."""
    noise: Any = data.noise
    if noise.observed is not None:
        noise = replace(noise, observed=None)
    return {"noise": noise, "projection": data.projection}


def _validated(estimator: Any, table: Any, name: str, *, reset: bool) -> Any:
    """Let scikit-learn compare shapes and names with those of the fit, or take them from it."""
    check_rows_and_columns(table.shape, name)
    try:
        return validate_data(
            estimator, table, reset=reset, dtype=np.float64, ensure_all_finite=False
        )
    except ValueError as error:
        raise ValueError(
            f"Expected {name} with the columns of the fit; got others. {error}"
        ) from error


def _measured_names(estimator: Any) -> list[str]:
    numbers = range(estimator.n_features_in_)
    return [str(name) for name in getattr(estimator, "feature_names_in_", numbers)]


def refuse_noise_as_y(w: Any, y: Any, noise: Any) -> None:
    """Catch ``fit(w, noise)``, which would take the noise for labels that nobody reads."""
    if noise is not None or y is None:
        return
    if isinstance(y, Noise | Reading | Distribution) or not _like_labels(y, w):
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


def refuse_unseen(data: Observations) -> None:
    """Raise if no row measures some dimension of the truth."""
    seen = data.projections().abs().sum((0, 1))
    if (seen == 0).any():
        raise ValueError(
            "Expected every dimension to be measured in at least one row of w; "
            f"got none for column {int(seen.argmin())}. Drop it."
        )


def check_resumable(estimator: Any) -> None:
    """Raise if a fit that keeps checkpoints could not be made again to go on from one."""
    if estimator.checkpoint is None:
        return
    as_path(estimator.checkpoint, "checkpoint")
    if not isinstance(estimator.random_state, numbers.Integral):
        raise ValueError(
            "Expected an integer random_state for a checkpoint, so that the fit can go on; "
            f"got {estimator.random_state!r}."
        )


@contextmanager
def unchanged_on_failure(estimator: Any) -> Iterator[None]:
    """Give an estimator its state back if the block fails or is interrupted."""
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def true_values(estimator: Any, v: ArrayLike) -> Tensor:
    """Check points ``(N, D)`` of the latent space."""
    check_is_fitted(estimator)
    units, v = column_units(v), plain_table(v, "v")
    if estimator.n_latent_ == estimator.n_features_in_:
        v = _validated(estimator, v, "v", reset=False)
        refuse_other_units(units, estimator._units, _measured_names(estimator))
    values = as_tensor(v, "v")
    if values.dim() != 2 or values.shape[1] != estimator.n_latent_:
        raise ValueError(
            f"Expected v of shape (N, {estimator.n_latent_}); got {tuple(values.shape)}."
        )
    position = first_bad(~values.isfinite())
    if position is not None:
        raise ValueError(
            f"Expected finite values in v; got NaN or inf at {place(position)}. "
            "A density has no value there."
        )
    return values
