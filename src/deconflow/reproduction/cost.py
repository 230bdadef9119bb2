"""What the paper's own protocol costs, from what a step was measured to cost."""

from __future__ import annotations

import json
import math
from pathlib import Path

from deconflow.reproduction.data import TEST_SHARE
from deconflow.reproduction.experiments import MIXTURE, SEEDS
from deconflow.reproduction.paper import GRID
from deconflow.reproduction.protocols import PAPER, Protocol, steps_an_epoch
from deconflow.reproduction.wine_fits import EARLY_STOPPING_SHARE

MEASURED = "flow_evaluation.json"
TOY, WINES = "mixture, paper", {"white": 4898, "red": 1599}
EPOCHS_A_FIT = 100
"""About how long a fit to a wine lasts until early stopping ends it."""


def mixture_hours(results: Path, protocol: Protocol = PAPER) -> dict[str, float] | None:
    """Return the core hours of one run of each flow row; None without a measurement."""
    seconds = _measured(results, TOY)
    if seconds is None:
        return None
    steps = (protocol.epochs or 0) * steps_an_epoch(protocol.train_rows, protocol.batch_size)
    return {
        row.name: steps * seconds[str(row.options["n_draws"])] / 3600
        for row in MIXTURE.rows
        if "n_draws" in row.options
    }


def grid_hours(results: Path, protocol: Protocol = PAPER) -> float | None:
    """Return the core hours of the flows' whole grid on both wines, roughly."""
    points = math.prod(len(values) for values in GRID["flow"].values())
    share = (1 - TEST_SHARE) * (1 - 1 / protocol.folds) * (1 - EARLY_STOPPING_SHARE)
    hours = 0.0
    for wine, rows in WINES.items():
        seconds = _measured(results, f"{wine} wine, the paper's settings")
        if seconds is None:
            return None
        steps = EPOCHS_A_FIT * steps_an_epoch(round(share * rows), protocol.wine_batch_size)
        hours += points * protocol.folds * steps * seconds["50"] / 3600
    return hours


def in_words(results: Path) -> str:
    """Say what the paper's protocol costs."""
    hours, grid = mixture_hours(results), grid_hours(results)
    if hours is None or grid is None:
        return (
            f"What the paper's protocol costs is not known: {MEASURED} is missing; "
            "`python -m benchmarks.flow_evaluation` writes it."
        )
    total = len(SEEDS) * sum(hours.values())
    return (
        f"At the paper's protocol one run takes {hours['elbo-1']:.1f} core hours with K = 1, "
        f"{hours['iw-10']:.1f} with K = 10, {hours['iw-25']:.0f} with K = 25 and "
        f"{hours['iw-50']:.0f} with K = 50: the full table with five seeds is {total:.0f} core "
        f"hours (`results/{MEASURED}`). The whole grid on both wines is about {grid:.0f} more, if "
        f"a fit lasts {EPOCHS_A_FIT} epochs."
    )


def _measured(results: Path, case: str) -> dict[str, float] | None:
    path = results / MEASURED
    cases = json.loads(path.read_text())["cases"] if path.is_file() else {}
    if case not in cases:
        return None
    return {K: measured["seconds_a_step"] for K, measured in cases[case]["draws"].items()}
