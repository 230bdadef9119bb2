"""Seconds of an EM step of astroML and pygmmis on one workload, in an environment of their own.

    /tmp/peers/bin/python benchmarks/xd_peers.py a      (pip install astroML pygmmis)

They are slow: a share of the rows is timed, two and five steps, and the difference scaled up.
Prints one line of JSON; ``xd_speed.py --peers`` reads it.
"""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from xd_speed import make

SHARE = {"a": 0.1, "b": 0.05, "c": 0.05, "d": 0.02, "e": 0.01}


def seconds_a_step(run, scale):
    def timed(steps):
        begin = time.perf_counter()
        run(steps)
        return time.perf_counter() - begin

    timed(1)
    return (timed(5) - timed(2)) / 3 / scale


def astro_ml(w, S, start):
    """Time its E and M steps alone: ``fit`` starts with a scikit-learn mixture of its own."""
    from astroML.density_estimation import XDGMM

    def run(steps):
        model = XDGMM(n_components=len(start[0]))
        model.alpha, model.mu, model.V = (part.copy() for part in start)
        for _ in range(steps):
            model._EMstep(w, S)
        return model

    return run


def pygmmis_fit(w, S, start):
    import pygmmis

    def run(steps):
        model = pygmmis.GMM(K=len(start[0]), D=w.shape[1])
        model.amp[:], model.mean[:], model.covar[:] = start
        pygmmis.fit(
            model, w, covar=S, init_method="none", maxiter=steps, tol=-np.inf,
            rng=np.random.RandomState(0), w=0.0,
        )  # fmt: skip

    return run


def log_p_after_2_steps(w, S, start) -> float:
    """Mean log-likelihood, to compare with ours on the same rows from the same start."""
    return float(astro_ml(w, S, start)(2).logL(w, S) / len(w))


def main() -> None:
    import logging

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    name = sys.argv[1]
    record: dict[str, object] = {}
    if name in SHARE:
        w, S, start = make(name)
        n = int(SHARE[name] * len(w))
        w, S = w[:n], np.broadcast_to(S, (len(w), *S.shape[1:]))[:n].copy()
        for peer, function in (("astroML", astro_ml), ("pygmmis", pygmmis_fit)):
            try:
                record[peer] = seconds_a_step(function(w, S, start), SHARE[name])
            except Exception as error:  # a peer that does not run is a finding, not a failure
                record[peer] = f"{type(error).__name__}: {error}"
        record["astroML_log_p_after_2_steps"] = log_p_after_2_steps(w, S, start)
        record["rows_of_peers"] = n
    print(json.dumps(record))


if __name__ == "__main__":
    main()
