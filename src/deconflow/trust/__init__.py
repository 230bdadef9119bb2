"""How far an answer can be trusted: checks of the model, the noise and the rows."""

from deconflow.trust.check import Case
from deconflow.trust.doubts import CHECKS, find_doubts, worded
from deconflow.trust.lens import Rows, view
from deconflow.trust.table import predictive_ranks, simulate_like

__all__ = [
    "CHECKS",
    "Case",
    "Rows",
    "find_doubts",
    "predictive_ranks",
    "simulate_like",
    "view",
    "worded",
]
