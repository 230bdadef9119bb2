"""Peak memory of a fit beyond its input: a million rows, 5 dimensions, 32 components.

    python benchmarks/xd_memory.py

Writes ``results/xd_memory.json``.
"""

import json
import resource
import sys
import time
import warnings
from pathlib import Path

import numpy as np

N, D, K = 1_000_000, 5, 32
BAR_GIB = 2.0
RESULTS = Path(__file__).parents[1] / "results"


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    from deconflow import XDGMM

    rng = np.random.default_rng(0)
    warm = rng.normal(size=(2000, D))  # compiles, and loads every library
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        XDGMM(2, max_iter=2, random_state=0).fit(warm, noise=np.stack([0.1 * np.eye(D)] * 2000))
    S = np.empty((N, D, D))
    w = np.empty((N, D))
    for lo in range(0, N, 10_000):  # made in pieces, so that making them is not the peak
        factor = 0.3 * rng.normal(size=(10_000, D, D))
        S[lo : lo + 10_000] = factor @ np.swapaxes(factor, 1, 2) + 0.05 * np.eye(D)
        centres = 3.0 * rng.integers(-2, 3, size=(10_000, D))
        w[lo : lo + 10_000] = centres + 1.2 * rng.normal(size=(10_000, D))
    before = peak_gib()
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        XDGMM(K, max_iter=3, random_state=0).fit(w, noise=S)
    record = {
        "command": " ".join(["python", *sys.argv]), "rows": N, "dimensions": D, "components": K,
        "input_gib": (w.nbytes + S.nbytes) / 2**30, "peak_before_gib": before,
        "beyond_input_gib": peak_gib() - before, "bar_gib": BAR_GIB,
        "seconds_for_3_steps": time.perf_counter() - begin,
    }  # fmt: skip
    print(json.dumps(record, indent=1))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "xd_memory.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
