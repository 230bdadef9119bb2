"""Processes that work on one fit together, by torch.distributed.

``torchrun`` starts the processes, and numbers them: each is a rank. Without an initialised group
there is one rank, and every function here does nothing, so that callers are written once.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np

from deconflow._types import Array

T = TypeVar("T")
Item = TypeVar("Item")
#: How long a rank waits for the others: as long as a pass over its rows may take them.
PATIENCE = timedelta(minutes=30)

_alone: ContextVar[bool] = ContextVar("alone", default=False)
_failed_alone: ContextVar[bool] = ContextVar("failed alone", default=False)


class LostRankError(RuntimeError):
    """Another process of the same fit has ended before its work was done."""


def world() -> int:
    """Return how many processes work together."""
    group = sys.modules.get("torch.distributed")  # not imported, it has no group
    if group is None or _alone.get() or not (group.is_available() and group.is_initialized()):
        return 1
    return group.get_world_size()


def rank() -> int:
    """Return the number of this process, from zero."""
    return sys.modules["torch.distributed"].get_rank() if world() > 1 else 0


def is_first() -> bool:
    """Whether this process is the one that writes and speaks."""
    return rank() == 0


@contextmanager
def alone() -> Iterator[None]:
    """Count this process as the only one, for work that it does by itself."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


@contextmanager
def started() -> Iterator[None]:
    """Join the processes that torchrun has started with this one, if it has; and leave them."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    import torch.distributed as group

    group.init_process_group("gloo", timeout=PATIENCE)
    try:
        yield
    finally:
        if group.is_initialized():
            group.destroy_process_group()


def has_failed_alone() -> bool:
    """Whether this process has left the others, because only it has failed: see `own_work`."""
    return _failed_alone.get()


def total(*arrays: Array) -> list[Array]:
    """Return the sums of arrays over all ranks."""
    return [np.sum(each, axis=0) for each in zip(*gathered(arrays), strict=True)]


def add_up(numbers: Any) -> None:
    """Replace a tensor's numbers by their sums over all ranks, in their own precision."""
    if world() > 1:
        _talk("all_reduce", numbers)


def from_first(value: T) -> T:
    """Return the first rank's value, on all of them."""
    return gathered(value)[0]


def gathered(value: T) -> list[T]:
    """Return the values of all ranks, in their order, on all of them."""
    if world() == 1:
        return [value]
    box: list[Any] = [None] * world()
    _talk("all_gather_object", box, value)
    return box


def together(work: Callable[[], T]) -> T:
    """Return what a function answers here; what it raises on one rank, it raises on all."""
    answer: Any = None
    error: Exception | None = None
    try:
        answer = work()
    except Exception as found:
        error = found
    errors = [each for each in gathered(error) if each is not None]
    if errors:
        raise error or errors[0]
    return answer


def spread(work: Callable[[list[Item]], list[T]], items: list[Item]) -> list[T]:
    """Let each rank work on some of the items by itself; return the answers to all of them."""
    if world() == 1:
        return work(items)
    count, mine = world(), items[rank() :: world()]
    answers = gathered(together(lambda: alone()(work)(mine)))
    return [answers[i % count][i // count] for i in range(len(items))]


@contextmanager
def own_work() -> Iterator[None]:
    """End the group if this rank alone fails in the block, so that the others do not wait for it.

    Its ranks are no longer at the same place, so it would be of no use.
    """
    try:
        yield
    except BaseException:
        if world() > 1:
            _failed_alone.set(True)
            sys.modules["torch.distributed"].destroy_process_group()  # others see it closed
        raise


def _talk(function: str, *arguments: Any) -> None:
    """Exchange values; say in one line that a process is gone, where gloo speaks of sockets."""
    try:
        getattr(sys.modules["torch.distributed"], function)(*arguments)
    except RuntimeError as error:
        raise LostRankError(
            f"Expected all {world()} processes to go on; got no answer from one, which has failed "
            "or was killed. Look at what it said, and give the same command again."
        ) from error
