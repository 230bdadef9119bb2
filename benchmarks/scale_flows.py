"""How much quicker two processes train a flow together than one, with a thread each.

A flow of the size that ``Deconvolver`` uses, trained by chains on rows of three columns with their
own errors; gradients are summed over the processes after every step. One process and two take
turns, and the seconds of a step are the best of the epochs of each turn. Seconds of the processor,
of the process that needs most, are beside them: they say the same where nothing is waited for, and
also on a machine that others use.

Run: python -m benchmarks.scale_flows
"""

import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.multiprocessing import start_processes

from benchmarks.record import write
from deconflow.auto.plan import make_plan
from deconflow.densities import ARCHITECTURES
from deconflow.fitting import Training, fit, share_of
from deconflow.mixtures import GaussianMixture
from deconflow.objectives import Chains
from deconflow.observations import Observations
from deconflow.randomness import isolated_rng

SEED, ROWS, BATCH, EPOCHS, ROUNDS = 0, 16_384, 2_048, 5, 3


def table(rows):
    """Rows of a ring with their own errors, and a mixture that proposes for them."""
    rng = np.random.default_rng(SEED)
    angle, height = rng.uniform(0, 2 * np.pi, rows), rng.normal(size=rows)
    v = np.column_stack([np.cos(angle), np.sin(angle), height])
    sd = rng.uniform(0.1, 0.5, v.shape)
    places = np.linspace(0, 2 * np.pi, 8, endpoint=False)
    means = np.column_stack([np.cos(places), np.sin(places), np.zeros(8)])
    mixture = GaussianMixture(np.full(8, 1 / 8), means, np.tile(np.diag([0.2, 0.2, 1]), (8, 1, 1)))
    return Observations.from_arrays(v + sd * rng.normal(size=v.shape), sd), mixture


def seconds_a_step(rows, batch, epochs):
    """Train for some epochs as one process of a group, or alone.

    Returns the seconds of a step, and those that the processor had to work for it, each of the
    best epoch.
    """
    plan, (data, mixture) = make_plan(rows, None, quick=False), table(rows)
    with isolated_rng(SEED):
        mine = share_of(data).to(dtype=torch.float32)
        flow = ARCHITECTURES["mixture"](data.dim, plan.size)
        chains = Chains(
            flow, mine, mixture, n_proposals=plan.n_proposals,
            n_gradient_draws=plan.n_gradient_draws,
        )  # fmt: skip
        training = Training(epochs=epochs, batch_size=batch, averaging=0.995)
        worked = []
        history = fit(
            chains, chains.rows, None, training,
            callbacks=[lambda *_: worked.append(time.process_time())],
        )  # fmt: skip
    steps = rows // batch
    return min(history.seconds) / steps, np.diff(worked).min() / steps


def work(rank, world, folder, sizes):
    """Measure as one of so many processes, each of which writes what it has found."""
    torch.set_num_threads(1)
    if world > 1:
        file = f"file://{folder}/group"
        dist.init_process_group("gloo", init_method=file, rank=rank, world_size=world)
    (folder / f"{rank}").write_text(json.dumps(seconds_a_step(*sizes)))
    if world > 1:
        dist.destroy_process_group()


def measured(world, sizes):
    """Return both kinds of seconds of a step with so many new processes."""
    with tempfile.TemporaryDirectory() as name:
        arguments = (world, Path(name), sizes)
        start_processes(work, arguments, nprocs=world, start_method="fork")
        found = [json.loads((Path(name) / f"{rank}").read_text()) for rank in range(world)]
    return [max(seconds) for seconds in zip(*found, strict=True)]


def record(rows=ROWS, batch=BATCH, epochs=EPOCHS, rounds=ROUNDS):
    """Let one process and two take turns; how much quicker two are, by the best of each."""
    load = os.getloadavg()[0]
    turns = [[measured(world, (rows, batch, epochs)) for world in (1, 2)] for _ in range(rounds)]
    found = np.array(turns)  # rounds, processes, kinds of seconds
    best = found.min(0)
    return {
        "what": __doc__.split("\n")[0],
        "settings": {
            "seed": SEED, "rows": rows, "batch": batch, "epochs": epochs, "rounds": rounds,
            "threads of a process": 1,
        },
        "load_before": load,
        "seconds_a_step": _by_processes(found[..., 0]),
        "processor_seconds_a_step": _by_processes(found[..., 1]),
        "ratio": round(float(best[0, 0] / best[1, 0]), 2),
        "ratio_of_processor_seconds": round(float(best[0, 1] / best[1, 1]), 2),
    }  # fmt: skip


def _by_processes(seconds):
    return {
        name: each.round(4).tolist() for name, each in zip(("one", "two"), seconds.T, strict=True)
    }


if __name__ == "__main__":
    write("scale_flows", **record())
