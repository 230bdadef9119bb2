"""How good a fitted density is, and how far to trust it."""

from deconflow.evaluation.certify import certify
from deconflow.evaluation.likelihood import FEWEST_POINTS, Estimate, estimate_log_likelihood
from deconflow.evaluation.pareto import pareto_k
from deconflow.evaluation.row_p_values import row_p_values
from deconflow.evaluation.unusual import PValueCounts, UnusualRows, unusual_rows

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
