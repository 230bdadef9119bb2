"""What all estimators do with the arrays that users hand them."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, validate_data
from torch.distributions import Distribution

from deconflow._types import Array
from deconflow.checks import as_tensor, first_bad, place, warn_caller
from deconflow.files import as_path
from deconflow.frames import (
    column_units,
    limit_flags,
    plain_table,
    plain_tables,
    refuse_other_units,
)
from deconflow.noise import LimitedNoise, Noise, Reading
from deconflow.observations import (
    Observations,
    check_groups,
    check_rows_and_columns,
    check_weights,
)

TRUTHS_FOR_REACH = 1000
"""Draws of a model that say how far its truth reaches."""


def observe(
    estimator: Any,
    w: ArrayLike,
    noise: Any,
    projection: ArrayLike | None,
    sample_weight: ArrayLike | None = None,
    groups: Any = None,
    limits: Any = None,
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
    if limits is not None:
        limits = limit_flags(w, limits)
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
    if noise is None and limits is not None:
        raise ValueError(
            "Expected noise beside limits, the error that the measurement of a limit would have "
            "had; got none. Pass noise=..., or noise=0.0 if there is none."
        )
    if noise is None:
        warn_caller(
            "noise was not given, so w is taken as exact. Pass noise=..., or noise=0.0 to say so."
        )
        noise = 0.0
    data = Observations.from_arrays(
        w, noise, projection=projection, weights=sample_weight, groups=groups, limits=limits
    )
    if reset:
        _refuse_unmeasured(data, _measured_names(estimator))
        estimator.n_latent_ = data.latent_dim
    elif data.latent_dim != estimator.n_latent_:
        raise ValueError(
            f"Expected a truth of {estimator.n_latent_} dimensions, as in fit; "
            f"got a projection from {data.latent_dim}."
        )
    return data if reset else reaching(estimator, data)


def _refuse_unmeasured(data: Observations, names: list[str]) -> None:
    """Raise for a column of limits to one side only: no truth is too far beyond them."""
    flags = data.noise.flags
    if flags is None:
        return
    seen = torch.ones_like(flags, dtype=torch.bool) if data.observed is None else data.observed
    one_sided = [((flags == side) | ~seen).all(0) & seen.any(0) for side in (-1, 1)]
    position = first_bad(one_sided[0] | one_sided[1])
    if position is not None:
        raise ValueError(
            "Expected measured values beside limits in every column of w; got only limits to one "
            f"side in column {names[position[0]]}. Drop it."
        )


def reaching(estimator: Any, data: Observations) -> Observations:
    """Let limits reach as far as the fitted density does: single rows do not tell."""
    if not isinstance(data.noise, LimitedNoise):
        return data
    draws = torch.from_numpy(estimator.density_.sample(TRUTHS_FOR_REACH, 0))
    clean = torch.einsum("nmd,kd->nkm", data.projections()[:: 1 + len(data) // 100], draws)
    noise = data.noise.for_truths(data.w, clean.flatten(0, 1))
    return replace(data, noise=noise)


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


def true_values(estimator: Any, v: ArrayLike) -> Array:
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
    return values.numpy()
