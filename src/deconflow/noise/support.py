"""Where a torch distribution has its mass: the line, a half line or an interval."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, biject_to, constraints


def support_of(distribution: Distribution) -> constraints.Constraint | None:
    """Return the support, or None for a law that does not say."""
    try:
        return distribution.support
    except NotImplementedError:
        return None


def is_real(support: constraints.Constraint | None) -> bool:
    """Whether a support is the whole space (or unknown)."""
    inner = getattr(support, "base_constraint", None)  # of independent values, or of a mixture
    if inner is not None:
        return is_real(inner)
    return support is None or support is constraints.real or support is constraints.real_vector


def is_interval(support: constraints.Constraint | None) -> bool:
    """Whether a support has two ends."""
    return isinstance(getattr(support, "base_constraint", support), constraints.interval)


def check_support(distribution: Distribution) -> None:
    """Refuse discrete laws, and supports that torch has no map onto."""
    support = support_of(distribution)
    if is_real(support):
        return
    try:
        biject_to(support)
    except NotImplementedError as error:
        raise ValueError(
            "Expected as noise a law of real numbers, on the line, a half line or an interval; "
            f"got {type(distribution).__name__}."
        ) from error


def log_prob_inside(distribution: Distribution, x: Tensor, rounding: Tensor) -> Tensor:
    """Log density, minus infinity outside the support, with gradients that stay finite.

    A value that ``rounding`` may have moved across the end of an interval counts as inside.
    """
    support = support_of(distribution)
    if is_real(support):
        return distribution.log_prob(x)
    if is_interval(support):
        ends: Any = getattr(support, "base_constraint", support)
        low, high = (torch.as_tensor(e).to(x) for e in (ends.lower_bound, ends.upper_bound))
        slack = (1e-5 * (high - low) + rounding.to(x)).minimum((high - low) / 4)
        near = (x >= low - rounding) & (x <= high + rounding)
        x = torch.where(near, torch.minimum(torch.maximum(x, low + slack), high - slack), x)
    inside = support.check(x)  # type: ignore[union-attr]
    mask = inside if inside.dim() == x.dim() else inside.unsqueeze(-1)
    safe = torch.where(mask, x, _point_inside(distribution, x))
    return torch.where(inside, distribution.log_prob(safe), -torch.inf)


def _point_inside(distribution: Distribution, x: Tensor) -> Tensor:
    """A point of the support: the middle of an interval, the image of zero elsewhere."""
    onto = biject_to(distribution.support)
    shape = onto.inverse_shape(distribution.batch_shape + distribution.event_shape)
    return onto(torch.zeros(shape, dtype=x.dtype, device=x.device)).to(x)
