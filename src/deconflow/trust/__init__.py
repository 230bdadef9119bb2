"""How far an answer can be trusted: checks of the model, the noise and the rows."""

from deconflow.trust.check import Case
from deconflow.trust.checks import CHECKS, find_doubts
from deconflow.trust.table import predictive_ranks, simulate_like

__all__ = [
    "CHECKS",
    "Case",
    "find_doubts",
    "predictive_ranks",
    "simulate_like",
]
