"""How much to train, from what the noisy rows show: their number and their dimensions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from deconflow.densities import Architecture
from deconflow.fitting import Training

FLOW_SHARE = 0.95
"""What the flows get of the average when they win; the rest, XD's, keeps tails in check."""

FOLDS = 5
MEMBERS = 8
"""Flows trained on all rows, beside one without each fold."""

SHORTEST, LONGEST = 600, 2400
"""Steps of one flow: at least so many, and at most."""


@dataclass(frozen=True)
class Plan:
    """Settings of one fit.

    Attributes
    ----------
    folds, starts : int
        Folds and starts of the mixture's ladder.
    compared : int
        Flows trained without a fold, for the comparison.
    members : int
        Flows trained on all rows, if flows win.
    fresh, steps_on : int
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
    compared: int
    members: int
    fresh: int
    steps_on: int
    size: Architecture
    training: Training
    checked_rows: int
    checked_draws: int

    def with_size(self, size: dict[str, Any]) -> Plan:
        """Return the same plan for flows of another size."""
        return replace(self, size=Architecture(**size))


def make_plan(n_rows: int, members: int | None, *, quick: bool) -> Plan:
    """Plan a fit of ``n_rows``; ``quick`` for an answer with one flow."""
    batch = min(512, max(32, round(n_rows / 40)))
    steps_an_epoch = math.ceil(n_rows / batch)
    steps = min(LONGEST, max(SHORTEST, 40 * steps_an_epoch))
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
        starts=1 if quick else 2,
        compared=1 if quick else FOLDS,
        members=0 if quick else (MEMBERS if members is None else members),
        fresh=4,
        steps_on=2,
        size=Architecture(layers=2, hidden=128, blocks=1),
        training=training,
        checked_rows=200 if quick else 500,
        checked_draws=256,
    )
