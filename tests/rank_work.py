"""What two processes do together in ``test_two_processes.py``: ``rank_work.py FOLDER WHAT ...``.

One start for all of it, which forks once everything is imported: that takes seconds.
"""

import pickle
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch._dynamo  # which optimisers import, in a second: before the fork
import torch.distributed as dist
from torch.multiprocessing import start_processes
from toy import draw

from deconflow import XDGMM, FlowDeconvolver, GaussianMixture, Observations, open_rows, ranks
from deconflow.densities import ARCHITECTURES, Architecture, MixtureDensity
from deconflow.fitting import Training, loop, share_of
from deconflow.fitting.checkpoint import Checkpoint
from deconflow.objectives import Chains, MaximumLikelihood
from deconflow.randomness import isolated_rng
from deconflow.standardising import Standardiser
from deconflow.xd import NO_FOLD, FoldedRows

SETTINGS = {
    "n_draws": 4, "epochs": 6, "batch_size": 128, "hidden": 16,
}  # fmt: skip
SEEN, UNSEEN = 1000, 200
TRAINING = Training(epochs=4, batch_size=64, learning_rate=3e-3, averaging=0.9)


def weights_of(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def fit_a_flow(**options):
    """One flow: its weights, history, and held-out log p(w)."""
    w, noise = draw(SEEN, 0)[1], np.sqrt([0.1, 1.0])
    model = FlowDeconvolver(**{"random_state": 0, **SETTINGS, **options}).fit(w, noise=noise)
    held_out = draw(UNSEEN, 1)[1]
    return {
        "weights": weights_of(model.density_.density),
        "posterior": weights_of(model.posterior_),
        "history": model.history_.as_dict(),
        "score": model.score(held_out, noise=noise),
    }


def fit_without_draws():
    """Weighted rows, all in every step, by an objective without draws: nothing is left to chance.

    The answer is that of one process but for rounding, the epoch that is kept included.
    """
    with isolated_rng(0):
        w = draw(301, 3)[1]
        rows = Observations.from_arrays(w, 0.0, weights=1 + w[:, 0] ** 2)
        train, held_out = rows.split(0.3)
        density = MixtureDensity.spread(2, 3).double()
        options = Training(
            epochs=30, batch_size=len(train), learning_rate=0.2, schedule="plateau",
            plateau_patience=1, patience=8, averaging=0.5,
        )  # fmt: skip
        objective = MaximumLikelihood(density)
        history = loop.fit(objective, share_of(train), share_of(held_out), options)
    return weights_of(density), {**history.as_dict(), "seconds": None}


def fit_chains(path=None):
    """A flow by chains, with checkpoints; the weights, and the chains of this process."""
    mixture = GaussianMixture(np.ones(1), np.zeros((1, 2)), np.diag([2.0, 3.0])[None])
    rows = Observations.from_arrays(draw(300, 2)[1], np.sqrt([0.1, 1.0]))
    with isolated_rng(0):
        mine = share_of(rows).to(dtype=torch.float32)
        flow = ARCHITECTURES["mixture"](2, Architecture(hidden=16))
        chains = Chains(flow, mine, mixture)
        loop.fit(chains, chains.rows, None, TRAINING, checkpoint=path)
    return weights_of(flow), chains.latents.clone(), mine.w


def go_on(path):
    """The same, stopped after two epochs, gone on with; and what one process alone is told."""
    whole, save = fit_chains(), Checkpoint.save_all

    def save_twice(self, state):
        save(self, state)
        if len(state["history"]["train"]) == 2:
            raise KeyboardInterrupt

    Checkpoint.save_all = save_twice
    with suppress(KeyboardInterrupt):
        fit_chains(path)
    Checkpoint.save_all = save
    with pytest.raises(ValueError, match="Expected") as refusal, ranks.alone():
        fit_chains(path)
    return {"whole": whole, "resumed": fit_chains(path), "refusal": str(refusal.value)}


def write_survey(folder):
    """Three files of two clumps, whose sizes differ."""
    folder.mkdir()
    rng = np.random.default_rng(5)
    for number, n in enumerate((300, 500, 200)):
        sd = rng.uniform(0.2, 0.6, size=n)
        x = rng.normal(size=n) + 5.0 * (rng.random(n) < 0.4) + sd * rng.normal(size=n)
        pq.write_table(pa.table({"x": x, "x_err": sd}), folder / f"{number}.parquet")


def fit_a_stream(folder):
    """A mixture of all rows of a folder, and the sums of one pass over them."""
    stream = open_rows(folder, ["x"])
    model = XDGMM(2, random_state=0, n_jobs=1).fit(stream)
    overview = stream.overview(100)
    sample = Observations.from_arrays(overview.sample.w, overview.sample.noise)
    units = Standardiser.powers_of_two(sample)
    rows = FoldedRows(stream, overview, 1)
    start = GaussianMixture(np.full(2, 0.5), np.array([[0.0], [5.0]]), np.ones((2, 1, 1)))
    found = [model.weights_, model.means_, model.covariances_]
    return {"fit": found, "sums": rows.pass_over([(NO_FOLD, start)], units, 1)[0].parts}


def fail():
    """A fit in which the last process fails on its own; what each is told, how soon, what is left.

    The group ends with it, so this comes last.
    """
    model = FlowDeconvolver(random_state=0, **SETTINGS)
    backward, steps = loop._Fit._backward, iter(range(10**6))

    def backward_or_fail(self, *arguments):
        if ranks.rank() == ranks.world() - 1 and next(steps) == 3:
            raise MemoryError("no memory left here")
        return backward(self, *arguments)

    loop._Fit._backward, start = backward_or_fail, time.monotonic()
    with pytest.raises((RuntimeError, MemoryError)) as end:
        model.fit(draw(SEEN, 0)[1], noise=np.sqrt([0.1, 1.0]))
    told = f"{end.typename}: {end.value}"
    return {"told": told, "seconds": time.monotonic() - start, "left": sorted(vars(model))}


def work(rank, world, folder, asked):
    """Do what is asked as one process of a group, and leave what was found in a file."""
    torch.set_num_threads(1)
    file = f"file://{folder}/group"
    dist.init_process_group("gloo", init_method=file, rank=rank, world_size=world)
    known = {
        "flow": fit_a_flow,
        "without draws": fit_without_draws,
        "chains": lambda: go_on(folder / "chains.ckpt"),
        "stream": lambda: fit_a_stream(folder / "survey"),
        "failure": fail,
    }
    found = {name: make() for name, make in known.items() if name in asked}
    (folder / f"{rank}.pickle").write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    write_survey(Path(sys.argv[1]) / "survey")
    start_processes(work, (2, Path(sys.argv[1]), sys.argv[2:]), nprocs=2, start_method="fork")
