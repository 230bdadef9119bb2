"""Noise that is not Gaussian: the toy with Student-t(3) and Laplace noise, seeds 0-4.

    python benchmarks/xd_laws.py

Excess of -log p(v) over the truth's on clean rows, with the noise's law written as a mixture of
Gaussians, and with Gaussian noise of the law's scale. Writes ``results/xd_laws.json``.
"""

from __future__ import annotations

import json
import platform
import sys
import time

import numpy as np
from xd_choice import NOISE, RESULTS, TEST_ROWS, toy, true_log_p

ROWS = 50_000
SETTINGS = {"n_components": 3, "floor": 0.1, "tol": 1e-8}
SCALE = np.sqrt(np.diag(NOISE["toy"]))


def run(name: str, seed: int) -> dict:
    from deconflow import XDGMM, noise

    rng = np.random.default_rng(seed)
    v, test = toy(ROWS, rng), toy(TEST_ROWS, rng)
    if name == "student_t(3)":
        law, white = noise.student_t(SCALE, df=3.0), rng.standard_t(3, size=v.shape)
    else:
        law, white = noise.laplace(SCALE), rng.laplace(size=v.shape)
    w, truth = v + SCALE * white, true_log_p("toy", test).mean()
    record: dict = {"law": name, "seed": seed}
    for key, given in (("excess", law), ("excess_if_taken_as_gaussian", SCALE)):
        begin = time.perf_counter()
        model = XDGMM(random_state=seed, **SETTINGS).fit(w, noise=given)
        record[key] = float(truth - model.score_samples(test).mean())
        record[key + "_seconds"] = time.perf_counter() - begin
    return record


def main() -> None:
    runs = []
    for name in ("student_t(3)", "laplace"):
        for seed in range(5):
            runs.append(run(name, seed))
            print(json.dumps(runs[-1]), flush=True)
    record = {
        "command": " ".join(["python", *sys.argv]), "settings": SETTINGS | {"rows": ROWS},
        "runs": runs, "versions": {"numpy": np.__version__, "python": platform.python_version()},
    }  # fmt: skip
    (RESULTS / "xd_laws.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
