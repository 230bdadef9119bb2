"""How much to fit and to train, from the number of rows."""

import math
from dataclasses import dataclass
from typing import Any

from deconflow.xd import Stopping

#: Every candidate is fitted without each of so many folds.
FOLDS, QUICK_FOLDS = 5, 4

#: Flows in all, over the folds; more where there are few rows, and each is quick.
FLOWS, FLOWS_OF_FEW, FEW_ROWS = 5, 10, 3000

#: Length of a flow's training: epochs, within bounds on the number of steps.
EPOCHS, SHORTEST, LONGEST = 40, 900, 1600

#: Rows per step: so many batches per epoch, within bounds.
SMALLEST_BATCH, LARGEST_BATCH, BATCHES = 100, 256, 40

#: How many rows, with how many draws, the certificate looks at.
CHECKED_ROWS, CHECKED_DRAWS = 100, 128


@dataclass(frozen=True)
class Plan:
    """Settings of one fit.

    Attributes
    ----------
    folds, starts : int
        Folds of all candidates, and starts of the mixtures.
    stopping : Stopping
        When the fits of mixtures stop.
    quick : bool
        Whether a first answer is enough.
    flows : list of int
        How many flows to train without each fold.
    flows_asked_for : bool
        Whether the user has named a number of flows.
    training : dict
        Settings of the training of flows; see :class:`~deconflow.fitting.Training`.
    """

    folds: int
    starts: int
    stopping: Stopping
    quick: bool
    flows: list[int]
    flows_asked_for: bool
    training: dict[str, Any]


def make_plan(n_rows: int, n_flows: int | None, *, quick: bool) -> Plan:
    """Plan a fit of ``n_rows``; ``quick`` for an answer without flows."""
    folds = QUICK_FOLDS if quick else FOLDS
    usual = FLOWS_OF_FEW if n_rows < FEW_ROWS else FLOWS
    count = 0 if quick else (usual if n_flows is None else n_flows)
    batch = min(LARGEST_BATCH, max(SMALLEST_BATCH, round(n_rows / BATCHES)))
    steps_an_epoch = math.ceil(n_rows / batch)
    steps = min(LONGEST, max(SHORTEST, EPOCHS * steps_an_epoch))
    training = {
        "epochs": math.ceil(steps / steps_an_epoch),
        "batch_size": batch,
        "learning_rate": 3e-3,
        "learning_rate_end": 0.25,
        "weight_decay": 0.1,
        "averaging": 0.995,
    }
    return Plan(
        folds,
        1 if quick else 2,
        Stopping(tol=1e-5 if quick else 1e-6, max_iter=300, accelerate=True),
        quick,
        [count // folds + (fold < count % folds) for fold in range(folds)],
        n_flows is not None,
        training,
    )
