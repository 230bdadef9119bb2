"""Estimators in scikit-learn's shape."""

from deconflow.estimators.flow import FlowDeconvolver
from deconflow.estimators.results import PosteriorSamples
from deconflow.estimators.xd import XDGMM

__all__ = ["XDGMM", "FlowDeconvolver", "PosteriorSamples"]
