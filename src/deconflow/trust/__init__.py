"""How far an answer can be trusted: checks of the model, the noise and the rows."""

from deconflow.trust.doubts import find_doubts
from deconflow.trust.row_tests import coverage

__all__ = ["coverage", "find_doubts"]
