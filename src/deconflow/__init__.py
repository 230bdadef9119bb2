"""deconflow: the density of the truth, from measurements with known noise."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

__version__ = "0.1.0"

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


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is first asked for: torch takes seconds."""
    if name == "noise":
        return import_module("deconflow.noise")
    if name == "Observations":
        return import_module("deconflow.observations").Observations
    if name in __all__:
        return getattr(import_module("deconflow.estimators"), name)
    raise AttributeError(f"module 'deconflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
