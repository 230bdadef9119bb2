"""Extreme Deconvolution: Gaussian mixtures of the truth, by EM under per-row noise.

``lay_out`` turns observations into rows for the kernel; ``expectation`` passes over them and
returns additive ``Sums``; ``maximisation`` makes a mixture of these; ``em`` repeats both.
``PreparedData.fit`` starts and runs EM as ``FitSettings`` say, ``CrossFits`` does so without each
fold of the rows, and ``choose``, ``compare``, ``average_over_folds`` and ``fit_averaged`` are rules
over such fits.
``gibbs`` sweeps over the same rows for a Bayesian mixture; ``sample_chains`` runs several chains.
"""

from deconflow.xd.averaged import AveragedFit, who_chose
from deconflow.xd.chains import (
    FLOORS,
    Chain,
    ChainSettings,
    sample_chains,
    single_rows,
    starts_of_chains,
    telling_rows,
)
from deconflow.xd.choose import STARTS_TO_COMPARE, average_over_folds, choose, fit_average
from deconflow.xd.compare import compare
from deconflow.xd.cross_fits import (
    Candidate,
    CrossFits,
    Fold,
    log_p,
    make_folds,
    numbered_folds,
    row_weights,
)
from deconflow.xd.em import EMResult, Stopping, em, mean_log_likelihood
from deconflow.xd.em_statistics import EMStatistics, statistics
from deconflow.xd.expectation import Sums, expectation
from deconflow.xd.fit import (
    COMPONENTS_TO_TRY,
    FITTING,
    SMALLEST_VARIANCE,
    FitSettings,
    PreparedData,
    fit_exact,
    made_feasible,
    n_parameters,
)
from deconflow.xd.known_parts import (
    KnownPartsFit,
    fit_with_known_parts,
    memberships,
    shares_of_parts,
)
from deconflow.xd.ladder import (
    CLEARLY,
    Everything,
    fit_averaged,
)
from deconflow.xd.layout import Block, KernelRows, lay_out
from deconflow.xd.many_rows import Watch, fit_everything, fit_samples
from deconflow.xd.maximisation import Constraints, maximisation
from deconflow.xd.minibatch import Adam, fit_minibatch, step_on_batch
from deconflow.xd.posterior import posterior, posterior_pieces
from deconflow.xd.selected import SelectedFit, fit_selected
from deconflow.xd.shared_passes import FoldedRows, Job, fit_together, fold_numbers
from deconflow.xd.shares import log_average, paired, shares_of, stacked, wins
from deconflow.xd.split_merge import split_and_merge
from deconflow.xd.starts import STARTS
from deconflow.xd.streamed_rows import StreamedRows

__all__ = [
    "CLEARLY",
    "COMPONENTS_TO_TRY",
    "FITTING",
    "FLOORS",
    "SMALLEST_VARIANCE",
    "STARTS",
    "STARTS_TO_COMPARE",
    "Adam",
    "AveragedFit",
    "Block",
    "Candidate",
    "Chain",
    "ChainSettings",
    "Constraints",
    "CrossFits",
    "EMResult",
    "EMStatistics",
    "Everything",
    "FitSettings",
    "Fold",
    "FoldedRows",
    "Job",
    "KernelRows",
    "KnownPartsFit",
    "PreparedData",
    "SelectedFit",
    "Stopping",
    "StreamedRows",
    "Sums",
    "Watch",
    "average_over_folds",
    "choose",
    "compare",
    "em",
    "expectation",
    "fit_average",
    "fit_averaged",
    "fit_everything",
    "fit_exact",
    "fit_minibatch",
    "fit_samples",
    "fit_selected",
    "fit_together",
    "fit_with_known_parts",
    "fold_numbers",
    "lay_out",
    "log_average",
    "log_p",
    "made_feasible",
    "make_folds",
    "maximisation",
    "mean_log_likelihood",
    "memberships",
    "n_parameters",
    "numbered_folds",
    "paired",
    "posterior",
    "posterior_pieces",
    "row_weights",
    "sample_chains",
    "shares_of",
    "shares_of_parts",
    "single_rows",
    "split_and_merge",
    "stacked",
    "starts_of_chains",
    "statistics",
    "step_on_batch",
    "telling_rows",
    "who_chose",
    "wins",
]  # fmt: skip


def __dir__() -> list[str]:
    return list(__all__)
