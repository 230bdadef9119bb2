"""Checks of rows and settings that several engines make."""

import hashlib

import numpy as np

from deconflow import ranks
from deconflow.observations import Observations


def refuse_few(rows: Observations, least: int, otherwise: str = "") -> None:
    """Raise for fewer rows than a fit needs."""
    if len(rows) < least:
        raise ValueError(
            f"Expected at least {least} rows in w to fit a density; got n_samples = {len(rows)}."
            f"{otherwise}"
        )


def refuse_different_rows(data: Observations) -> None:
    """Raise unless all processes have the same table, which is shared out among them here."""
    if ranks.world() == 1:
        return
    digest = hashlib.sha256(np.asarray(data.w).tobytes()).digest()
    if len(set(ranks.gathered(digest))) > 1:
        raise ValueError(
            f"Expected the same w in all {ranks.world()} processes; got different ones. Give each "
            "of them all rows: they are divided among them here."
        )
