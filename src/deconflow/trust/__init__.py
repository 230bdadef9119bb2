"""How far an answer can be trusted: checks of the model, the noise and the rows."""

from deconflow.trust.doubts import find_doubts

__all__ = ["find_doubts"]
