"""What 20,000 noisy rows of the toy can say: maximum likelihood with the right family.

    python -m benchmarks.xd_toy_limit [--seeds ...]

Three components, no floor, the best of ten starts. Its excess over the truth is what sampling
alone costs.
"""

import argparse
import warnings

import numpy as np

from benchmarks.planes import NOISE, toy, true_log_p
from benchmarks.record import write

ROWS, TEST_ROWS = 20_000, 50_000


def run(seed):
    from deconflow import XDGMM
    from deconflow.noise import gaussian

    rng = np.random.default_rng(seed)
    v, test = toy(ROWS, rng), toy(TEST_ROWS, rng)
    S = NOISE["toy"]
    w = v + (np.linalg.cholesky(S) @ rng.normal(size=(ROWS, 2, 1)))[..., 0]
    model = XDGMM(3, n_init=10, tol=1e-8, max_iter=3000, random_state=seed)
    model.fit(w, noise=gaussian(covariance=S))
    excess = true_log_p("toy", test).mean() - model.score_samples(test).mean()
    thin = sorted(float(np.linalg.eigvalsh(c)[0]) for c in model.covariances_)
    return {"seed": seed, "excess": float(excess), "smallest_variances": thin}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(5), *range(30, 35)])
    warnings.simplefilter("ignore")
    write("xd_toy_limit", runs=[run(seed) for seed in parser.parse_args().seeds])


if __name__ == "__main__":
    main()
