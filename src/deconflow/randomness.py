"""Randomness that comes from ``random_state`` alone: the generators of the process stay untouched.

A call draws from generators of its own: numpy's by :func:`own_rng`, torch's by
:func:`own_generator`, both from one seed.
"""

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from deconflow.checks import array_namespace, is_torch_array

if TYPE_CHECKING:
    import torch

RandomState = int | np.random.RandomState | None


class Draws:
    """The random numbers of one call: a generator for each device, all from one seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.rng = np.random.default_rng(seed)
        self._generators: dict[torch.device, torch.Generator] = {}

    @classmethod
    def of(cls, random_state: RandomState) -> "Draws":
        """Take a seed from what scikit-learn calls a random state."""
        return cls(int(check_random_state(random_state).randint(np.iinfo(np.int32).max)))

    def generator(self, device: "torch.device | str") -> "torch.Generator":
        """Return torch's generator of a device."""
        import torch

        device = torch.device(device)
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]

    @contextmanager
    def in_use(self) -> "Iterator[Draws]":
        """Let everything in the block draw from here, in this thread."""
        token = _in_use.set(self)
        try:
            yield self
        finally:
            _in_use.reset(token)

    def copy(self) -> "Draws":
        """Return draws that will be the same as those to come."""
        copied = Draws(self._seed)
        copied.rng = copy.deepcopy(self.rng)
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
    import torch

    return Draws(int(torch.randint(2**63 - 1, (), device="cpu"))).in_use()


def own_rng() -> np.random.Generator:
    """Return numpy's generator to draw with; outside every call, one that numpy's own seeds."""
    draws = _in_use.get()
    return (Draws.of(None) if draws is None else draws).rng


def own_generator(device: "torch.device | str" = "cpu") -> "torch.Generator | None":
    """Return torch's generator to draw with; None, which is torch's own, outside every call."""
    draws = _in_use.get()
    return None if draws is None else draws.generator(device)


def normal(shape: tuple[int, ...], like: Any) -> Any:
    """Standard normal numbers in the language, precision and place of an array."""
    if not is_torch_array(like):
        return own_rng().standard_normal(shape)
    return like.new_empty(shape).normal_(generator=own_generator(like.device))


def uniform(shape: tuple[int, ...], like: Any) -> Any:
    """Numbers between 0 and 1 in the language, precision and place of an array."""
    if not is_torch_array(like):
        return own_rng().random(shape)
    return like.new_empty(shape).uniform_(generator=own_generator(like.device))


def permutation(n: int, like: Any) -> Any:
    """Return the numbers below ``n`` in random order, in the language of an array."""
    if not is_torch_array(like):
        return own_rng().permutation(n)
    return array_namespace(like).randperm(n, generator=own_generator())


def drawn_again() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Make contexts in which the second draws what the first drew, in whatever thread."""
    draws = _in_use.get()
    return nullcontext(), nullcontext() if draws is None else draws.copy().in_use()
