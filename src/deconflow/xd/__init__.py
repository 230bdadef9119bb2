"""Extreme Deconvolution: Gaussian mixtures of the truth, by EM under per-row noise.

``lay_out`` turns observations into rows for the kernel; ``expectation`` passes over them and
returns additive ``Sums``; ``maximisation`` makes a mixture of these; ``em`` repeats both.
``PreparedData.fit`` starts and runs EM as ``FitSettings`` say, ``CrossFits`` does so without each
fold of the rows, and ``choose``, ``compare`` and ``fit_averaged`` are rules over such fits.
"""

from deconflow.xd.choose import (
    CLEARLY,
    AveragedFit,
    Candidate,
    CrossFits,
    Fold,
    choose,
    compare,
    fit_average,
    fit_averaged,
    log_p,
    n_parameters,
    paired,
    row_weights,
)
from deconflow.xd.em import EMResult, Stopping, em, mean_log_likelihood
from deconflow.xd.expectation import Sums, expectation
from deconflow.xd.fit import SMALLEST_VARIANCE, FitSettings, PreparedData, fit_exact, made_feasible
from deconflow.xd.layout import Block, KernelRows, lay_out
from deconflow.xd.maximisation import Constraints, maximisation
from deconflow.xd.minibatch import Adam, fit_minibatch, step_on_batch
from deconflow.xd.posterior import posterior, posterior_pieces
from deconflow.xd.split_merge import split_and_merge
from deconflow.xd.starts import STARTS

__all__ = [
    "CLEARLY", "SMALLEST_VARIANCE", "STARTS", "Adam", "AveragedFit", "Block", "Candidate",
    "Constraints", "CrossFits", "EMResult", "FitSettings", "Fold", "KernelRows",
    "PreparedData", "Stopping", "Sums", "choose", "compare", "em",
    "expectation", "fit_average", "fit_averaged", "fit_exact", "fit_minibatch", "lay_out", "log_p",
    "made_feasible", "maximisation", "mean_log_likelihood", "n_parameters", "paired", "posterior",
    "posterior_pieces", "row_weights", "split_and_merge", "step_on_batch",
]  # fmt: skip
