"""Engines: ways to fit plain observations; each says which facts it takes."""

from deconflow.engines.auto import Auto
from deconflow.engines.bayes import Bayes
from deconflow.engines.flow import OBJECTIVES, Flow
from deconflow.engines.grids import FEWEST_INTERVALS, MOST_INTERVALS, Kernels, LogSplines, Wavelets
from deconflow.engines.shared import Engine
from deconflow.engines.xd import XD, check_settings

__all__ = [
    "FEWEST_INTERVALS",
    "MOST_INTERVALS",
    "OBJECTIVES",
    "XD",
    "Auto",
    "Bayes",
    "Engine",
    "Flow",
    "Kernels",
    "LogSplines",
    "Wavelets",
    "check_settings",
]
