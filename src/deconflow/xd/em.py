r"""EM, plain or accelerated: one loop, in which the likelihood never falls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.xd.acceleration import Anderson
from deconflow.xd.em_statistics import EMStatistics, PassedRows, one_pass
from deconflow.xd.layout import KernelRows
from deconflow.xd.maximisation import Constraints, maximisation


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


class Accelerator(Protocol):
    """Proposes mixtures beyond those of EM's steps."""

    def propose(
        self, before: GaussianMixture, after: GaussianMixture, sums: EMStatistics
    ) -> GaussianMixture:
        """Return a mixture to try next, from a step and the sums that it was made of."""

    def forget(self) -> None:
        """Take notice that the last proposal was refused."""


def em(
    mixture: GaussianMixture,
    rows: PassedRows,
    constraints: Constraints,
    stopping: Stopping,
    accelerator: Accelerator | None = None,
    watch: Callable[[EMResult], None] = lambda result: None,
) -> EMResult:
    """Run EM from a mixture, in the units of the rows.

    Parameters
    ----------
    mixture, rows, constraints, stopping
        Where to start, on what, within what, and until when.
    accelerator
        What proposes mixtures beyond those of EM; None for what ``stopping`` says.
    watch
        Called after every accepted step, with what there is so far.
    """
    result = EMResult(mixture)
    if accelerator is None and stopping.accelerate:
        accelerator = Anderson(constraints)
    proposal, fallback = mixture, mixture
    small_steps, enough = 0, 1 if accelerator is None else 3
    while result.n_iter < stopping.max_iter:
        sums = one_pass(proposal, rows, stopping.threads)
        value = sums.log_likelihood / rows.n_rows
        if stopping.penalised:
            value += constraints.log_prior(proposal) / rows.total_weight
        result.n_iter += 1
        if proposal is not fallback and not value >= result.log_likelihood:
            assert accelerator is not None
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
        watch(result)
        small_steps = small_steps + 1 if gain <= stopping.tol else 0
        if small_steps == enough:
            result.converged = True
            break
        if accelerator is not None:
            proposal = accelerator.propose(proposal, fallback, sums)
        else:
            proposal = fallback
    return result
