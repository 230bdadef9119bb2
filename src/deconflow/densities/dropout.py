"""Dropout at the price of its memory traffic, and how to do without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from deconflow.randomness import own_generator


class Dropout(nn.Module):
    """Dropout from random bytes: eight decisions for each number that is drawn.

    torch draws one float for every element, which on a CPU costs more than the matrix product
    beside it. A byte decides with a probability rounded to 1/256, and the kept values are
    divided by exactly that probability, so the mean is kept.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"Expected a dropout probability in [0, 1); got {p}.")
        self.level = min(255, round(256 * p))

    def forward(self, x: Tensor) -> Tensor:
        """Drop values while training."""
        factors = self.factors(x)
        return x if factors is None else x * factors

    def factors(self, like: Tensor) -> Tensor | None:
        """Draw what to multiply with, or None when nothing is dropped."""
        if not self.training or self.level == 0:
            return None
        words = torch.empty((like.numel() + 7) // 8, dtype=torch.int64, device=like.device)
        words.random_(torch.iinfo(torch.int64).min, None, generator=own_generator(like.device))
        numbers = words.view(torch.uint8)[: like.numel()].view(like.shape)
        # Compared as floats, in place: comparing bytes and converting the answers takes far longer.
        return numbers.to(like.dtype).ge_(self.level).mul_(256 / (256 - self.level))


@contextmanager
def without_dropout(*models: nn.Module) -> Iterator[None]:
    """Turn dropout and gradients off inside the block: what is computed here is a weight."""
    were = [model.training for model in models]
    for model in models:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for model, was in zip(models, were, strict=True):
            model.train(was)
