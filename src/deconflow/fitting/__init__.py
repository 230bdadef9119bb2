"""The fit loop, its settings and its checkpoints."""

from typing import TYPE_CHECKING

from deconflow.extras import of_flows
from deconflow.fitting.settings import History, Training

if TYPE_CHECKING:
    from deconflow.fitting.checkpoint import Checkpoint, UnusableCheckpointError
    from deconflow.fitting.loop import NonFiniteError, common_rng, evaluate, fit, share_of

__all__ = [
    "Checkpoint",
    "History",
    "NonFiniteError",
    "Training",
    "UnusableCheckpointError",
    "common_rng",
    "evaluate",
    "fit",
    "share_of",
]

__getattr__ = of_flows(
    __name__,
    {
        **dict.fromkeys(("Checkpoint", "UnusableCheckpointError"), "checkpoint"),
        **dict.fromkeys(("NonFiniteError", "common_rng", "evaluate", "fit", "share_of"), "loop"),
    },
)
