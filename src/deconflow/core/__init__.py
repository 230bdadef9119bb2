"""The core: the door for rows, the refusal of combinations, and settings of a run."""

from deconflow.core.beyond import sampled
from deconflow.core.combinations import EVERYTHING, refuse, refuse_other_traits
from deconflow.core.door import has_noise, observe
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
