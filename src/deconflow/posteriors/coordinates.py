r"""What the learned posteriors share: what they look at, and the coordinates they work in."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Transform

from deconflow.observations import Observations
from deconflow.posteriors.linear_gaussian import Whitening

SOFT_LIMIT = 10.0


def network_features(data: Observations, n_features: int) -> Tensor:
    """Return the features of each row, with far outliers drawn in, or say that they differ."""
    features = data.features()
    if features.shape[-1] != n_features:
        raise ValueError(
            f"Expected observations with {n_features} features, as in training; got "
            f"{features.shape[-1]}. Missing values, projections and the kind of noise law must "
            "be the same kind as those the model was trained on."
        )
    return SOFT_LIMIT * torch.asinh(features / SOFT_LIMIT)


def outwards(data: Observations, z: Tensor, anchored: bool) -> tuple[Tensor, Tensor | float]:
    """Map a network's coordinates ``z`` to the truth's, with the log-determinant.

    Noise of bounded support: ``w - v`` lies in it. Otherwise, if ``anchored``, the coordinates in
    which the posterior of a standard normal truth is standard normal.
    """
    support = data.noise.support_map()
    if support is not None:
        _refuse_partial(data)
        to_support, unit, start = support
        n = to_support(z + start)
        return data.w - n / unit, _log_slope(to_support, z + start, n, unit)
    return Whitening.of(data).restore(z) if anchored else (z, 0.0)


def inwards(data: Observations, v: Tensor, anchored: bool) -> tuple[Tensor, Tensor | float]:
    """Map the truth's coordinates to a network's, with the log-determinant."""
    support = data.noise.support_map()
    if support is not None:
        _refuse_partial(data)
        to_support, unit, start = support
        n = (data.w - v) * unit
        z = to_support.inv(n)
        return z - start, -_log_slope(to_support, z, n, unit)
    return Whitening.of(data).whiten(v) if anchored else (v, 0.0)


def _log_slope(to_support: Transform, z: Tensor, n: Tensor, unit: Tensor) -> Tensor:
    """Log-determinant of ``z -> n / unit``, summed over the values of a row."""
    ladj = to_support.log_abs_det_jacobian(z, n)
    return (ladj.sum(-1) if ladj.dim() == z.dim() else ladj) - unit.log().sum()


def _refuse_partial(data: Observations) -> None:
    if data.projection is not None or data.observed is not None:
        raise ValueError(
            "Expected complete rows without a projection, because the noise has a bounded "
            "support; got missing values or a projection."
        )
