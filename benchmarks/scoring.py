"""Peak memory and time of scoring 1,000,000 rows x 5 with full covariances.

Run: python -m benchmarks.scoring
"""

import resource
import time

import numpy as np

from benchmarks.record import write
from deconflow import FlowDeconvolver

ROWS, DIM, DRAWS, SEED = 1_000_000, 5, 10, 0


def peak_gib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main():
    rng = np.random.default_rng(SEED)
    covariance = np.zeros((ROWS, DIM, DIM))
    covariance[:, range(DIM), range(DIM)] = rng.uniform(0.1, 0.5, size=(ROWS, DIM))
    covariance += 0.02
    w = rng.normal(size=(ROWS, DIM))
    model = FlowDeconvolver(epochs=1, random_state=SEED).fit(w[:5000], noise=covariance[:5000])
    before = peak_gib()
    seconds = {}
    for name, call in {
        "score_samples": lambda: model.score_samples(w),
        "score": lambda: model.score(w, noise=covariance, n_samples=DRAWS),
    }.items():
        start = time.perf_counter()
        value = call()
        seconds[name] = round(time.perf_counter() - start, 1)
        assert np.isfinite(value).all()
    write(
        "benchmark_scoring",
        what=__doc__.split("\n")[0],
        settings={"rows": ROWS, "dim": DIM, "draws": DRAWS, "seed": SEED},
        seconds=seconds,
        peak_gib_with_the_data_before_scoring=round(before, 2),
        peak_gib=round(peak_gib(), 2),
    )


if __name__ == "__main__":
    main()
