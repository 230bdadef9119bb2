"""Reductions: facts besides a plain measurement, each with a way there and a way back."""

from deconflow.reductions.base import Learned, PlainFit, Reduction
from deconflow.reductions.curves import Curves, CurvesFound, encoded
from deconflow.reductions.known import Known, within
from deconflow.reductions.learn_errors import ErrorsFound, LearnErrors
from deconflow.reductions.mirrors import Folding, Mirrors
from deconflow.reductions.parts import Parts, PartsFound
from deconflow.reductions.unseen import SelectionFound, Unseen
from deconflow.reductions.unseen_rows import SeenShare, completed_by

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
    "SeenShare",
    "SelectionFound",
    "Unseen",
    "completed_by",
    "encoded",
    "within",
]
