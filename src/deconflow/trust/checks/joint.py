"""Rows as a whole, by ranks of ``log p(w)``."""

import numpy as np

from deconflow.trust.check import DEGREES, Case, Check, Finding, shape

#: The mean of a polynomial of ranks, whose standard deviation is one, may be off by about this
#: much: mixtures round sharp edges.
SLACK = 0.01


def _test(case: Case) -> Finding:
    table = case.of_model
    log_p = table.view.log_p
    simulated = np.sort(log_p[:, 1:], axis=None)
    rank = (np.searchsorted(simulated, log_p) + 0.5) / (simulated.size + 1)
    sums = table.sums([shape(degree, rank) for degree in DEGREES])
    p, gain = sums.together(SLACK * table.weights.sum())
    return Finding(p=p, gain=gain)


CHECK = Check(
    "rows as a whole", "simulated rows against real ones, by ranks of log p(w)", _test,
    "simulated rows do not look like the real ones as a whole: there are too many or too few "
    "unusual rows. The errors may be wrong, or the model too simple",
    kind="fit",
)  # fmt: skip
