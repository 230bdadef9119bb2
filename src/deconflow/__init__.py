"""deconflow: the density of the truth, from measurements with known noise."""

__version__ = "0.1.0"

from deconflow import noise
from deconflow.estimators import (
    XDGMM,
    Deconvolver,
    FlowDeconvolver,
    PosteriorSamples,
    UntrustedFitWarning,
)
from deconflow.observations import Observations

__all__ = [
    "XDGMM",
    "Deconvolver",
    "FlowDeconvolver",
    "Observations",
    "PosteriorSamples",
    "UntrustedFitWarning",
    "__version__",
    "noise",
]
