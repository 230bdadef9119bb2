"""Estimators: the library's fronts, in scikit-learn's shape."""

from deconflow.estimators.deconvolver import Deconvolver, UntrustedFitWarning
from deconflow.estimators.flow import FlowDeconvolver
from deconflow.estimators.results import PosteriorSamples
from deconflow.estimators.xd import XDGMM

__all__ = ["XDGMM", "Deconvolver", "FlowDeconvolver", "PosteriorSamples", "UntrustedFitWarning"]
