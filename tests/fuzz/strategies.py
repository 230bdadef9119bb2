"""Calls as strategies of hypothesis: the makers of ``calls``, with hypothesis as their dice."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

from .calls import Call
from .judge import made


def calls_by(make: Callable[[Random], Call]) -> st.SearchStrategy[Call]:
    """Calls of one kind, whose arguments can be made at all."""
    return st.composite(lambda draw: make(Dice(draw)))().filter(made)


class Dice(Random):
    """The throws that the makers use, each a choice that hypothesis knows of."""

    def __init__(self, draw: Callable[[st.SearchStrategy], Any]) -> None:
        super().__init__(0)
        self.draw = draw

    def randrange(self, stop: int) -> int:
        return self.draw(st.integers(0, stop - 1))

    def random(self) -> float:
        return self.draw(st.integers(0, 99)) / 100

    def choice(self, options: Sequence[Any]) -> Any:
        return options[self.randrange(len(options))]

    def sample(self, options: Sequence[Any], count: int) -> list[Any]:
        left = list(options)
        return [left.pop(self.randrange(len(left))) for _ in range(count)]
