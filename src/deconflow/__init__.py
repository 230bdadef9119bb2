"""deconflow: the density of the truth, from measurements with known noise."""

__version__ = "0.1.0"

from deconflow import noise
from deconflow.estimators import (
    XDGMM,
    Deconvolver,
    DeconvolvingKDE,
    FlowDeconvolver,
    PosteriorSamples,
    UntrustedFitWarning,
    WaveletDeconvolver,
)
from deconflow.observations import Observations

__all__ = [
    "XDGMM",
    "Deconvolver",
    "DeconvolvingKDE",
    "FlowDeconvolver",
    "Observations",
    "PosteriorSamples",
    "UntrustedFitWarning",
    "WaveletDeconvolver",
    "__version__",
    "noise",
]
