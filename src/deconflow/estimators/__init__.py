"""Estimators in scikit-learn's shape."""

from deconflow.estimators.flow import FlowDeconvolver
from deconflow.estimators.results import PosteriorSamples

__all__ = ["FlowDeconvolver", "PosteriorSamples"]
