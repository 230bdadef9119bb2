"""How good a fitted density is, and how far to trust it."""

from deconflow.evaluation.certificate import Certificate, HeldOut, certify
from deconflow.evaluation.likelihood import Estimate, estimate_log_likelihood
from deconflow.evaluation.pareto import pareto_k

__all__ = ["Certificate", "Estimate", "HeldOut", "certify", "estimate_log_likelihood", "pareto_k"]
