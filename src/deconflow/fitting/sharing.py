"""Rows and gradients of several processes that train the same weights."""

from contextlib import AbstractContextManager, nullcontext
from itertools import zip_longest
from typing import TypeVar

import torch
from torch import nn

from deconflow import ranks
from deconflow.objectives import RowData
from deconflow.randomness import Draws, RandomState, own_generator

Rows = TypeVar("Rows", bound=RowData)


def share_of(data: Rows) -> Rows:
    """Take this process's rows of a table that all have, by an order that all draw alike."""
    world = ranks.world()
    if world == 1:
        return data
    order = torch.randperm(len(data), generator=own_generator())
    return data[order[ranks.rank() :: world]]


def common_rng(random_state: RandomState) -> AbstractContextManager[Draws]:
    """Draw from ``random_state`` alone, as the first process has it, inside the block."""
    draws: Draws = ranks.from_first(Draws.of(random_state))
    return draws.in_use()


def own_draws(common: Draws) -> AbstractContextManager[Draws]:
    """Give each process random numbers of its own; those that all have in common stay so."""
    if ranks.world() == 1:
        return nullcontext(common)
    seed = int(torch.randint(2**31, (), generator=common.generator("cpu")))
    return Draws(ranks.from_first(seed) + ranks.rank()).in_use()


def batch_sizes(n_rows: int, batch_size: int) -> tuple[list[int], list[int]]:
    """Return how many rows this process has in each step of an epoch, and how many all have.

    All take the same number of steps, each with a share of every batch that is as large as its
    share of the rows; where these do not divide evenly its last batches are smaller, or empty.
    """
    counts = ranks.gathered(n_rows)
    if min(counts) == 0:
        raise ValueError(
            f"Expected rows to train on in each of {len(counts)} processes; got none in process "
            f"{counts.index(0)}. Start fewer processes."
        )
    sizes = []
    for count in counts:
        size = -(-batch_size * count // sum(counts))
        sizes.append([min(size, count - start) for start in range(0, count, size)])
    steps = list(zip_longest(*sizes, fillvalue=0))
    return [step[ranks.rank()] for step in steps], [sum(step) for step in steps]


def make_alike(model: nn.Module) -> None:
    """Give all processes the first one's weights."""
    if ranks.world() == 1:
        return
    weights = ranks.from_first([weight.detach().cpu() for weight in model.parameters()])
    with torch.no_grad():
        for mine, first in zip(model.parameters(), weights, strict=True):
            mine.copy_(first)


def add_gradients(parameters: list[nn.Parameter], value: float) -> float:
    """Sum gradients and the objective over processes, in one message; return the objective."""
    if ranks.world() == 1:
        return value
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([*(grad.flatten() for grad in grads), grads[0].new_tensor([value])])
    ranks.add_up(flat)
    parts = flat[:-1].split([p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter)
    return float(flat[-1])
