"""Engines: ways to fit plain observations; each says which facts it takes."""

from deconflow.engines.auto import Auto
from deconflow.engines.bayes import Bayes
from deconflow.engines.checks import check_resumable
from deconflow.engines.flow import OBJECTIVES, Flow
from deconflow.engines.grids import MOST_INTERVALS, Kernels, LogSplines, Wavelets
from deconflow.engines.xd import XD, check_settings

__all__ = [
    "MOST_INTERVALS",
    "OBJECTIVES",
    "XD",
    "Auto",
    "Bayes",
    "Flow",
    "Kernels",
    "LogSplines",
    "Wavelets",
    "check_resumable",
    "check_settings",
]
