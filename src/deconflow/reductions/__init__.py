"""Reductions: facts besides a plain measurement, each with a way there and a way back."""

from deconflow.reductions.base import Known, Learned, PlainFit, Reduction, within
from deconflow.reductions.curves import Curves, CurvesFound, encoded
from deconflow.reductions.learn_errors import ErrorsFound, LearnErrors
from deconflow.reductions.mirrors import Folding, Mirrors
from deconflow.reductions.parts import Parts, PartsFound
from deconflow.reductions.unseen import SelectionFound, Unseen, completed_by

#: In this order; errors are learned before them all.
REDUCTIONS = (Unseen, Parts, Curves, Mirrors)

__all__ = [
    "REDUCTIONS",
    "Curves",
    "CurvesFound",
    "ErrorsFound",
    "Folding",
    "Known",
    "LearnErrors",
    "Learned",
    "Mirrors",
    "Parts",
    "PartsFound",
    "PlainFit",
    "Reduction",
    "SelectionFound",
    "Unseen",
    "completed_by",
    "encoded",
    "within",
]
