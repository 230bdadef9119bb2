"""How far an answer can be trusted: checks of the model, the noise and the rows."""

from deconflow.trust.case import Case
from deconflow.trust.check import FEWEST_ROWS
from deconflow.trust.doubts import CHECKS, find_doubts, worded
from deconflow.trust.predictive import predictive_ranks, simulate_like

__all__ = [
    "CHECKS",
    "FEWEST_ROWS",
    "Case",
    "find_doubts",
    "predictive_ranks",
    "simulate_like",
    "worded",
]
