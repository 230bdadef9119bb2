r"""A mixture of all truths, from rows of which only some were seen.

EM where the unseen rows are missing data: beside the sums of the seen rows stand those of the
unseen ones, as the mixture has them. With the chance :math:`F_i(v)` to be seen under the law of
row ``i``, the log-likelihood of the seen rows is

.. math:: \sum_i \log p(w_i) - \sum_i \log \int p(v) F_i(v) \, dv

The second sum is over some laws that stand for all; its integrals are by quasi-random points of
each component, that move with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.xd.acceleration import Anderson
from deconflow.xd.cross_fits import row_weights
from deconflow.xd.expectation import Sums, expectation
from deconflow.xd.fit import FitSettings, PreparedData, n_parameters
from deconflow.xd.maximisation import maximisation

FLOOR, POINTS, FEWEST_POINTS = 0.1, 1024, 128
"""Points are shared out among components: the error of their integral counts once per row."""
FEW_STEPS, MANY_STEPS, MOST_ACCELERATED = 150, 600, 2
"""Few steps of many components on purpose: more of them fit chance where little is seen. One or two
have no such freedom, and go on to the end."""
PRECISE, ENOUGH = 1e-9, 3
"""The end: so many steps in a row that gain less than this per row."""


@dataclass(frozen=True)
class SelectedFit:
    """A mixture of all truths, and how it does on the rows that were seen.

    Attributes
    ----------
    mixture : GaussianMixture
        In the user's units.
    worth : float
        Log-likelihood of all rows together, less what parameters cost by BIC.
    """

    mixture: GaussianMixture
    worth: float


def fit_selected(
    prepared: PreparedData,
    start: GaussianMixture,
    chances: Callable[[Array], Array],
    shares: Array,
    threads: int | None = None,
) -> SelectedFit:
    """Fit a mixture of all truths, from one that is near.

    Parameters
    ----------
    prepared
        The rows that were seen.
    start
        A mixture in the user's units.
    chances
        Gives the chance ``(L, P)`` of truths ``(P, D)`` to be seen, with each of ``L`` laws of
        noise.
    shares
        ``(L,)``: the share of the rows that each law stands for.
    threads
        How many to use at most.
    """
    count = start.n_components
    step = _Step(prepared, chances, shares, count, threads)
    constraints = FitSettings(count, floor=FLOOR).constraints(prepared)
    proposal = mixture = prepared.begin(start, constraints)
    anderson = Anderson(constraints) if count <= MOST_ACCELERATED else None
    value, small_steps, rows = -np.inf, 0, len(prepared.data)
    for _ in range(FEW_STEPS if anderson is None else MANY_STEPS):
        new, sums = step(proposal)
        if anderson is not None and proposal is not mixture and not new >= value:
            anderson.forget()
            proposal = mixture
            continue
        small_steps = small_steps + 1 if new - value < PRECISE * rows else 0
        value, mixture = new, maximisation(proposal, sums, constraints)
        if small_steps == ENOUGH:
            break
        proposal = mixture if anderson is None else anderson.propose(proposal, mixture)
    cost = 0.5 * n_parameters(count, mixture.dim) * np.log(rows)
    return SelectedFit(prepared.rows.units.mixture_from_standard(mixture), value - cost)


class _Step:
    """One pass: the log-likelihood, and the sums of seen and unseen rows."""

    def __init__(
        self,
        prepared: PreparedData,
        chances: Callable[[Array], Array],
        shares: Array,
        count: int,
        threads: int | None,
    ) -> None:
        self.rows, self.chances, self.threads = prepared.rows, chances, threads
        self.weights = row_weights(prepared.data)
        self.counts = shares * self.weights.sum()
        each = max(FEWEST_POINTS, POINTS // 2 ** int(np.ceil(np.log2(count))))
        self.white = _white(prepared.rows.dim, each)

    def __call__(self, mixture: GaussianMixture) -> tuple[float, Sums]:
        seen = expectation(mixture, self.rows, threads=self.threads)
        factors = np.linalg.cholesky(mixture.covariances)
        offsets = np.einsum("kij,pj->kpi", factors, self.white)
        chance = self._chances(mixture.means[:, None] + offsets)
        share = chance.mean(2) @ mixture.weights
        share = np.maximum(share, 1e-300)
        value = self.weights @ seen.log_p - self.counts @ np.log(share)
        odds = self.counts / share
        unseen = np.einsum("l,lkp->kp", odds, 1.0 - chance) * mixture.weights[:, None]
        unseen /= len(self.white)
        return float(value), seen + _sums(unseen, offsets, mixture.covariances)

    def _chances(self, standard: Array) -> Array:
        """Chance ``(L, K, P)`` of points in the units of the rows."""
        units = self.rows.units
        v = standard * units.scale.numpy() + units.location.numpy()
        found = self.chances(v.reshape(-1, v.shape[-1]))
        return found.reshape(len(found), *v.shape[:2])


def _sums(weights: Array, offsets: Array, covariances: Array) -> Sums:
    """Sums of truths ``(K, P)`` of known components, by their offsets from the means."""
    q0 = weights.sum(1)
    vu = np.einsum("kp,kpi->ki", weights, offsets)
    scatter = np.einsum("kp,kpi,kpj->kij", weights, offsets, offsets)
    return Sums(np.empty(0), q0, vu, scatter - q0[:, None, None] * covariances)


def _white(dim: int, count: int) -> Array:
    """Quasi-random normal points, with mean zero and unit covariance exactly."""
    points = ndtri(qmc.Sobol(dim, seed=0).random(count).clip(1e-9, 1 - 1e-9))
    points = points - points.mean(0)
    factor = np.linalg.cholesky(points.T @ points / count)
    return points @ np.linalg.inv(factor).T
