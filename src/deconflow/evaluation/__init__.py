"""How good a fitted density is, and how far to trust it."""

from typing import TYPE_CHECKING

from deconflow.evaluation.estimate import FEWEST_POINTS, Estimate
from deconflow.evaluation.p_values import PValueCounts, UnusualRows, row_p_values, unusual_rows
from deconflow.extras import of_flows

if TYPE_CHECKING:
    from deconflow.evaluation.draws import certify, estimate_log_likelihood, pareto_k

__all__ = [
    "FEWEST_POINTS",
    "Estimate",
    "PValueCounts",
    "UnusualRows",
    "certify",
    "estimate_log_likelihood",
    "pareto_k",
    "row_p_values",
    "unusual_rows",
]

__getattr__ = of_flows(
    __name__, dict.fromkeys(("certify", "estimate_log_likelihood", "pareto_k"), "draws")
)
