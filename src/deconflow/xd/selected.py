r"""A mixture of all truths, from rows of which only some were seen.

EM where the unseen rows are missing data: beside the sums of the seen rows stand those of the
unseen ones, as the mixture has them. With the chance :math:`F_i(v)` to be seen under the law of
row ``i``, the log-likelihood of the seen rows is

.. math:: \sum_i \log p(w_i) - \sum_i \log \int p(v) F_i(v) \, dv

The second sum is over some laws that stand for all; its integrals are by quasi-random points of
each component, that move with it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.xd.cross_fits import row_weights
from deconflow.xd.em import Stopping, em
from deconflow.xd.em_statistics import EMStatistics
from deconflow.xd.expectation import Sums, expectation
from deconflow.xd.fit import FitSettings, PreparedData, n_parameters

#: Points are shared out among components: the error of their integral counts once per row.
FLOOR, POINTS, FEWEST_POINTS = 0.1, 1024, 128
#: Few steps of many components on purpose: more of them fit chance where little is seen. One or two
#: have no such freedom, and go on to the end.
FEW_STEPS, MANY_STEPS, MOST_ACCELERATED = 150, 600, 2
#: The end: steps that gain less than this per row.
PRECISE = 1e-9


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
    count, n_rows = start.n_components, len(prepared.data)
    constraints = FitSettings(count, floor=FLOOR).constraints(prepared)
    few = count <= MOST_ACCELERATED
    stopping = Stopping(PRECISE, MANY_STEPS if few else FEW_STEPS, accelerate=few)
    one_pass = _Pass(prepared, chances, shares, count, threads)
    result = em(prepared.begin(start, constraints), one_pass, constraints, stopping)
    mixture = prepared.rows.units.mixture_from_standard(result.mixture)
    cost = 0.5 * n_parameters(count, mixture.dim) * np.log(n_rows)
    return SelectedFit(mixture, n_rows * result.log_likelihood - cost)


class _Pass:
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

    def __call__(self, mixture: GaussianMixture) -> EMStatistics:
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
        sums = seen + _sums(unseen, offsets, mixture.covariances)
        total = float(self.weights.sum())
        return EMStatistics(self.rows.n_rows, total, float(value), sums.q0, sums.vu, sums.vgv)

    def _chances(self, standard: Array) -> Array:
        """Chance ``(L, K, P)`` of points in the units of the rows."""
        units = self.rows.units
        v = standard * np.asarray(units.scale) + np.asarray(units.location)
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
