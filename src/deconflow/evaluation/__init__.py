"""How good a fitted density is, and how far to trust it."""

from typing import TYPE_CHECKING

from deconflow.evaluation.estimate import FEWEST_POINTS, Estimate
from deconflow.evaluation.row_p_values import row_p_values
from deconflow.evaluation.unusual import PValueCounts, UnusualRows, unusual_rows
from deconflow.extras import of_flows

if TYPE_CHECKING:
    from deconflow.evaluation.likelihood import estimate_log_likelihood
    from deconflow.evaluation.own_draws import certify
    from deconflow.evaluation.pareto import pareto_k

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
    __name__,
    {"certify": "own_draws", "estimate_log_likelihood": "likelihood", "pareto_k": "pareto"},
)
