"""Estimators: the library's fronts, in scikit-learn's shape."""

from deconflow.estimators.deconvolver import Deconvolver, UntrustedFitWarning
from deconflow.estimators.density_queries import OutOfReachError
from deconflow.estimators.flow import FlowDeconvolver
from deconflow.estimators.kde import DeconvolvingKDE
from deconflow.estimators.results import PosteriorSamples
from deconflow.estimators.wavelet import WaveletDeconvolver
from deconflow.estimators.xd import XDGMM

__all__ = [
    "XDGMM",
    "Deconvolver",
    "DeconvolvingKDE",
    "FlowDeconvolver",
    "OutOfReachError",
    "PosteriorSamples",
    "UntrustedFitWarning",
    "WaveletDeconvolver",
]
