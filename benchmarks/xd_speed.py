"""Seconds of an EM step, ours and others', in one run on one core each.

    python benchmarks/xd_speed.py [--workloads abcdef] [--threads] [--peers PYTHON]

``--threads`` compares two threads with one; ``--peers`` names the python of an environment that
has astroML and pygmmis (they are slow: small shares of the rows are timed and scaled up).
Writes the workloads measured into ``results/xd_speed.json``, and keeps the others there.
"""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import record

WORKLOADS = {
    "a": (50_000, 2, 3, "shared"),
    "b": (50_000, 2, 16, "full"),
    "c": (20_000, 5, 32, "full"),
    "d": (20_000, 9, 64, "full"),
    "e": (200_000, 3, 20, "diagonal"),
    "f": (20_000, 4, 10, "missing"),
}
BARS = {"a": 0.20, "b": 0.15, "c": 0.30, "d": 0.90, "e": 0.20, "f": 1.5}
PEERS = Path(__file__).parent / "xd_peers.py"


def make(name: str, seed: int = 0):
    """Rows, covariances ``(N or 1, D, D)``, and the start: weights, means, covariances."""
    n, dim, K, kind = WORKLOADS[name]
    rng = np.random.default_rng(seed)
    centres = 3 * rng.normal(size=(K, dim))
    v = centres[rng.integers(K, size=n)] + rng.normal(size=(n, dim))
    if kind == "shared":
        S = np.diag(rng.uniform(0.1, 1, dim))[None]
    elif kind == "diagonal":
        S = rng.uniform(0.1, 1, (n, dim))[..., None] * np.eye(dim)
    else:
        factor = 0.3 * rng.normal(size=(n, dim, dim))
        S = factor @ factor.transpose(0, 2, 1) + 0.05 * np.eye(dim)
    white = rng.normal(size=(n, dim, 1))
    w = v + (np.linalg.cholesky(S) @ white)[..., 0]
    if kind == "missing":
        rows = rng.permutation(n)[: int(0.3 * n)]
        for row in rows:
            w[row, rng.permutation(dim)[:2]] = np.nan
    means = centres + 0.1 * rng.normal(size=centres.shape)
    return w, S, (np.full(K, 1 / K), means, np.repeat(np.eye(dim)[None], K, axis=0))


def alternate(functions, rounds: int = 7):
    """Best seconds of each function, taken in turns so that a busy machine hits all alike."""
    best = [np.inf] * len(functions)
    for _ in range(rounds):
        for i, function in enumerate(functions):
            begin = time.perf_counter()
            function()
            best[i] = min(best[i], time.perf_counter() - begin)
    return best


def our_step(w, S, start, threads: int, steps: int = 5):
    from deconflow import GaussianMixture, Observations
    from deconflow.noise import gaussian
    from deconflow.xd import Constraints, Stopping, em, lay_out

    noise = gaussian(covariance=S[0]) if len(S) == 1 else S
    rows = lay_out(Observations.from_arrays(w, noise))
    begin = rows.units.mixture_to_standard(GaussianMixture(*start))
    rules = Constraints.free(len(start[0]), 1e-12 * np.eye(w.shape[1]))
    stopping = Stopping(tol=-np.inf, max_iter=steps, threads=threads)

    def run():
        return em(begin, rows, rules, stopping)

    run()
    return run, steps


def sklearn_step(w, start, steps: int):
    """One fit of ``steps`` and one of none, whose difference is the price of the steps."""
    from sklearn.mixture import GaussianMixture

    def run(n: int):
        weights, means, covariances = start
        model = GaussianMixture(
            len(weights), weights_init=weights, means_init=means, precisions_init=covariances,
            max_iter=n, tol=0.0, init_params="random_from_data", random_state=0,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(w)

    return lambda: run(1 + steps), lambda: run(1)


def measure(name: str, threads: bool) -> dict:
    w, S, start = make(name)
    ours, steps = our_step(w, S, start, threads=1)
    if name == "f":
        complete = np.where(np.isnan(w), 0.0, w)
        other, _ = our_step(complete, S, start, threads=1)
        mine, theirs = (t / steps for t in alternate([ours, other]))
        record = {"ours": mine, "complete_rows": theirs}
    else:
        mine, more, fewer = alternate([ours, *sklearn_step(w, start, steps)], 5)
        record = {"ours": mine / steps, "sklearn_without_noise": (more - fewer) / steps}
    values = list(record.values())
    record |= {"ratio": values[0] / values[1], "bar": BARS[name]}
    if threads and name in "cde":
        one, _ = our_step(w, S, start, threads=1, steps=2)
        two, _ = our_step(w, S, start, threads=2, steps=2)
        one_s, two_s = alternate([one, two], 40)  # the best of many: both cores must be free
        record["two_threads_speed_up"] = one_s / two_s
    return record


def compare(name: str, peers: dict) -> dict:
    """Add our log-likelihood after two steps on the rows that the peers had."""
    if "rows_of_peers" in peers:
        w, S, start = make(name)
        n = peers["rows_of_peers"]
        run, _ = our_step(w[:n], S if len(S) == 1 else S[:n], start, threads=1, steps=3)
        ours = run().log_likelihood
        theirs = peers["astroML_log_p_after_2_steps"]
        peers["log_p_relative_difference"] = abs(ours - theirs) / abs(theirs)
    return peers


def toy_to_convergence() -> dict:
    """EM from k-means on the paper's toy, 50,000 rows; the C library needs .101 s a step."""
    from planes import NOISE, toy

    from deconflow import XDGMM
    from deconflow.noise import gaussian

    rng = np.random.default_rng(0)
    w = toy(50_000, rng) + rng.normal(size=(50_000, 2)) * np.sqrt(np.diag(NOISE["toy"]))
    record = {}
    for method in ("em", "anderson"):
        model = XDGMM(3, method=method, tol=1e-6, random_state=0, n_jobs=1)
        noise = gaussian(covariance=NOISE["toy"])
        (seconds,) = alternate([lambda m=model, n=noise: m.fit(w, noise=n)], 3)
        record[method] = {
            "seconds": seconds, "steps": model.n_iter_, "log_p": model.lower_bound_,
            "c_library_seconds_for_as_many_steps": 0.101 * model.n_iter_,
        }  # fmt: skip
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default="abcdef")
    parser.add_argument("--threads", action="store_true")
    parser.add_argument("--peers")
    arguments = parser.parse_args()
    table = {}
    for name in arguments.workloads:
        table[name] = measure(name, arguments.threads)
        if arguments.peers:
            answer = subprocess.run(
                [arguments.peers, str(PEERS), name], check=True, capture_output=True, text=True
            )
            table[name] |= compare(name, json.loads(answer.stdout.splitlines()[-1]))
        print(name, json.dumps(table[name]), flush=True)
    table["toy to convergence"] = toy_to_convergence()
    print(json.dumps(table["toy to convergence"]))
    write(table)


def write(table: dict) -> None:
    file = record.RESULTS / "xd_speed.json"
    if file.exists():
        old = json.loads(file.read_text())["seconds_per_em_step"]
        table = old | {name: old.get(name, {}) | row for name, row in table.items()}
    command = " ".join(["python", *sys.argv])
    record.write("xd_speed", show=False, command=command, seconds_per_em_step=table, seed=0)


if __name__ == "__main__":
    main()
