"""What one flow evaluation costs in the paper's experiments, with one thread.

A step with ``K`` draws and a batch of ``B`` rows evaluates the prior and the posterior ``K B``
times each, forwards and backwards: ``2 K B`` flow evaluations. ``python -m paper`` counts these
for its budget, and ``docs/reproduction.md`` takes from here what the paper's protocol would cost.

Run: OMP_NUM_THREADS=1 python -m benchmarks.flow_evaluation
"""

import statistics
import time

import numpy as np
import torch

from benchmarks.record import write
from deconflow.densities import ARCHITECTURES, Architecture
from deconflow.fitting import Training
from deconflow.fitting.loop import _Fit
from deconflow.objectives import ImportanceWeighted
from deconflow.observations import Observations
from deconflow.posteriors import RecognitionFlow
from deconflow.randomness import Draws

SEED, SECONDS = 0, 2.5
MIXTURE = {"flow": "maf", "dim": 2, "batch": 512, "layers": 5, "posterior_layers": 5, "blocks": 2}
WHITE = {"flow": "made", "dim": 9, "batch": 100, "layers": 3, "posterior_layers": 4, "blocks": 1}
RED = {**WHITE, "layers": 5, "posterior_layers": 5}
CASES = {
    "mixture, budget": ({**MIXTURE, "hidden": 64, "dropout": 0.0}, (1, 10, 25, 50)),
    "mixture, paper": ({**MIXTURE, "hidden": 128, "dropout": 0.2}, (1, 10, 25, 50)),
    "white wine, the paper's settings": ({**WHITE, "hidden": 128, "dropout": 0.0}, (50,)),
    "red wine, the paper's settings": ({**RED, "hidden": 128, "dropout": 0.0}, (50,)),
}


def ready(case, draws):
    """A fit with these networks, ready to step."""
    torch.manual_seed(SEED)
    size = Architecture(case["layers"], case["hidden"], case["blocks"], case["dropout"])
    w = torch.randn(case["batch"], case["dim"], dtype=torch.float64).numpy()
    data = Observations.from_arrays(w, np.full(case["dim"], 0.3)).to()
    size_q = Architecture(case["posterior_layers"], case["hidden"], case["blocks"], case["dropout"])
    posterior = RecognitionFlow(
        case["dim"], data.features().shape[1], size_q,
        residual=case["flow"] == "maf", anchored=False,
    )  # fmt: skip
    density = ARCHITECTURES[case["flow"]](case["dim"], size)
    objective = ImportanceWeighted(density, posterior, draws).train()
    training = Training(batch_size=case["batch"], learning_rate=1e-4, clip_norm=None)
    return _Fit(objective, data, None, training, None, Draws(SEED))


def measure(case, draws):
    """Seconds of a step, and microseconds of a flow evaluation in it."""
    run, rows = ready(case, draws), torch.arange(case["batch"])
    run._step(rows, len(rows))
    seconds, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(seconds) < 3:
        start = time.process_time()
        run._step(rows, len(rows))
        seconds.append(time.process_time() - start)
    middle = statistics.median(seconds)
    return {
        "seconds_a_step": round(middle, 5),
        "microseconds_an_evaluation": round(1e6 * middle / (2 * draws * case["batch"]), 3),
    }


def main():
    torch.set_num_threads(1)
    torch.empty(2**25 - 2**16, dtype=torch.uint8)  # as the fit loop does: glibc keeps blocks
    cases = {
        name: {"settings": case, "draws": {str(K): measure(case, K) for K in draws}}
        for name, (case, draws) in CASES.items()
    }
    write("flow_evaluation", what=__doc__.split("\n")[0], threads=1, cases=cases)


if __name__ == "__main__":
    main()
