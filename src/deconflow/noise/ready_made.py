r"""Ready-made noise laws, each one line over :func:`~deconflow.noise.from_law`.

``scale`` and its kin have shape ``(D,)`` for all rows, or ``(N, D)`` row by row.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import (
    Categorical,
    Distribution,
    Laplace,
    MixtureSameFamily,
    MultivariateNormal,
    StudentT,
    Transform,
    Uniform,
)

from deconflow.checks import as_parameter, first_bad, place
from deconflow.noise.gaussian_noise import checked_factor
from deconflow.noise.law_noise import LawNoise, from_law
from deconflow.noise.split_normal_law import SplitNormal

Array = ArrayLike | Tensor


def student_t(scale: Array, df: Array) -> LawNoise:
    """Student-t noise with ``df`` degrees of freedom, independent in each value.

    Examples
    --------
    >>> student_t(scale=[0.1, 0.2], df=3.0)
    LawNoise(rows=any number of, dim=2, shared=True)
    """
    return _independent(_student_t, scale=scale, df=df)


def laplace(scale: Array) -> LawNoise:
    """Laplace noise with density proportional to ``exp(-|n| / scale)``."""
    return _independent(_laplace, scale=scale)


def uniform(half_width: Array) -> LawNoise:
    """Noise uniform between ``-half_width`` and ``half_width``, as from rounding."""
    return _independent(_uniform, half_width=half_width)


def split_normal(lower: Array, upper: Array) -> LawNoise:
    """Asymmetric error bars: the measurement ``w`` with ``+upper`` and ``-lower``.

    The true value lies above ``w`` by about ``upper``, or below it by about ``lower``. Since
    ``n = w - v``, the noise itself is ``upper`` wide on its negative side.
    """
    return _independent(_split_normal, lower=lower, upper=upper)


def gaussian_mixture(weights: Array, means: Array, covariances: Array) -> LawNoise:
    """Noise whose law is a mixture of ``J`` Gaussians.

    Parameters
    ----------
    weights
        ``(J,)`` for all rows, or ``(N, J)``; each row sums to one.
    means
        ``(J, D)`` or ``(N, J, D)``.
    covariances
        ``(J, D, D)`` or ``(N, J, D, D)``, positive definite.
    """
    weights, means = as_parameter(weights, "weights"), as_parameter(means, "means")
    covariances = as_parameter(covariances, "covariances")
    if weights.dim() not in (1, 2):
        raise ValueError(f"Expected weights of shape (J,) or (N, J); got {tuple(weights.shape)}.")
    shared = weights.dim() == 1
    if shared:
        weights, means, covariances = weights[None], means[None], covariances[None]
    rows, parts = weights.shape
    dim = means.shape[-1] if means.dim() else 0
    if means.shape != (rows, parts, dim) or covariances.shape != (rows, parts, dim, dim):
        raise ValueError(
            "Expected weights (J,), means (J, D) and covariances (J, D, D), or each with a leading "
            f"row axis; got {tuple(weights.shape)}, {tuple(means.shape)} and "
            f"{tuple(covariances.shape)}."
        )
    bad = first_bad((weights < 0).any(-1) | ((weights.sum(-1) - 1).abs() > 1e-6))
    if bad is not None:
        where = "" if shared else f" in {place(bad)}"
        raise ValueError(f"Expected noise weights that sum to one; got others{where}.")
    factors = _component_factors(covariances, shared)
    return from_law(_gaussian_mixture, shared=shared, weights=weights, means=means, factors=factors)


def same_for_all(distribution: Distribution) -> LawNoise:
    """Make noise of one torch distribution over ``D`` values that holds for all rows."""
    if not isinstance(distribution, Distribution):
        raise TypeError(f"Expected distribution as one of torch; got {distribution!r}.")
    shape = distribution.batch_shape + distribution.event_shape
    if len(shape) != 1:
        raise ValueError(
            f"Expected a noise distribution over shape (D,); got {tuple(shape)}. "
            "For a law that differs by row use deconflow.noise.from_law."
        )
    batch = torch.Size([1]) + distribution.batch_shape
    return from_law(_Constant(distribution.expand(batch)), shared=True)


class _Constant:
    """A law without parameters."""

    def __init__(self, distribution: Distribution) -> None:
        self.distribution = distribution

    def __call__(self) -> Distribution:
        return self.distribution

    def to(self, dtype: torch.dtype | None, device: torch.device | None) -> _Constant:
        """Move all tensors inside the distribution."""

        def move(thing: Tensor) -> Tensor:
            return thing.to(dtype=dtype if thing.is_floating_point() else None, device=device)

        return _Constant(_moved(self.distribution, move, {}))


def _moved(thing: Any, move: Callable[[Tensor], Tensor], twins: dict[int, Any]) -> Any:
    """Copy a distribution with its tensors, and those of its parts, moved.

    Parts know each other, as a transform its inverse: ``twins`` are the copies so far.
    """
    if isinstance(thing, Tensor):
        return move(thing)
    if isinstance(thing, list):
        return [_moved(part, move, twins) for part in thing]
    if not isinstance(thing, Distribution | Transform):
        return thing
    if id(thing) not in twins:
        twins[id(thing)] = twin = copy.copy(thing)
        twin.__dict__ = {name: _moved(part, move, twins) for name, part in vars(thing).items()}
    return twins[id(thing)]


def _independent(law, **parameters: Array) -> LawNoise:  # noqa: ANN001
    """Broadcast positive parameters to ``(1, D)`` or ``(N, D)``, and check them."""
    tensors = {name: as_parameter(value, name) for name, value in parameters.items()}
    first = next(iter(tensors))
    try:
        shape = torch.broadcast_shapes(*(value.shape for value in tensors.values()))
    except RuntimeError as error:
        shapes = {name: tuple(value.shape) for name, value in tensors.items()}
        raise ValueError(f"Expected shapes that fit together; got {shapes}.") from error
    if len(shape) not in (1, 2):
        raise ValueError(f"Expected {first} of shape (D,) or (N, D); got {tuple(shape)}.")
    shared = len(shape) == 1
    for name, value in tensors.items():
        position = first_bad(~(value > 0) | ~value.isfinite())
        if position is not None:
            where = f" at {place(position)}" if value.dim() == 2 else ""
            raise ValueError(
                f"Expected positive, finite values of {name} as noise; "
                f"got {value[position]:g}{where}."
            )
        value = value.expand(shape)
        tensors[name] = value[None] if shared else value
    return from_law(law, shared=shared, **tensors)


def _component_factors(covariances: Tensor, shared: bool) -> Tensor:
    """Factor ``(N, J, D, D)``, refusing the first row with a covariance that is none."""
    rows, parts = covariances.shape[:2]
    for part in range(parts):
        bad = first_bad(~covariances[:, part].reshape(rows, -1).isfinite().all(-1))
        if bad is not None:
            where = "" if shared else f" in {place(bad)}"
            raise ValueError(f"Expected finite covariances as noise; got NaN or inf{where}.")
    factors = torch.stack([checked_factor(covariances[:, j], shared) for j in range(parts)], 1)
    singular = first_bad((factors.diagonal(dim1=-2, dim2=-1) <= 0).flatten(1).any(1))
    if singular is not None:
        where = "" if shared else f" in {place(singular)}"
        raise ValueError(f"Expected positive definite covariances; got a singular one{where}.")
    return factors


# Arguments are checked above; validation inside the distributions would refuse residuals that
# lie outside a support, where the right answer is a log density of minus infinity.
def _student_t(scale: Tensor, df: Tensor) -> Distribution:
    return StudentT(df, 0.0, scale, validate_args=False)


def _laplace(scale: Tensor) -> Distribution:
    return Laplace(torch.zeros_like(scale), scale, validate_args=False)


def _uniform(half_width: Tensor) -> Distribution:
    return Uniform(-half_width, half_width, validate_args=False)


def _split_normal(lower: Tensor, upper: Tensor) -> Distribution:
    return SplitNormal(below=upper, above=lower, validate_args=False)


def _gaussian_mixture(weights: Tensor, means: Tensor, factors: Tensor) -> Distribution:
    parts = MultivariateNormal(means, scale_tril=factors, validate_args=False)
    choice = Categorical(probs=weights, validate_args=False)
    return MixtureSameFamily(choice, parts, validate_args=False)
