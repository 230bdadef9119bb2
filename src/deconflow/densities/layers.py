r"""Masked networks, whose outputs for dimension ``d`` see only the dimensions before it, and
invertible layers over zuko's transforms; the only module that imports zuko.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import AffineTransform, Distribution, Transform, constraints

from deconflow.randomness import own_generator
from deconflow.torch_modes import lend_generator

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

#: Outputs start small, as a share of what a linear layer has by default, so that flows start near
#: the identity. Not at zero: layers that all start alike may stay alike, at a poor fit.
START = 0.3


class Dropout(nn.Module):
    """Dropout from random bytes: eight decisions for each number that is drawn.

    torch draws one float for every element, which on a CPU costs more than the matrix product
    beside it. A byte decides with a probability rounded to 1/256, and the kept values are
    divided by exactly that probability, so the mean is kept.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.level = min(255, round(256 * p))

    def forward(self, x: Tensor) -> Tensor:
        """Drop values while training."""
        if not self.training or self.level == 0:
            return x
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64, device=x.device)
        words.random_(torch.iinfo(torch.int64).min, None, generator=own_generator(x.device))
        numbers = words.view(torch.uint8)[: x.numel()].view(x.shape)
        # Compared as floats, in place: comparing bytes and converting the answers takes far longer.
        return x * numbers.to(x.dtype).ge_(self.level).mul_(256 / (256 - self.level))


class MaskedLinear(nn.Linear):
    """A linear layer some of whose weights are fixed at zero."""

    mask: Tensor

    def __init__(self, from_degrees: Tensor, to_degrees: Tensor) -> None:
        super().__init__(len(from_degrees), len(to_degrees))
        mask = to_degrees.unsqueeze(-1) >= from_degrees
        self.dense = bool(mask.all())
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the weights, with exact zeros where the mask says so."""
        weight = self.weight if self.dense else self.weight * self.mask
        return F.linear(x, weight, self.bias)


class ResidualBlock(nn.Module):
    r"""Pre-activation residual block :math:`h + W_2 r(W_1 r(h) + b_1 + C c)` with ReLU :math:`r`.

    The last term lets a context ``c`` in. With equal degrees for all hidden layers the addition
    keeps the mask (ResMADE).

    References
    ----------
    He et al. (2016), https://arxiv.org/abs/1603.05027;
    Nash and Durkan (2019), https://arxiv.org/abs/1904.05626
    """

    def __init__(self, degrees: Tensor, context_dim: int, dropout: float) -> None:
        super().__init__()
        self.first = MaskedLinear(degrees, degrees)
        self.second = MaskedLinear(degrees, degrees)
        self.context = nn.Linear(context_dim, len(degrees), bias=False) if context_dim else None
        self.dropout = Dropout(dropout)

    def forward(self, h: Tensor, context: Tensor | None) -> Tensor:
        """Add the block's answer to ``h``."""
        inner = self.first(F.relu(h))
        if self.context is not None:
            inner = inner + self.context(context)
        return h + self.second(self.dropout(F.relu(inner)))


class DenseBlock(nn.Module):
    """A plain hidden layer, as in MADE (Germain et al. 2015, https://arxiv.org/abs/1502.03509)."""

    def __init__(self, degrees: Tensor, context_dim: int, dropout: float) -> None:
        super().__init__()
        self.linear = MaskedLinear(degrees, degrees)
        self.dropout = Dropout(dropout)

    def forward(self, h: Tensor, context: Tensor | None) -> Tensor:
        """Activate, then mix."""
        return self.linear(self.dropout(F.relu(h)))


class MaskedNetwork(nn.Module):
    """An autoregressive network with ``outputs`` numbers for each of ``dim`` dimensions.

    Parameters
    ----------
    dim
        Number of dimensions.
    outputs
        How many numbers each dimension gets.
    hidden
        Width of the hidden layers.
    blocks
        Number of hidden blocks.
    residual
        Residual blocks (ResMADE), or plain layers (MADE).
    context_dim
        Size of a context that every output sees; 0 for none.
    dropout
        Probability of dropout inside the blocks.
    order
        ``(dim,)``: the place of each dimension in the order; natural if None.
    """

    places: Tensor

    @lend_generator()
    def __init__(
        self,
        dim: int,
        outputs: int,
        *,
        hidden: int,
        blocks: int,
        residual: bool,
        context_dim: int = 0,
        dropout: float = 0.0,
        order: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.outputs = dim, outputs
        places = torch.arange(dim) if order is None else order
        self.register_buffer("places", places)
        # Degrees spread over hidden units: one of degree d sees the first d dimensions. Degree 0
        # sees the context only. Without one it would be a constant, so it is left out.
        lowest = 0 if context_dim > 0 or dim == 1 else 1
        degrees = torch.arange(hidden) % max(dim - lowest, 1) + lowest
        make = ResidualBlock if residual else DenseBlock
        self.input = MaskedLinear(places + 1, degrees)
        self.context = nn.Linear(context_dim, hidden, bias=False) if context_dim else None
        self.blocks = nn.ModuleList(make(degrees, context_dim, dropout) for _ in range(blocks))
        self.output = MaskedLinear(degrees, places.repeat_interleave(outputs))
        nn.init.zeros_(self.output.bias)
        with torch.no_grad():
            self.output.weight.mul_(START)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Map ``(..., dim)`` and a context ``(..., context_dim)`` to ``(..., dim, outputs)``."""
        h = self.input(x)
        if self.context is not None:
            h = h + self.context(context)
        for block in self.blocks:
            h = block(h, context)
        return self.output(F.relu(h)).unflatten(-1, (self.dim, self.outputs))


class ResidualNetwork(nn.Module):
    """A residual network without masks, from features to an embedding."""

    @lend_generator()
    def __init__(
        self, inputs: int, outputs: int, *, hidden: int, blocks: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        degrees = torch.zeros(hidden)
        self.input = nn.Linear(inputs, hidden)
        self.blocks = nn.ModuleList(ResidualBlock(degrees, 0, dropout) for _ in range(blocks))
        self.output = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., inputs)`` to ``(..., outputs)``."""
        h = self.input(x)
        for block in self.blocks:
            h = block(h, None)
        return self.output(F.relu(h))


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


def as_arrays(module: nn.Module) -> dict[str, Any]:
    """Return the weights of a module as arrays of numpy."""
    return {name: each.detach().cpu().numpy() for name, each in module.state_dict().items()}


def load_arrays(module: nn.Module, arrays: Mapping[str, Any]) -> None:
    """Put in the weights that :func:`as_arrays` gave."""
    module.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})
