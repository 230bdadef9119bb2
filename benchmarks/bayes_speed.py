"""Gibbs sweeps of ``BayesianXDGMM`` against EM passes, on the same rows and components.

    python -m benchmarks.bayes_speed

The same cases as ``benchmarks.xd_speed`` counts, one thread, in one run: passes and sweeps take
turns, the median of each counts. Bar: a sweep takes at most twice the time of an EM step. Writes
``results/bayes_speed.json``.
"""

import time

import numpy as np

from benchmarks.record import write

BAR = 2.0
ROUNDS = 15
CASES = {
    "50k x 2, K 16, shared": (50_000, 2, 16, "shared"),
    "50k x 2, K 16, full": (50_000, 2, 16, "full"),
    "4.4k x 9, K 80, shared": (4_400, 9, 80, "shared"),
    "20k x 5, K 32, full": (20_000, 5, 32, "full"),
    "20k x 9, K 64, full": (20_000, 9, 64, "full"),
    "100k x 3, K 20, diagonal": (100_000, 3, 20, "diagonal"),
    "20k x 4, K 10, full, 30 % miss 2": (20_000, 4, 10, "missing"),
}


def rows_of(n, dim, kind, seed=0):
    """Rows of eight clumps, with noise of a kind."""
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(n, dim)) + 3.0 * rng.normal(size=(8, dim))[rng.integers(8, size=n)]
    if kind == "shared":
        noise = np.full(dim, 0.5)
        return v + 0.5 * rng.normal(size=v.shape), noise
    if kind == "diagonal":
        noise = rng.uniform(0.2, 0.8, size=v.shape)
        return v + noise * rng.normal(size=v.shape), noise
    factor = 0.3 * rng.normal(size=(n, dim, dim))
    noise = factor @ np.swapaxes(factor, 1, 2) + 0.05 * np.eye(dim)
    w = v + (np.linalg.cholesky(noise) @ rng.normal(size=(n, dim, 1)))[..., 0]
    if kind == "missing":
        w[rng.uniform(size=n) < 0.3, :2] = np.nan
    return w, noise


def measure(n, dim, components, kind):
    """Median seconds of an EM step and of a sweep, from the same mixture, taking turns."""
    from sklearn.utils import check_random_state

    from deconflow.observations import Observations
    from deconflow.xd import FitSettings, PreparedData, Stopping, expectation, maximisation
    from deconflow.xd.gibbs import Prior, Sweeper, begin

    prepared = PreparedData(Observations.from_arrays(*rows_of(n, dim, kind)))
    stopping = Stopping(max_iter=10, threads=1)
    settings = FitSettings(components, floor=0.1, stopping=stopping)
    rows, constraints = prepared.rows, settings.constraints(prepared)
    fitted = prepared.fit(settings, check_random_state(0)).mixture
    mixture = rows.units.mixture_to_standard(fitted)
    prior = Prior(mixture.mean, mixture.covariance, constraints.floor)
    sweeper = Sweeper(rows, prior, np.random.default_rng(0))
    state = begin(mixture, components, prior, rows.total_weight)
    sweeper.sweep(state)
    times = {"em": [], "sweep": []}
    for _ in range(ROUNDS):
        start = time.perf_counter()
        mixture = maximisation(mixture, expectation(mixture, rows, threads=1), constraints)
        middle = time.perf_counter()
        sweeper.sweep(state)
        times["em"].append(middle - start)
        times["sweep"].append(time.perf_counter() - middle)
    em, sweep = (float(np.median(values)) for values in times.values())
    return {"em": em, "sweep": sweep, "ratio": sweep / em}


def main() -> None:
    found = {}
    for name, case in CASES.items():
        found[name] = measure(*case)
        print(name, {key: round(value, 5) for key, value in found[name].items()}, flush=True)
    ratios = [each["ratio"] for each in found.values()]
    write("bayes_speed", bar=BAR, worst=max(ratios), cases=found)


if __name__ == "__main__":
    main()
