"""The fit loop, its settings and its checkpoints."""

from deconflow.fitting.checkpoint import Checkpoint, UnusableCheckpointError
from deconflow.fitting.loop import NonFiniteError, evaluate, fit
from deconflow.fitting.settings import History, Training
from deconflow.fitting.sharing import common_rng, refuse_different_rows, share_of

__all__ = [
    "Checkpoint",
    "History",
    "NonFiniteError",
    "Training",
    "UnusableCheckpointError",
    "common_rng",
    "evaluate",
    "fit",
    "refuse_different_rows",
    "share_of",
]
