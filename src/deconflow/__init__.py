"""deconflow: the density of the truth, from measurements with known noise."""

__version__ = "0.1.0"

from deconflow import noise
from deconflow.estimators import (
    XDGMM,
    DeconvolvingKDE,
    FlowDeconvolver,
    PosteriorSamples,
    WaveletDeconvolver,
)
from deconflow.observations import Observations

__all__ = [
    "XDGMM",
    "DeconvolvingKDE",
    "FlowDeconvolver",
    "Observations",
    "PosteriorSamples",
    "WaveletDeconvolver",
    "__version__",
    "noise",
]
