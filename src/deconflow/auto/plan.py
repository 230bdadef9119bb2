"""How much to train, from the number of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from deconflow.densities import Architecture
from deconflow.fitting import Training
from deconflow.xd import Stopping

FOLDS, QUICK_FOLDS = 5, 4
"""Every candidate is fitted without each of so many folds."""

FLOWS, FLOWS_OF_FEW, FEW_ROWS = 5, 10, 3000
"""Flows in all, over the folds; more where there are few rows, and each is quick."""

EPOCHS, SHORTEST, LONGEST = 40, 900, 1600
"""Length of a flow's training: epochs, within bounds on the number of steps."""

SMALLEST_BATCH, LARGEST_BATCH, BATCHES = 100, 256, 40
"""Rows per step: so many batches per epoch, within bounds."""


@dataclass(frozen=True)
class Plan:
    """Settings of one fit.

    Attributes
    ----------
    folds, starts : int
        Folds of all candidates, and starts of the mixtures.
    stopping : Stopping
        When the mixtures' fits stop.
    quick : bool
        Whether a first answer is enough.
    flows : list of int
        How many flows to train without each fold.
    flows_asked_for : bool
        Whether the user has named a number of flows.
    scored_rows : int
        How many rows flows are scored on at most, over all folds.
    n_proposals : int
        See :class:`~deconflow.objectives.Chains`.
    size : Architecture
        Of each flow.
    training : Training
        Of each flow.
    checked_rows, checked_draws : int
        How many rows, with how many draws, the certificate looks at.
    """

    folds: int
    starts: int
    stopping: Stopping
    quick: bool
    flows: list[int]
    flows_asked_for: bool
    scored_rows: int
    n_proposals: int
    size: Architecture
    training: Training
    checked_rows: int
    checked_draws: int


def make_plan(n_rows: int, n_flows: int | None, *, quick: bool) -> Plan:
    """Plan a fit of ``n_rows``; ``quick`` for an answer without flows."""
    folds = QUICK_FOLDS if quick else FOLDS
    usual = FLOWS_OF_FEW if n_rows < FEW_ROWS else FLOWS
    count = 0 if quick else (usual if n_flows is None else n_flows)
    return Plan(
        folds=folds,
        starts=1 if quick else 2,
        stopping=Stopping(tol=1e-5 if quick else 1e-6, max_iter=300, accelerate=True),
        quick=quick,
        flows=[count // folds + (f < count % folds) for f in range(folds)],
        flows_asked_for=n_flows is not None,
        scored_rows=5_000,
        n_proposals=4,
        size=Architecture(layers=2, hidden=128, blocks=1),
        training=_training(n_rows),
        checked_rows=100,
        checked_draws=128,
    )


def _training(n_rows: int) -> Training:
    batch = min(LARGEST_BATCH, max(SMALLEST_BATCH, round(n_rows / BATCHES)))
    steps_an_epoch = math.ceil(n_rows / batch)
    steps = min(LONGEST, max(SHORTEST, EPOCHS * steps_an_epoch))
    return Training(
        epochs=math.ceil(steps / steps_an_epoch),
        batch_size=batch,
        learning_rate=3e-3,
        learning_rate_end=0.25,
        weight_decay=0.1,
        clip_norm=5.0,
        averaging=0.995,
    )
