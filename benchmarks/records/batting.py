"""Normal means: batting in 2022 (``woba.csv``), by the likelihood of the fitted prior."""

from pathlib import Path

import numpy as np

from benchmarks.records import estimators
from benchmarks.records.section import Section, Task
from benchmarks.runs import Run

SOURCE = "R package [ebnm](https://cran.r-project.org/package=ebnm)"
PUBLISHED = {"normal": 989.64, "unimodal": 992.66, "NPMLE, the ceiling of any prior": 994.193}
#: No prior has a larger likelihood: who claims more is wrong.
CEILING = 994.20


def run(task: Task, folder: Path) -> Run:
    """Fit all rows, and sum ``log p(w)`` over the same rows, as the published figures do."""
    table = np.genfromtxt(folder / "woba.csv", delimiter=",", names=True)
    w, sd = table["x"][:, None], table["s"][:, None]
    model, seconds = estimators.fit(task["estimator"], task["seed"], w, sd)
    estimate = model.log_marginal(w, sd)
    total, error = estimate.log_p.sum(), np.sqrt(np.square(estimate.error).sum())
    return {**task, "total": total, "error": error, "seconds": seconds, "rows_fitted": len(w)}


SECTION = Section(
    "batting", ("xd-1", "xd", "bayes", "spline", "quick", "deconvolver"), (0,), {}, run
)
