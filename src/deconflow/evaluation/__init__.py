"""How good a fitted density is, and how far to trust it."""

from deconflow.evaluation.certify import HeldOut, certify, of_held_out
from deconflow.evaluation.check import check_fit
from deconflow.evaluation.likelihood import FEWEST_POINTS, Estimate, estimate_log_likelihood
from deconflow.evaluation.pareto import pareto_k
from deconflow.evaluation.predictive import predictive_ranks, rank_gaps, simulate_like
from deconflow.evaluation.sensitivity import Sensitivity, sensitivity

__all__ = [
    "FEWEST_POINTS",
    "Estimate",
    "HeldOut",
    "Sensitivity",
    "certify",
    "check_fit",
    "estimate_log_likelihood",
    "of_held_out",
    "pareto_k",
    "predictive_ranks",
    "rank_gaps",
    "sensitivity",
    "simulate_like",
]
