r"""The split normal distribution, which torch lacks."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.utils import broadcast_all


class SplitNormal(Distribution):
    r"""Two half normals glued at zero.

    .. math:: p(x) = \sqrt{2 / \pi} \, (s_- + s_+)^{-1} \exp(-x^2 / 2 s_\pm^2)

    with :math:`s_-` for negative and :math:`s_+` for positive :math:`x`.

    References
    ----------
    Wallis (2014), "The Two-Piece Normal, Binormal, or Double Gaussian Distribution: Its Origin
    and Rediscoveries", https://arxiv.org/abs/1405.4995

    Examples
    --------
    >>> float(SplitNormal(torch.tensor(1.0), torch.tensor(3.0)).mean)  # sqrt(2 / pi) (3 - 1)
    1.5957...
    """

    arg_constraints = {"below": constraints.positive, "above": constraints.positive}
    support = constraints.real

    def __init__(self, below: Tensor, above: Tensor, validate_args: bool | None = None) -> None:
        self.below, self.above = broadcast_all(below, above)
        super().__init__(self.below.shape, validate_args=validate_args)

    def expand(  # noqa: D102
        self, batch_shape: torch.Size | list[int] | tuple[int, ...], _instance: None = None
    ) -> SplitNormal:
        size = torch.Size(batch_shape)
        return SplitNormal(self.below.expand(size), self.above.expand(size), validate_args=False)

    @property
    def mean(self) -> Tensor:
        """Mean."""
        return math.sqrt(2 / math.pi) * (self.above - self.below)

    @property
    def variance(self) -> Tensor:
        """Variance."""
        return (1 - 2 / math.pi) * (self.above - self.below).square() + self.above * self.below

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density."""
        scale = torch.where(value < 0, self.below, self.above)
        log_norm = 0.5 * math.log(2 / math.pi) - (self.below + self.above).log()
        return log_norm - 0.5 * (value / scale).square()

    def sample(self, sample_shape: torch.Size | list[int] | tuple[int, ...] = ()) -> Tensor:
        """Draw a side by its mass, then a half normal on that side."""
        shape = self._extended_shape(torch.Size(sample_shape))
        below, above = self.below.expand(shape), self.above.expand(shape)
        with torch.no_grad():
            size = torch.randn(shape, dtype=below.dtype, device=below.device).abs()
            goes_below = torch.rand_like(size) * (below + above) < below
            return torch.where(goes_below, -size * below, size * above)
