"""The core: the door for rows, the refusal of combinations, and settings of a run."""

from deconflow.core.door import (
    EVERYTHING,
    has_noise,
    observe,
    refuse,
    refuse_other_traits,
    sampled,
)
from deconflow.core.run import Run, progress_of, shown_by

__all__ = [
    "EVERYTHING",
    "Run",
    "has_noise",
    "observe",
    "progress_of",
    "refuse",
    "refuse_other_traits",
    "sampled",
    "shown_by",
]
