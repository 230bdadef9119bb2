r"""EM, plain or accelerated: one loop, in which the likelihood never falls.

Steps are accelerated in coordinates without constraints, by Anderson's method; over many rows by
quasi-Newton, with the curvature of a sample. EM may need hundreds of passes where components
overlap. A sample in memory is passed over quickly and has nearly the curvature of all rows, so that
the first step from the sample's optimum is nearly Newton's; what curvature it does not have right,
BFGS learns from the passes.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.xd.layout import KernelRows, lower_triangle
from deconflow.xd.maximisation import Constraints, EMStatistics, maximisation, one_pass, with_floor

#: Earlier steps from which Anderson's method extrapolates.
MEMORY = 10
#: Of the largest: below it a sample's curvature is mostly chance, and its steps too long.
LEAST_CURVATURE = 1e-4
#: How far away, in coordinates of order one, slopes are compared to find the curvature.
NEARBY = 1e-4


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


@dataclass
class Anderson:
    r"""Extrapolates from the last EM steps, under constraints.

    With :math:`x` the parameters before and :math:`F(x)` after a step, and
    :math:`f = F(x) - x`, the proposal is :math:`F(x) - \Delta F \gamma`, where :math:`\gamma`
    solves the least squares :math:`\min |f - \Delta f \gamma|`. Coordinates are log weights, means
    and log-Cholesky factors. The caller refuses a proposal that lowers the likelihood.

    References
    ----------
    Walker and Ni (2011), "Anderson Acceleration for Fixed-Point Iterations"; Henderson and
    Varadhan (2019), "Damped Anderson Acceleration with Restarts", https://arxiv.org/abs/1803.06673
    """

    constraints: Constraints
    #: Coordinates before and after each of the last steps.
    history: list[tuple[Array, Array]] = field(default_factory=list)

    def forget(self) -> None:
        """Start anew, after a refused proposal."""
        self.history = []

    def propose(
        self, before: GaussianMixture, after: GaussianMixture, sums: object = None
    ) -> GaussianMixture:
        """Return a mixture beyond ``after``, or ``after`` itself while there is no history."""
        self.history = [*self.history[-MEMORY:], (coordinates(before), coordinates(after))]
        if len(self.history) < 2:
            return after
        x, fx = map(np.stack, zip(*self.history, strict=True))
        residuals = fx - x
        U, s, Vt = np.linalg.svd(np.diff(residuals, axis=0).T, full_matrices=False)
        damped = s / (s**2 + (1e-6 * s[0]) ** 2 + 1e-300)
        gamma = Vt.T @ (damped * (U.T @ residuals[-1]))
        return mixture_at(fx[-1] - np.diff(fx, axis=0).T @ gamma, after, self.constraints)


@dataclass
class QuasiNewton:
    """Proposes mixtures as :class:`Anderson` does, from slopes.

    Attributes
    ----------
    constraints : Constraints
        What every mixture must respect.
    inverse : array
        ``(P, P)``: inverse curvature of the mean log-likelihood; see :func:`inverse_curvature`.
    """

    constraints: Constraints
    inverse: Array
    last: tuple[Array, Array] | None = None
    length: float = 1.0

    def forget(self) -> None:
        """Be more careful after a refused proposal."""
        self.length *= 0.5

    def propose(
        self, before: GaussianMixture, after: GaussianMixture, sums: EMStatistics
    ) -> GaussianMixture:
        """Return a mixture beyond ``before``, whose sums these are; ``after`` if there is none."""
        x, slope = coordinates(before), slopes(before, sums)
        if self.last is not None:  # correct the curvature by how the slope has changed (BFGS)
            step, change = x - self.last[0], self.last[1] - slope
            along = step @ change
            if along > 1e-12 * np.linalg.norm(step) * np.linalg.norm(change):
                left = np.eye(len(step)) - np.outer(step, change) / along
                self.inverse = left @ self.inverse @ left.T + np.outer(step, step) / along
        self.last = x, slope
        step = self.length * self.inverse @ slope
        self.length = min(1.0, 2.0 * self.length)
        return mixture_at(x + step, after, self.constraints)


def coordinates(mixture: GaussianMixture) -> Array:
    """Return log weights, means and log-Cholesky factors, which may have any value."""
    try:
        factors = np.linalg.cholesky(mixture.covariances)
    except np.linalg.LinAlgError:  # only without a floor
        tiny = 1e-14 * np.eye(mixture.dim)
        factors = np.linalg.cholesky(with_floor(mixture.covariances, tiny))
    i, j = lower_triangle(mixture.dim, -1)
    diagonal = np.diagonal(factors, axis1=1, axis2=2)
    log_weights = np.log(np.maximum(mixture.weights, 1e-300))
    scale = diagonal[:, i]  # rows of a factor in units of its own pivot
    parts = (log_weights, mixture.means, np.log(diagonal), factors[:, i, j] / scale)
    return np.concatenate([part.ravel() for part in parts])


def mixture_at(x: Array, like: GaussianMixture, constraints: Constraints) -> GaussianMixture:
    """Return the mixture at some coordinates, fixed parts as in ``like``; that if there is none."""
    K, D = like.means.shape
    i, j = lower_triangle(D, -1)
    log_weights, means, log_diagonal, below = np.split(x, np.cumsum([K, K * D, K * D]))
    if not np.isfinite(x).all() or np.abs(log_diagonal).max() > 300:
        return like
    diagonal = np.exp(log_diagonal.reshape(K, D))
    factors = np.zeros((K, D, D))
    factors[:, np.arange(D), np.arange(D)] = diagonal
    factors[:, i, j] = below.reshape(K, -1) * diagonal[:, i]
    covariances = with_floor(factors @ np.swapaxes(factors, 1, 2), constraints.floor)
    weights = np.exp(log_weights - log_weights.max())
    return constraints.kept(like, weights, means.reshape(K, D), covariances)


def slopes(mixture: GaussianMixture, sums: EMStatistics) -> Array:
    """Gradient of the mean log-likelihood in the coordinates of a mixture, from its sums."""
    factors = np.linalg.cholesky(mixture.covariances)
    precisions = np.linalg.inv(mixture.covariances)
    i, j = lower_triangle(mixture.dim, -1)
    of_means = np.einsum("kij,kj->ki", precisions, sums.vu)
    of_factors = precisions @ sums.vgv @ np.swapaxes(np.linalg.inv(factors), 1, 2)
    pivots = np.diagonal(factors, axis1=1, axis2=2)
    of_pivots = (np.tril(of_factors) * factors).sum(2)  # a pivot scales all of its row
    of_weights = sums.q0 - sums.weight * mixture.weights
    parts = (of_weights, of_means, of_pivots, of_factors[:, i, j] * pivots[:, i])
    return np.concatenate([part.ravel() for part in parts]) / sums.weight


def inverse_curvature(
    mixture: GaussianMixture,
    rows: KernelRows,
    constraints: Constraints,
    threads: int | None,
) -> Array:
    """Return the inverse curvature of rows' mean log-likelihood at a mixture, by differences."""
    x = coordinates(mixture)
    here = slopes(mixture, one_pass(mixture, rows, threads))
    curvature = np.empty((len(x), len(x)))
    for d in range(len(x)):
        there = mixture_at(x + NEARBY * (np.arange(len(x)) == d), mixture, constraints)
        curvature[d] = (here - slopes(there, one_pass(there, rows, threads))) / NEARBY
    values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    sizes = np.abs(values)  # where the sample stands at a saddle, steps lead away from it
    return (vectors / np.maximum(sizes, LEAST_CURVATURE * sizes.max())) @ vectors.T


def em(
    mixture: GaussianMixture,
    rows: KernelRows | Callable[[GaussianMixture], EMStatistics],
    constraints: Constraints,
    stopping: Stopping,
) -> EMResult:
    """Run EM from a mixture, in the units of the rows; these are laid out, or a pass over them."""
    going = steps(mixture, constraints, stopping)
    passed = rows if callable(rows) else partial(one_pass, rows=rows, threads=stopping.threads)
    try:
        proposal = next(going)
        while True:
            proposal = going.send(passed(proposal))
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
    while result.n_iter < stopping.max_iter and not result.converged:
        sums = yield proposal
        value = sums.log_likelihood / sums.n_rows
        if stopping.penalised:
            value += constraints.log_prior(proposal) / sums.weight
        result.n_iter += 1
        if accelerator and proposal is not fallback and not value >= result.log_likelihood:
            accelerator.forget()
            proposal = fallback
            continue
        gain, result.log_likelihood = value - result.log_likelihood, value
        if np.isnan(value):  # only without a floor: some V + S is not positive definite
            break
        result.history.append(value)
        result.mixture = fallback = maximisation(proposal, sums, constraints)
        small_steps = small_steps + 1 if gain <= stopping.tol else 0
        result.converged = small_steps == enough
        proposal = accelerator.propose(proposal, fallback, sums) if accelerator else fallback
    return result
