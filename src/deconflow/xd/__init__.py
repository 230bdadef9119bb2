"""Extreme Deconvolution: Gaussian mixtures of the truth, by EM under per-row noise.

``lay_out`` turns observations into rows for the kernel; ``expectation`` passes over them and
returns additive ``Sums``; ``maximisation`` makes a mixture of these; ``em`` repeats both.
``PreparedData.fit`` starts and runs EM as ``FitSettings`` say, ``CrossFits`` does so without each
fold of the rows, and ``fit_averaged`` averages such fits of more and more components.
``gibbs`` sweeps over the same rows for a Bayesian mixture; ``sample_chains`` runs several chains.
"""

from deconflow.xd.cross_fits import (
    Candidate,
    CrossFits,
    Fold,
    log_average,
    log_p,
    make_folds,
    numbered_folds,
    paired,
    shares_of,
    stacked,
    wins,
)
from deconflow.xd.em import EMResult, Stopping, em
from deconflow.xd.expectation import Sums, expectation
from deconflow.xd.fit import (
    COMPONENTS_TO_TRY,
    FITTING,
    SMALLEST_VARIANCE,
    STARTS,
    FitSettings,
    PreparedData,
    fit_exact,
    made_feasible,
    n_parameters,
    price,
)
from deconflow.xd.gibbs import (
    FLOORS,
    Chain,
    ChainSettings,
    sample_chains,
    single_rows,
    starts_of_chains,
    telling_rows,
)
from deconflow.xd.kernel.passes import compiled_rows
from deconflow.xd.ladder import N_FOLDS, AveragedFit, Everything, fit_averaged, who_chose
from deconflow.xd.layout import Block, KernelRows, lay_out, row_weights
from deconflow.xd.many_rows import (
    NO_FOLD,
    Adam,
    FoldedRows,
    Job,
    Minibatches,
    fit_minibatch,
    fit_samples,
    fit_together,
    fold_numbers,
    step_on_batch,
)
from deconflow.xd.maximisation import (
    Constraints,
    EMStatistics,
    maximisation,
    statistics,
    with_floor,
)
from deconflow.xd.populations import (
    KnownPartsFit,
    fit_selected,
    fit_with_known_parts,
    memberships,
    refit_with_known_parts,
    shares_of_parts,
)
from deconflow.xd.posterior import posterior, posterior_pieces

__all__ = [
    "COMPONENTS_TO_TRY",
    "FITTING",
    "FLOORS",
    "NO_FOLD",
    "N_FOLDS",
    "SMALLEST_VARIANCE",
    "STARTS",
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
    "Minibatches",
    "PreparedData",
    "Stopping",
    "Sums",
    "compiled_rows",
    "em",
    "expectation",
    "fit_averaged",
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
    "memberships",
    "n_parameters",
    "numbered_folds",
    "paired",
    "posterior",
    "posterior_pieces",
    "price",
    "refit_with_known_parts",
    "row_weights",
    "sample_chains",
    "shares_of",
    "shares_of_parts",
    "single_rows",
    "stacked",
    "starts_of_chains",
    "statistics",
    "step_on_batch",
    "telling_rows",
    "who_chose",
    "wins",
    "with_floor",
]  # fmt: skip


def __dir__() -> list[str]:
    return list(__all__)
