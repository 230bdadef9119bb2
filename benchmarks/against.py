"""Seconds of this checkout beside those of another one, in turns, by the public names alone.

    python -m benchmarks.against OTHER/src [--work xd_full flow_step ...] [--rounds 3]

Every measurement is a process of its own with one thread for linear algebra; the best of the
rounds counts. A ratio below one means that this checkout is quicker. Writes
``results/against.json``.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.record import write

HERE = Path(__file__).resolve().parents[1]
DATA = HERE.parent / "shared" / "data"


def rows(n, dim, clusters, kind, seed=0):
    """Rows in clusters, with shared, diagonal or full noise."""
    rng = np.random.default_rng(seed)
    centres = 3 * rng.normal(size=(clusters, dim))
    v = centres[rng.integers(clusters, size=n)] + rng.normal(size=(n, dim))
    if kind == "full":
        factor = 0.3 * rng.normal(size=(n, dim, dim))
        noise = factor @ factor.transpose(0, 2, 1) + 0.05 * np.eye(dim)
        return v + (np.linalg.cholesky(noise) @ rng.normal(size=(n, dim, 1)))[..., 0], noise
    shape = (dim,) if kind == "shared" else (n, dim)
    noise = rng.uniform(0.3, 1, shape)
    return v + noise * rng.normal(size=v.shape), noise


def xd(n, dim, components, kind):
    """Ten plain EM steps."""
    from deconflow import XDGMM

    w, noise = rows(n, dim, components, kind)
    settings = {"max_iter": 10, "tol": 0.0, "method": "em", "random_state": 0, "n_jobs": 1}
    start = {"means": w[:components], "weights": np.ones(components)}
    start["covariances"] = np.repeat(np.eye(dim)[None], components, 0)
    return lambda: XDGMM(components, init=start, **settings).fit(w, noise=noise)


def posterior(components):
    """Means and standard deviations of the posteriors of many rows."""
    from deconflow import XDGMM

    w, noise = rows(20_000, 4, 8, "diagonal")
    model = XDGMM(components, max_iter=2, tol=0.0, random_state=0, floor=0.1)
    model.fit(w[:4000], noise=noise[:4000])

    def ask():
        answer = model.posterior(w, noise=noise)
        return answer.mean, answer.sd

    return ask


def flow_step():
    """An epoch of the paper's networks: five layers, two blocks of 128, fifty draws."""
    import torch

    from deconflow.densities import ARCHITECTURES, Architecture
    from deconflow.fitting import Training, fit
    from deconflow.objectives import ImportanceWeighted
    from deconflow.observations import Observations
    from deconflow.posteriors import RecognitionFlow

    data = Observations.from_arrays(*rows(2048, 2, 3, "shared")).to(dtype=torch.float32)
    size = Architecture(layers=5, hidden=128, blocks=2, dropout=0.2)
    training = Training(epochs=1, batch_size=512)

    def epoch():
        torch.manual_seed(0)
        posterior = RecognitionFlow(2, data.features().shape[1], size, anchored=False)
        objective = ImportanceWeighted(ARCHITECTURES["maf"](2, size), posterior, 50)
        return fit(objective, data, None, training)

    return epoch


def deconvolver(task):
    """The whole default fit, on a task of ``benchmarks/deconvolver.py``."""
    from benchmarks.deconvolver import WINE, simulated, wine
    from deconflow import Deconvolver

    w, noise = (wine(task, 0, DATA) if task in WINE else simulated(task, 0))[:2]
    return lambda: Deconvolver(random_state=0).fit(w, noise=noise)


WORK = {
    "xd_shared": lambda: xd(50_000, 2, 3, "shared"),
    "xd_full": lambda: xd(50_000, 2, 16, "full"),
    "xd_diagonal": lambda: xd(100_000, 3, 20, "diagonal"),
    "posterior_8": lambda: posterior(8),
    "posterior_96": lambda: posterior(96),
    "flow_step": flow_step,
    "deconvolver_toy": lambda: deconvolver("toy"),
    "deconvolver_red": lambda: deconvolver("red"),
}
LONG = ("deconvolver_toy", "deconvolver_red")


def measure(name):
    """Best seconds of a few calls in this process; the first one, which compiles, is left out."""
    warnings.simplefilter("ignore")
    work = WORK[name]()
    best = np.inf
    for call in range(1 if name in LONG else 4):
        begin = time.perf_counter()
        work()
        seconds = time.perf_counter() - begin
        best = min(best, seconds) if call or name in LONG else best
    return best


def in_process(name, source):
    environment = os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{HERE}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.against", str(source), "--child", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the folder src of another checkout")
    parser.add_argument("--work", nargs="+", default=list(WORK), choices=list(WORK))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", choices=list(WORK), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(measure(arguments.child))
        return
    sources = {"other": arguments.other.resolve(), "this": HERE / "src"}
    path = HERE / "results" / "against.json"
    found = json.loads(path.read_text())["seconds"] if path.exists() else {}
    for name in arguments.work:
        best = dict.fromkeys(sources, np.inf)
        rounds = 1 if name in LONG else arguments.rounds
        for _ in range(rounds):
            for which, source in sources.items():
                best[which] = min(best[which], in_process(name, source))
        found[name] = {**best, "ratio": best["this"] / best["other"], "rounds": rounds}
        print(name, json.dumps(found[name]), flush=True)
        write("against", show=False, seed=0, seconds=found)


if __name__ == "__main__":
    main()
