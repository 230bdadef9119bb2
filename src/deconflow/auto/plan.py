"""How much to train, from the number of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from deconflow.densities import Architecture
from deconflow.fitting import Training
from deconflow.xd import Stopping

FLOW_SHARE = 0.95
"""What the flows get of the average when they win; the rest, XD's, keeps tails in check."""

FOLDS = 5
MEMBERS, STACKS = 12, 2
"""Flows trained on all rows, and how many stacks they form."""

COMPARED_FOLDS, COMPARED_FLOWS, COMPARED_LENGTH = 2, 2, 0.6
"""Folds that the comparison with XD looks at, the flows trained without each, and how long these
train, as a share: where flows are better, they are so well before their end."""

EPOCHS, SHORTEST, LONGEST, QUICK = 40, 900, 1600, 700
"""Length of a flow's training: epochs, within bounds on the number of steps; steps if quick."""

SMALLEST_BATCH, LARGEST_BATCH, BATCHES = 100, 256, 40
"""Rows per step: so many batches per epoch, within bounds."""


@dataclass(frozen=True)
class Plan:
    """Settings of one fit.

    Attributes
    ----------
    folds, starts : int
        Folds and starts of the mixtures.
    stopping : Stopping
        When its fits stop.
    compared_folds, compared_flows : int
        Folds that the comparison looks at, and flows trained without each.
    compared_rows : int
        How many rows it is made on at most.
    members : int
        Flows trained on all rows, if flows win; 0 to keep those of the comparison.
    n_proposals, n_gradient_draws : int
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
    compared_folds: int
    compared_flows: int
    compared_rows: int
    members: int
    n_proposals: int
    n_gradient_draws: int
    size: Architecture
    training: Training
    checked_rows: int
    checked_draws: int

    def to_compare(self) -> Plan:
        """Return the plan for flows that are only to be compared, if there will be others."""
        if self.members == 0:
            return self
        epochs = math.ceil(COMPARED_LENGTH * self.training.epochs)
        return replace(self, training=replace(self.training, epochs=epochs))


def make_plan(n_rows: int, members: int | None, *, quick: bool) -> Plan:
    """Plan a fit of ``n_rows``; ``quick`` for an answer with one flow."""
    batch = min(LARGEST_BATCH, max(SMALLEST_BATCH, round(n_rows / BATCHES)))
    steps_an_epoch = math.ceil(n_rows / batch)
    steps = min(LONGEST, max(SHORTEST, EPOCHS * steps_an_epoch))
    steps = min(steps, QUICK) if quick else steps
    training = Training(
        epochs=math.ceil(steps / steps_an_epoch),
        batch_size=batch,
        learning_rate=3e-3,
        learning_rate_end=0.25,
        weight_decay=0.1,
        clip_norm=5.0,
        averaging=0.995,
    )
    return Plan(
        folds=4 if quick else FOLDS,
        starts=1 if quick else 4,
        stopping=Stopping(tol=1e-5 if quick else 1e-6, max_iter=300, accelerate=True),
        compared_folds=1 if quick else COMPARED_FOLDS,
        compared_flows=1 if quick else COMPARED_FLOWS,
        compared_rows=4_000 if quick else 10_000,
        members=0 if quick else (MEMBERS if members is None else members),
        n_proposals=4,
        n_gradient_draws=2,
        size=Architecture(layers=2, hidden=128, blocks=1),
        training=training,
        checked_rows=100 if quick else 300,
        checked_draws=128,
    )


def share_out(members: int) -> list[int]:
    """Part flows into stacks of about equal size."""
    stacks = min(STACKS, members)
    return [members // stacks + (s < members % stacks) for s in range(stacks)]
