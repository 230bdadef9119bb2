"""What the paper's own protocol costs, from what a step was measured to cost."""

from __future__ import annotations

import json
from pathlib import Path

from deconflow.reproduction.experiments import MIXTURE, SEEDS
from deconflow.reproduction.paper import GRID
from deconflow.reproduction.protocols import PAPER, Protocol, steps_an_epoch

MEASURED = "flow_evaluation.json"


def mixture_hours(results: Path, protocol: Protocol = PAPER) -> dict[str, float] | None:
    """Return the core hours of one run of each flow row; None without a measurement."""
    seconds = _measured(results)
    if seconds is None:
        return None
    steps = (protocol.epochs or 0) * steps_an_epoch(protocol.train_rows, protocol.batch_size)
    return {
        row.name: steps * seconds[str(row.options["n_draws"])] / 3600
        for row in MIXTURE.rows
        if "n_draws" in row.options
    }


def in_words(results: Path) -> str:
    """Say what the whole mixture table costs at the paper's protocol."""
    hours = mixture_hours(results)
    if hours is None:
        return (
            f"What the paper's protocol costs is not known: {MEASURED} is missing; "
            "`python -m benchmarks.flow_evaluation` writes it."
        )
    total = len(SEEDS) * sum(hours.values())
    points = 1
    for values in GRID["flow"].values():
        points *= len(values)
    return (
        f"At the paper's protocol one run takes {hours['elbo-1']:.1f} core hours with K = 1, "
        f"{hours['iw-10']:.1f} with K = 10, {hours['iw-25']:.0f} with K = 25 and "
        f"{hours['iw-50']:.0f} with K = 50: the full table with five seeds is {total:.0f} core "
        f"hours (`results/{MEASURED}`). The complete grid is {points} settings on five folds for "
        "each wine."
    )


def _measured(results: Path) -> dict[str, float] | None:
    path = results / MEASURED
    if not path.is_file():
        return None
    draws = json.loads(path.read_text())["cases"]["mixture, paper"]["draws"]
    return {K: measured["seconds_a_step"] for K, measured in draws.items()}
