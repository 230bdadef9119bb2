r"""Invertible layers, over zuko's transforms; the only module that imports zuko."""

import math
from collections.abc import Iterable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import AffineTransform, Distribution, Transform, constraints

from deconflow.densities.networks import MaskedNetwork, ResidualNetwork
from deconflow.randomness import own_generator

# An import of zuko changes torch for every distribution of the process. That is undone, but for
# zuko's own distributions, some of which warn or fail otherwise, and for the added method
# Transform.call_and_ladj, which zuko's transforms call.
_as_it_was = Distribution._validate_args, Distribution.arg_constraints

from zuko.transforms import (  # noqa: E402
    AutoregressiveTransform,
    ComposedTransform,
    CouplingTransform,
    DependentTransform,
    MonotonicRQSTransform,
)

for _own in Distribution.__subclasses__():
    if _own.__module__.startswith("zuko."):
        _own._validate_args = False
        _own.arg_constraints = vars(_own).get("arg_constraints", {})  # type: ignore[method-assign]
Distribution._validate_args, Distribution.arg_constraints = _as_it_was  # type: ignore[method-assign]

SMALLEST_SCALE = 1e-3
#: Added to the parameter of a scale, so that zero gives a scale of one.
RAW_SCALE_OF_ONE = math.log(math.expm1(1 - SMALLEST_SCALE))


class Affine(nn.Module):
    r"""Increasing lines :math:`x \mapsto s x + t` with :math:`s = \mathrm{softplus}(a + c) + s_0`.

    A step of ``a`` multiplies a small scale but only adds to a large one: with exponential scales,
    flows whose layers have an unlucky order may stay at a poor fit.
    """

    size = 2

    def forward(self, parameters: Tensor) -> Transform:
        """Make the lines from ``(..., dim, 2)`` parameters; zeros make the identity."""
        shift, raw = parameters.unbind(-1)
        scale = F.softplus(raw + RAW_SCALE_OF_ONE) + SMALLEST_SCALE
        return DependentTransform(AffineTransform(shift, scale), 1)


class Spline(nn.Module):
    """Increasing rational-quadratic splines inside a box, and the identity outside."""

    bins, bound = 8, 6.0
    size = 3 * bins - 1

    def forward(self, parameters: Tensor) -> Transform:
        """Make the functions from ``(..., dim, size)`` parameters; zeros make the identity."""
        parts = parameters.split([self.bins, self.bins, self.bins - 1], -1)
        return DependentTransform(MonotonicRQSTransform(*parts, bound=self.bound), 1)


#: A family of increasing functions of one variable, with ``size`` parameters each.
Univariate = Affine | Spline


class AutoregressiveLayer(nn.Module):
    r"""Map :math:`y_d = f(x_d; h_d(x_{<d}, c))`: one pass forwards, ``dim`` passes back."""

    def __init__(self, network: MaskedNetwork, univariate: Univariate) -> None:
        super().__init__()
        self.network, self.univariate = network, univariate

    def transform(self, context: Tensor | None = None) -> Transform:
        """Return the map for a context."""
        return AutoregressiveTransform(
            lambda x: self.univariate(self.network(x, context)), passes=self.network.dim
        )


class CouplingLayer(nn.Module):
    r"""Map :math:`y_b = f(x_b; h(x_a, c))` and keep :math:`x_a`: one pass each way."""

    kept: Tensor

    def __init__(
        self, kept: Tensor, univariate: Univariate, hidden: int, blocks: int, dropout: float
    ) -> None:
        super().__init__()
        self.univariate = univariate
        self.register_buffer("kept", kept.clone())  # a tensor of its own, as files need
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

    def transform(self, context: Tensor | None = None) -> Transform:
        """Return the map for a context."""
        return CouplingTransform(self._conditional, self.kept)

    def _conditional(self, kept: Tensor) -> Transform:
        parameters = self.network(F.pad(kept, (0, 1), value=1.0))
        return self.univariate(parameters.unflatten(-1, (self.moved, self.univariate.size)))


class LULayer(nn.Module):
    r"""Map :math:`y = L U P x + b` with unit lower ``L``, upper ``U`` with positive diagonal,
    and a permutation ``P`` drawn once.

    Parameters
    ----------
    dim
        Number of dimensions.
    mixing
        About how much of the other dimensions each has at the start: the off-diagonal entries of
        ``L`` and ``U`` start with a standard deviation of ``mixing / sqrt(dim)``. With 0 the map
        starts as a permutation.

    References
    ----------
    Durkan et al. (2019), "Neural Spline Flows", https://arxiv.org/abs/1906.04032
    """

    permutation: Tensor

    def __init__(self, dim: int, mixing: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("permutation", torch.randperm(dim, generator=own_generator()))
        self.lower = nn.Parameter(torch.zeros(dim, dim))
        self.upper = nn.Parameter(torch.zeros(dim, dim))
        if mixing:
            for entries in (self.lower, self.upper):
                nn.init.normal_(entries, std=mixing / math.sqrt(dim), generator=own_generator())
        self.log_diagonal = nn.Parameter(torch.zeros(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def transform(self, context: Tensor | None = None) -> Transform:
        """Return the map."""
        eye = torch.eye(len(self.bias), dtype=self.bias.dtype, device=self.bias.device)
        L = self.lower.tril(-1) + eye
        U = self.upper.triu(1) + torch.diag(self.log_diagonal.exp())
        return LUTransform(L, U, self.permutation, self.bias, self.log_diagonal.sum())


class LUTransform(Transform):
    r"""The map :math:`y = L U P x + b`."""

    domain = constraints.real_vector
    codomain = constraints.real_vector
    bijective = True

    def __init__(self, L: Tensor, U: Tensor, order: Tensor, bias: Tensor, ladj: Tensor) -> None:
        super().__init__()
        self.L, self.U, self.order, self.bias, self.ladj = L, U, order, bias, ladj

    def _call(self, x: Tensor) -> Tensor:
        return F.linear(x[..., self.order], self.L @ self.U, self.bias)

    def _inverse(self, y: Tensor) -> Tensor:
        columns = (y - self.bias).reshape(-1, len(self.bias)).mT
        columns = torch.linalg.solve_triangular(self.L, columns, upper=False, unitriangular=True)
        columns = torch.linalg.solve_triangular(self.U, columns, upper=True)
        return columns.mT.reshape(y.shape)[..., self.order.argsort()]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Sum of the log diagonal, for every row."""
        return self.ladj.expand(x.shape[:-1])


def compose(layers: Iterable[nn.Module], context: Tensor | None = None) -> ComposedTransform:
    """Chain layers, each a trainable invertible map, into one transform for a context."""
    return ComposedTransform(*(cast(Any, layer).transform(context) for layer in layers))
