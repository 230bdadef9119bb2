"""How near a training step of the paper's mixture experiment comes to raw matrix products.

The step: prior and posterior of 5 layers, residual networks of 2 blocks with 128 hidden features,
batch 512, K = 50. Counted is the dense work of the masked networks alone: 2 operations for each
weight and point forwards, twice that backwards. Raw rates are measured in the same run, between
the steps: large square products, and products of the networks' own shape.

Run: python -m benchmarks.step
"""

import statistics
import time

import torch

from benchmarks.flow_evaluation import MIXTURE, SEED, ready
from benchmarks.record import write
from deconflow.densities import MaskedLinear

BATCH, DRAWS, ROUNDS = MIXTURE["batch"], 50, 7


def timed(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def raw_rate(rows, inner, columns, repeats=4):
    """Best rate of a few products, in operations a second."""
    a, b = torch.randn(rows, inner), torch.randn(inner, columns)
    out = torch.empty(rows, columns)
    seconds = min(timed(lambda: torch.mm(a, b, out=out)) for _ in range(repeats))
    return 2 * rows * inner * columns / seconds


def dense_work(objective):
    """Operations of one step in the masked networks of the layers."""
    networks = [objective.density, objective.posterior.layers]
    weights = sum(
        module.weight.numel()
        for part in networks
        for module in part.modules()
        if isinstance(module, MaskedLinear)
    )
    return 3 * 2 * weights * BATCH * DRAWS


def measure(dropout):
    run = ready({**MIXTURE, "hidden": 128, "dropout": dropout}, DRAWS)
    torch.empty(2**25 - 2**16, dtype=torch.uint8)  # as the fit loop does: glibc keeps blocks
    rows, work = torch.arange(BATCH), dense_work(run.objective)
    run._step(rows, len(rows))
    rates = {"step": [], "square": [], "layer": []}
    for _ in range(ROUNDS):
        rates["square"].append(raw_rate(2048, 2048, 2048))
        rates["layer"].append(raw_rate(BATCH * DRAWS, 128, 128))
        rates["step"].append(work / timed(lambda: run._step(rows, len(rows))))
    middle = {name: statistics.median(values) for name, values in rates.items()}
    return {
        "seconds_a_step": round(work / middle["step"], 3),
        "gflops": {name: round(value / 1e9, 1) for name, value in middle.items()},
        "share_of_square_products": _ratio(rates["step"], rates["square"]),
        "share_of_layer_products": _ratio(rates["step"], rates["layer"]),
    }


def _ratio(mine, raw):
    return round(statistics.median(a / b for a, b in zip(mine, raw, strict=True)), 3)


if __name__ == "__main__":
    write(
        "benchmark_step",
        what=__doc__.split("\n")[0],
        settings={"batch": BATCH, "draws": DRAWS, "rounds": ROUNDS, "seed": SEED},
        threads=torch.get_num_threads(),
        without_dropout=measure(0.0),
        with_dropout=measure(0.2),
    )
