"""What the order of its layers does to a flow: maximum likelihood on clean rows of the paper's toy.

    OMP_NUM_THREADS=1 python -m benchmarks.flow_orders [--seeds 0 1 2 3 4]

The orders are those that the paper's protocol draws with seed 0: swap, swap, keep, keep, keep.
``before`` is how flows were in version 0.1, with exponential scales, networks whose outputs
start at zero and linear layers that start as permutations; ``now`` is how they are. (``made`` draws
more numbers now, so that its ``before`` of a seed is not that of earlier records.) The figure is
the excess of ``-log p(v)`` over the truth's on 50,000 other rows, after a short and after a longer
fit. The record, ``results/flow_orders.json``, is written after every fit; fits that this code has
made are not repeated.
"""

import argparse
import time
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
import torch
from torch.distributions import Transform
from zuko.transforms import DependentTransform, MonotonicAffineTransform

from benchmarks.record import RESULTS
from benchmarks.runs import Runs
from deconflow import Observations
from deconflow.densities import ARCHITECTURES, Architecture, Flow
from deconflow.densities.layers import AutoregressiveLayer, LULayer
from deconflow.fitting import Training, fit
from deconflow.objectives import MaximumLikelihood
from deconflow.randomness import isolated_rng
from paper import data

SWAP, KEEP = [1, 0], [0, 1]
#: All layers but the first move the second dimension given the first.
UNLUCKY = (SWAP, SWAP, KEEP, KEEP, KEEP)
TEST_ROWS = 50_000


@dataclass(frozen=True)
class Length:
    """How much to fit: rows, hidden features of the networks, and how to train."""

    rows: int
    hidden: int
    training: Training


SHORT = Length(5000, 32, Training(epochs=20, batch_size=250, learning_rate=5e-3))
LONGER = Length(5000, 32, Training(epochs=60, batch_size=250, learning_rate=5e-3))
CASES = {
    "maf, 400 steps": ("maf", SHORT),
    "made, 400 steps": ("made", SHORT),
    "made, 1,200 steps": ("made", LONGER),
}


def unlucky(flow: Flow) -> None:
    """Put the layers into the unlucky order."""
    linear = [layer for layer in flow.layers if isinstance(layer, LULayer)]
    for layer, order in zip(linear, UNLUCKY, strict=True):
        layer.permutation.copy_(torch.tensor(order))


class ExponentialScales(torch.nn.Module):
    """Increasing lines as flows had them before: ``exp(a) x + t``, softly bounded."""

    size = 2

    def forward(self, parameters: torch.Tensor) -> Transform:
        shift, raw = parameters.unbind(-1)
        return DependentTransform(MonotonicAffineTransform(shift, raw), 1)


def as_before(flow: Flow) -> None:
    """Give a flow exponential scales, outputs that start at zero, and mere permutations."""
    for layer in flow.layers:
        if isinstance(layer, AutoregressiveLayer):
            layer.univariate = ExponentialScales()
            torch.nn.init.zeros_(layer.network.output.weight)
        if isinstance(layer, LULayer):
            torch.nn.init.zeros_(layer.lower)
            torch.nn.init.zeros_(layer.upper)


def excess(name: str, length: Length, seed: int, *changes) -> float:
    """Fit a flow, after some changes of it; return how far it is above the truth."""
    sample = data.toy(length.rows, TEST_ROWS)
    fitted, test = sample.train.v, sample.test.v
    location, scale = fitted.mean(0), fitted.std(0, ddof=1)
    with isolated_rng(seed):
        flow = ARCHITECTURES[name](2, Architecture(hidden=length.hidden))
        for change in changes:
            change(flow)
        clean = Observations.from_arrays((fitted - location) / scale, 0.0)
        fit(MaximumLikelihood(flow), clean, None, length.training)
        with torch.no_grad():
            log_p = flow.log_prob(torch.from_numpy((test - location) / scale).float())
    own = float(log_p.mean()) - np.log(scale).sum()
    return float(data.TRUTH.log_prob(test).mean() - own)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="*", default=range(5))
    torch.set_num_threads(1)
    seeds = parser.parse_args().seeds
    runs = Runs(RESULTS / "flow_orders.json", ("case", "start", "seed"))
    settings = {case: {"flow": name, **asdict(length)} for case, (name, length) in CASES.items()}
    runs.say(what=__doc__.split("\n")[0], settings=settings)
    starts = {"before": [as_before], "now": []}
    for case, seed, start in product(CASES, seeds, starts):
        task = {"case": case, "start": start, "seed": seed}
        if not runs.done(task):
            begin = time.process_time()
            task["excess"] = excess(*CASES[case], seed, unlucky, *starts[start])
            runs.add(task | {"core_seconds": round(time.process_time() - begin, 1)})
            print(task, flush=True)


if __name__ == "__main__":
    main()
