"""Processes that work on one fit: those of torch.distributed's group, or this one alone.

With no group that is initialised, everything here is a world of one, by the same code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

Answer = TypeVar("Answer")
Item = TypeVar("Item")
_alone: ContextVar[bool] = ContextVar("alone", default=False)


class LostProcessError(RuntimeError):
    """Another process of the group has died, or does not answer."""


def world() -> int:
    """Return how many processes work together."""
    return dist.get_world_size() if _together() else 1


def rank() -> int:
    """Return the number of this process, from zero."""
    return dist.get_rank() if _together() else 0


def is_first() -> bool:
    """Whether this is the process that writes files and shows progress."""
    return rank() == 0


def total(*arrays: Any) -> list[Any]:
    """Sum arrays or numbers over the processes, in double precision."""
    numbers = [np.asarray(array, dtype=np.float64) for array in arrays]
    if world() == 1:
        return numbers
    flat = torch.from_numpy(np.concatenate([each.ravel() for each in numbers]))
    add_up(flat)
    parts = np.split(flat.numpy(), np.cumsum([each.size for each in numbers])[:-1])
    return [part.reshape(each.shape) for part, each in zip(parts, numbers, strict=True)]


def add_up(flat: Tensor) -> None:
    """Replace a tensor by its sum over the processes, in its own precision."""
    if world() > 1:
        with _answered():
            dist.all_reduce(flat)


def from_first(value: Any) -> Any:
    """Return the first process's object on all of them."""
    if world() == 1:
        return value
    box = [value]
    with _answered():
        dist.broadcast_object_list(box)
    return box[0]


def gathered(value: Any) -> list[Any]:
    """Return the objects of all processes, in their order, on all of them."""
    if world() == 1:
        return [value]
    found: list[Any] = [None] * world()
    with _answered():
        dist.all_gather_object(found, value)
    return found


def together(work: Callable[[], Answer]) -> Answer:
    """Call a function on every process; what it raises on one of them, it raises on all."""
    answer: Any = None
    try:
        answer, error = work(), None
    except Exception as found:
        error = found
    errors = [each for each in gathered(error) if each is not None]
    if errors:
        raise errors[0] if error is None else error
    return answer


def spread(work: Callable[[list[Item]], list[Answer]], items: list[Item]) -> list[Answer]:
    """Let each process work on some of the items by itself; return the answers to all of them."""
    count, first = world(), rank()

    def here() -> list[Answer]:
        with alone():
            return work(items[first::count])

    answers = gathered(together(here))
    return [answers[i % count][i // count] for i in range(len(items))]


@contextmanager
def own_work() -> Iterator[None]:
    """If this process fails in the block, let the others know rather than wait for it.

    The group ends then: its processes are no longer at the same place.
    """
    try:
        yield
    except BaseException:
        if world() > 1:
            dist.destroy_process_group()  # the others see closed connections
        raise


@contextmanager
def alone() -> Iterator[None]:
    """Let this process count as a world of one inside the block."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


@contextmanager
def started() -> Iterator[None]:
    """Join the group of torchrun, if this process was started by it."""
    if dist.is_initialized() or "TORCHELASTIC_RUN_ID" not in os.environ:
        yield
        return
    dist.init_process_group("gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def _together() -> bool:
    return dist.is_available() and dist.is_initialized() and not _alone.get()


@contextmanager
def _answered() -> Iterator[None]:
    """Say in one line what a closed connection means."""
    try:
        yield
    except RuntimeError as error:
        raise LostProcessError(
            f"Expected all {world()} processes to reach the end of the step; got no answer from "
            "one of them, which has died or failed. Start the same command again with --resume."
        ) from error
