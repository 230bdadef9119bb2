r"""Invertible layers of flows, and the increasing functions they are made of."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deconflow.densities.networks import MaskedNetwork, ResidualNetwork

LOG_STEEPEST = math.log(1e3)
"""Log slopes stay between minus and plus this, for affine functions and at the knots of splines."""


class Univariate(ABC):
    """A family of increasing functions, each given by ``size`` numbers; zeros are the identity."""

    size: int

    @abstractmethod
    def forward(self, x: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Map ``x`` by functions with parameters ``(..., size)``; return log slopes too."""

    @abstractmethod
    def inverse(self, y: Tensor, parameters: Tensor) -> Tensor:
        """Return the ``x`` that are mapped to ``y``."""


class Affine(Univariate):
    r"""The functions :math:`f(x) = e^a x + b`."""

    size = 2

    def forward(self, x: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Return values and log slopes."""
        shift, log_scale = self._parts(parameters)
        return x * log_scale.exp() + shift, log_scale

    def inverse(self, y: Tensor, parameters: Tensor) -> Tensor:
        """Return the arguments."""
        shift, log_scale = self._parts(parameters)
        return (y - shift) / log_scale.exp()

    @staticmethod
    def _parts(parameters: Tensor) -> tuple[Tensor, Tensor]:
        shift, raw = parameters.unbind(-1)
        return shift, _softly_bounded(raw, LOG_STEEPEST)


class Spline(Univariate):
    """Monotone rational-quadratic splines on ``[-bound, bound]``, the identity outside.

    References
    ----------
    Gregory and Delbourgo (1982), "Piecewise rational quadratic interpolation to monotonic data";
    Durkan et al. (2019), https://arxiv.org/abs/1906.04032
    """

    def __init__(self, bins: int = 8, bound: float = 6.0) -> None:
        self.bins, self.bound, self.size = bins, bound, 3 * bins - 1

    def forward(self, x: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Return values and log slopes."""
        xs, ys, slopes = self._knots(parameters)
        inside, x0, x1, y0, y1, d0, d1 = self._bin(x, xs, xs, ys, slopes)
        s = (y1 - y0) / (x1 - x0)
        z = inside * (x - x0) / (x1 - x0)
        below = s + (d0 + d1 - 2 * s) * z * (1 - z)
        y = y0 + (y1 - y0) * (s * z**2 + d0 * z * (1 - z)) / below
        slope = s**2 * (2 * s * z * (1 - z) + d0 * (1 - z) ** 2 + d1 * z**2) / below**2
        return torch.where(inside, y, x), inside * slope.log()

    def inverse(self, y: Tensor, parameters: Tensor) -> Tensor:
        """Return the arguments: roots of quadratic equations."""
        xs, ys, slopes = self._knots(parameters)
        inside, x0, x1, y0, y1, d0, d1 = self._bin(y, ys, xs, ys, slopes)
        s = (y1 - y0) / (x1 - x0)
        offset = inside * (y - y0)
        bend = offset * (d0 + d1 - 2 * s)
        a, b, c = (y1 - y0) * (s - d0) + bend, (y1 - y0) * d0 - bend, -s * offset
        z = 2 * c / (-b - (b**2 - 4 * a * c).sqrt())
        return torch.where(inside, x0 + z * (x1 - x0), y)

    def _knots(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Places, values and slopes at the knots, each ``(..., bins + 1)``."""
        widths, heights, raw = parameters.split([self.bins, self.bins, self.bins - 1], -1)
        steps = (torch.softmax(_softly_bounded(p, LOG_STEEPEST / 2), -1) for p in (widths, heights))
        xs, ys = (self.bound * (2 * F.pad(step, (1, 0)).cumsum(-1) - 1) for step in steps)
        return xs, ys, F.pad(_softly_bounded(raw, LOG_STEEPEST), (1, 1)).exp()

    def _bin(
        self, value: Tensor, edges: Tensor, xs: Tensor, ys: Tensor, slopes: Tensor
    ) -> tuple[Tensor, ...]:
        """Whether a value is in a bin; the bin's two corners and the slopes there."""
        k = (edges < value.unsqueeze(-1)).sum(-1) - 1
        inside = (k >= 0) & (k < self.bins)
        k = (k % self.bins).unsqueeze(-1)
        (x0, x1), (y0, y1), (d0, d1) = (
            (knots.gather(-1, k).squeeze(-1), knots.gather(-1, k + 1).squeeze(-1))
            for knots in (xs, ys, slopes)
        )
        return inside, x0, x1, y0, y1, d0, d1


def _softly_bounded(raw: Tensor, bound: float) -> Tensor:
    """Bring any number into ``(-bound, bound)``, small ones as they are."""
    return raw / (1 + (raw / bound).abs())


class Layer(nn.Module, ABC):
    """A trainable invertible map of vectors; a context may change it."""

    @abstractmethod
    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map ``x``, ``(..., dim)``, and return the log-determinant, ``(...)``, too."""

    @abstractmethod
    def inverse(self, y: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the ``x`` that is mapped to ``y``."""


class AutoregressiveLayer(Layer):
    r"""Map :math:`y_d = f(x_d; h_d(x_{<d}, c))`: one pass forwards, ``dim`` passes back."""

    def __init__(self, network: MaskedNetwork, univariate: Univariate) -> None:
        super().__init__()
        self.network, self.univariate = network, univariate

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map in one pass."""
        y, log_slopes = self.univariate.forward(x, self.network(x, context))
        return y, log_slopes.sum(-1)

    def inverse(self, y: Tensor, context: Tensor | None = None) -> Tensor:
        """Find one more dimension in each pass."""
        x = torch.zeros_like(y)
        for _ in range(self.network.dim):
            x = self.univariate.inverse(y, self.network(x, context))
        return x


class CouplingLayer(Layer):
    r"""Map :math:`y_b = f(x_b; h(x_a))` and keep :math:`x_a`: one pass each way."""

    kept: Tensor

    def __init__(
        self, kept: Tensor, univariate: Univariate, *, hidden: int, blocks: int, dropout: float
    ) -> None:
        super().__init__()
        self.univariate = univariate
        self.register_buffer("kept", kept)
        self.moved = int((~kept).sum())
        # One constant input more, so that nothing kept (one dimension) is a case like any other.
        self.network = ResidualNetwork(
            int(kept.sum()) + 1,
            self.moved * univariate.size,
            hidden=hidden,
            blocks=blocks,
            dropout=dropout,
        )
        nn.init.zeros_(self.network.output.weight)
        nn.init.zeros_(self.network.output.bias)

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map in one pass."""
        moved, log_slopes = self.univariate.forward(x[..., ~self.kept], self._conditional(x))
        return self._with_moved(x, moved), log_slopes.sum(-1)

    def inverse(self, y: Tensor, context: Tensor | None = None) -> Tensor:
        """Map back in one pass."""
        moved = self.univariate.inverse(y[..., ~self.kept], self._conditional(y))
        return self._with_moved(y, moved)

    def _conditional(self, x: Tensor) -> Tensor:
        parameters = self.network(F.pad(x[..., self.kept], (0, 1), value=1.0))
        return parameters.unflatten(-1, (self.moved, self.univariate.size))

    def _with_moved(self, x: Tensor, moved: Tensor) -> Tensor:
        y = x.clone()
        y[..., ~self.kept] = moved
        return y


class LULayer(Layer):
    r"""Map :math:`y = L U P x + b` with unit lower ``L``, upper ``U`` with positive diagonal,
    and a permutation ``P`` drawn once.

    References
    ----------
    Durkan et al. (2019), "Neural Spline Flows", https://arxiv.org/abs/1906.04032
    """

    permutation: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("permutation", torch.randperm(dim))
        self.lower = nn.Parameter(torch.zeros(dim, dim))
        self.upper = nn.Parameter(torch.zeros(dim, dim))
        self.log_diagonal = nn.Parameter(torch.zeros(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map by one product."""
        L, U = self._factors()
        y = F.linear(x[..., self.permutation], L @ U, self.bias)
        return y, self.log_diagonal.sum().expand(x.shape[:-1])

    def inverse(self, y: Tensor, context: Tensor | None = None) -> Tensor:
        """Map back by two substitutions."""
        L, U = self._factors()
        columns = (y - self.bias).reshape(-1, len(self.bias)).mT
        columns = torch.linalg.solve_triangular(L, columns, upper=False, unitriangular=True)
        columns = torch.linalg.solve_triangular(U, columns, upper=True)
        return columns.mT.reshape(y.shape)[..., self.permutation.argsort()]

    def _factors(self) -> tuple[Tensor, Tensor]:
        eye = torch.eye(len(self.bias), dtype=self.bias.dtype, device=self.bias.device)
        return self.lower.tril(-1) + eye, self.upper.triu(1) + torch.diag(self.log_diagonal.exp())


class Composition(nn.ModuleList):
    """Layers, one after another."""

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map ``x``, and return the log-determinant of the whole map too."""
        total = x.new_zeros(())
        for layer in self:
            x, log_det = layer(x, context)
            total = total + log_det
        return x, total

    def inverse(self, y: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the ``x`` that is mapped to ``y``."""
        for layer in reversed(self):
            y = cast(Layer, layer).inverse(y, context)
        return y

    def inverse_with_log_det(
        self, y: Tensor, context: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return ``x`` and the log-determinant of the way back, at one pass more per layer."""
        total = y.new_zeros(())
        for layer in reversed(self):
            y = cast(Layer, layer).inverse(y, context)
            total = total - layer(y, context)[1]
        return y, total
