r"""EM, plain or accelerated: one loop, in which the likelihood never falls."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import numpy as np

from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.xd.acceleration import Anderson
from deconflow.xd.curvature import QuasiNewton
from deconflow.xd.em_statistics import EMStatistics, one_pass
from deconflow.xd.layout import KernelRows
from deconflow.xd.maximisation import Constraints, maximisation

PassedRows = KernelRows | Callable[[GaussianMixture], EMStatistics]


@dataclass(frozen=True)
class Stopping:
    """When to stop, and how to get there.

    Attributes
    ----------
    tol : float
        Stop when a step gains at most this much in mean log-likelihood; accelerated, when three
        in a row do, for such steps are uneven.
    max_iter : int
        Largest number of steps.
    accelerate : bool
        Whether to extrapolate from the last steps (Anderson), safeguarded.
    threads : int or None
        How many to use at most; None for one per processor.
    penalised : bool
        Whether the prior on covariances counts in what must not fall and in when to stop; the C
        library looks at the likelihood alone.
    """

    tol: float = 1e-6
    max_iter: int = 1000
    accelerate: bool = False
    threads: int | None = None
    penalised: bool = False


@dataclass
class EMResult:
    """Where EM ended.

    Attributes
    ----------
    mixture : GaussianMixture
        In the units of the rows.
    log_likelihood : float
        Mean log-likelihood of ``mixture``'s predecessor: that of the last pass.
    history : list of float
        Mean log-likelihood of every accepted step.
    converged : bool
        Whether the last step gained at most ``tol``.
    n_iter : int
        Number of passes over the rows.
    """

    mixture: GaussianMixture
    log_likelihood: float = -np.inf
    history: list[float] = field(default_factory=list)
    converged: bool = False
    n_iter: int = 0


def mean_log_likelihood(log_p: Array, rows: KernelRows) -> float:
    """Mean of the rows' log-likelihoods, by their weights."""
    return float(log_p.mean() if rows.weights is None else (rows.weights @ log_p) / rows.n_rows)


def em(
    mixture: GaussianMixture, rows: PassedRows, constraints: Constraints, stopping: Stopping
) -> EMResult:
    """Run EM from a mixture, in the units of the rows; these are laid out, or a pass over them."""
    going = steps(mixture, constraints, stopping)
    proposal = next(going)
    while True:
        if isinstance(rows, KernelRows):
            sums = one_pass(proposal, rows, stopping.threads)
        else:
            sums = rows(proposal)
        try:
            proposal = going.send(sums)
        except StopIteration as ended:
            return ended.value


def steps(
    mixture: GaussianMixture,
    constraints: Constraints,
    stopping: Stopping,
    accelerator: Anderson | QuasiNewton | None = None,
) -> Generator[GaussianMixture, EMStatistics, EMResult]:
    """Yield one mixture after another, be sent the sums of a pass with it, and return the end.

    ``accelerator`` proposes mixtures beyond those of EM; None for what ``stopping`` says.
    """
    result = EMResult(mixture)
    if accelerator is None and stopping.accelerate:
        accelerator = Anderson(constraints)
    proposal, fallback = mixture, mixture
    small_steps, enough = 0, 1 if accelerator is None else 3
    while result.n_iter < stopping.max_iter:
        sums = yield proposal
        value = sums.log_likelihood / sums.n_rows
        if stopping.penalised:
            value += constraints.log_prior(proposal) / sums.weight
        result.n_iter += 1
        if accelerator and proposal is not fallback and not value >= result.log_likelihood:
            accelerator.forget()
            proposal = fallback
            continue
        if np.isnan(value):  # only without a floor: some V + S is not positive definite
            result.log_likelihood = value
            break
        gain = value - result.log_likelihood
        result.history.append(value)
        result.log_likelihood = value
        result.mixture = fallback = maximisation(proposal, sums, constraints)
        small_steps = small_steps + 1 if gain <= stopping.tol else 0
        if small_steps == enough:
            result.converged = True
            break
        proposal = accelerator.propose(proposal, fallback, sums) if accelerator else fallback
    return result
