"""Reductions: facts besides a plain measurement, each with a way there and a way back."""

from deconflow.reductions.changed_rows import (
    Curves,
    CurvesFound,
    ErrorsFound,
    Folding,
    Known,
    Learned,
    LearnErrors,
    Mirrors,
    Parts,
    PartsFound,
    PlainFit,
    SelectionFound,
    Unseen,
    completed_by,
    encoded,
    within,
)

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
    "SelectionFound",
    "Unseen",
    "completed_by",
    "encoded",
    "within",
]
