"""Randomness that comes from ``random_state`` alone: the generators of the process stay untouched.

torch has one generator for the whole process, which other threads draw from at the same time. So a
call draws from generators of its own, which :func:`own_generator` hands to every draw of ours, and
:func:`lend_generator` to the draws of others that name none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

RandomState = int | np.random.RandomState | None
Device = torch.device | str

TAKE_A_GENERATOR: frozenset[Callable[..., Any]] = frozenset({
    torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal, torch.bernoulli,
    torch.multinomial, torch.poisson, torch.binomial, torch._standard_gamma,
    torch._sample_dirichlet, Tensor.normal_, Tensor.uniform_, Tensor.random_, Tensor.bernoulli_,
    Tensor.exponential_, Tensor.cauchy_, Tensor.geometric_, Tensor.log_normal_, Tensor.bernoulli,
    Tensor.multinomial, nn.init.uniform_, nn.init.normal_, nn.init.kaiming_uniform_,
})  # fmt: skip
FILL_LIKE: dict[Any, Callable[..., Any]] = {
    torch.rand_like: Tensor.uniform_,
    torch.randn_like: Tensor.normal_,
    torch.randint_like: Tensor.random_,
}
"""These take no generator before torch 2.10, but what fills an empty tensor does."""


class Draws:
    """The random numbers of one call: a generator for each device, all from one seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    @classmethod
    def of(cls, random_state: RandomState) -> Draws:
        """Take a seed from what scikit-learn calls a random state."""
        return cls(int(check_random_state(random_state).randint(np.iinfo(np.int32).max)))

    def generator(self, device: Device) -> torch.Generator:
        """Return the generator of a device."""
        device = torch.device(device)
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]

    @contextmanager
    def in_use(self) -> Iterator[Draws]:
        """Let everything in the block draw from here, in this thread."""
        token = _in_use.set(self)
        try:
            yield self
        finally:
            _in_use.reset(token)

    def copy(self) -> Draws:
        """Return draws that will be the same as those to come."""
        copied = Draws(self._seed)
        for device, generator in self._generators.items():
            copied.generator(device).set_state(generator.get_state())
        return copied


_in_use: ContextVar[Draws | None] = ContextVar("draws in use", default=None)


def isolated_rng(random_state: RandomState) -> AbstractContextManager[Draws]:
    """Draw from ``random_state`` alone inside the block, and leave no trace outside.

    Parameters
    ----------
    random_state
        As everywhere in scikit-learn: an integer, a ``RandomState``, or None.
    """
    return Draws.of(random_state).in_use()


def draws_in_use() -> AbstractContextManager[Draws]:
    """Return the draws in use; outside every call, new ones, seeded by torch's own generator."""
    draws = _in_use.get()
    if draws is not None:
        return nullcontext(draws)
    return Draws(int(torch.randint(2**63 - 1, (), device="cpu"))).in_use()


def own_generator(device: Device = "cpu") -> torch.Generator | None:
    """Return the generator to draw with; None, which is torch's own, outside every call."""
    draws = _in_use.get()
    return None if draws is None else draws.generator(device)


def drawn_again() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Make contexts in which the second draws what the first drew, in whatever thread."""
    draws = _in_use.get()
    return nullcontext(), nullcontext() if draws is None else draws.copy().in_use()


class _LendGenerator(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in FILL_LIKE:
            made = torch.empty_like(args[0], **kwargs)
            return FILL_LIKE[func](made, *args[1:], generator=own_generator(made.device))
        if func in TAKE_A_GENERATOR and kwargs.get("generator") is None:
            like = next((a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)), None)
            device = kwargs.get("device") or ("cpu" if like is None else like.device)
            kwargs["generator"] = own_generator(device)
        return func(*args, **kwargs)


@contextmanager
def lend_generator() -> Iterator[None]:
    """Let code that names no generator draw with our own: layers of torch, laws of users.

    It costs a little for every call of torch in the block, and nothing outside.
    """
    with nullcontext() if _in_use.get() is None else _LendGenerator():
        yield
