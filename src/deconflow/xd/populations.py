r"""A mixture of the truth beside parts whose density of each row is known: atoms, a background.

.. math:: p(w_i) = \sum_j \gamma_j \, \ell_{ij} + \Bigl(1 - \sum_j \gamma_j\Bigr) \sum_k \pi_k \,
          N(w_i; R_i m_k, R_i V_k R_i^T + S_i)

A component as narrow as the noise stands in for an atom, and a wide one for a background: the rows
can hardly tell. So the known parts get what they can have: the number of components is that of the
least BIC, and components without which it is lower still are taken out.

A mixture of all truths, from rows of which only some were seen.

EM where the unseen rows are missing data: beside the sums of the seen rows stand those of the
unseen ones, as the mixture has them. With the chance :math:`F_i(v)` to be seen under the law of
row ``i``, the log-likelihood of the seen rows is

.. math:: \sum_i \log p(w_i) - \sum_i \log \int p(v) F_i(v) \, dv

The second sum is over some laws that stand for all; its integrals are by quasi-random points of
each component, that move with it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.standardising import Standardiser
from deconflow.xd.em import Stopping, em
from deconflow.xd.expectation import expectation
from deconflow.xd.fit import (
    COMPONENTS_TO_TRY,
    FitSettings,
    PreparedData,
    made_feasible,
    price,
    without,
)
from deconflow.xd.layout import row_weights
from deconflow.xd.maximisation import EMStatistics, one_pass

#: What known parts start with, together; and the floor of the components beside them.
FIRST_SHARE, FLOOR = 0.5, 0.1
#: Most steps of EM where numbers of components are compared, and the mean gain that ends them.
STEPS, PRECISE = 100, 1e-5
#: The same for the number that was chosen.
LAST_STEPS, MOST_PRECISE = 1000, 1e-9
PATIENCE, ROWS_PER_COMPONENT = 2, 20
#: Rows that choose the number of components.
MOST_ROWS = 20_000
#: Of a row in the rest; and that a part starts with, as one without a share never gets any.
LEAST_WEIGHT, LEAST_SHARE = 1e-12, 1e-6
SHARE_STEPS, SHARE_PRECISE = 500, 1e-9


@dataclass(frozen=True)
class KnownPartsFit:
    """A mixture beside known parts.

    Attributes
    ----------
    mixture : GaussianMixture
        The rest, in the units that it was fitted in.
    shares : array
        ``(J,)`` shares of the known parts.
    log_likelihood : float
        Of all rows together.
    """

    mixture: GaussianMixture
    shares: Array
    log_likelihood: float


def memberships(shares: Array, known: Array, rest: Array) -> tuple[Array, Array]:
    """Probability ``(J + 1, N)`` of each part and of the rest, and ``log p(w)`` of each row.

    ``known`` are the parts' log densities ``(J, N)``, ``rest`` those of the rest, ``(N,)``.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(np.r_[shares, max(0.0, 1.0 - shares.sum())])
    each = logs[:, None] + np.vstack([known, rest])
    log_p = np.logaddexp.reduce(each, axis=0)
    return np.exp(each - log_p), log_p


def shares_of_parts(shares: Array, known: Array, rest: Array, weights: Array) -> Array:
    """Return the most likely shares ``(J,)`` for a rest that is fitted; from some to start with.

    The log-likelihood is concave in them: steps are Newton's where these lead upwards, else EM's.
    """
    q, log_p = memberships(shares, known, rest)
    for _ in range(SHARE_STEPS):
        after_em = np.average(q[:-1], axis=1, weights=weights)
        if np.abs(after_em - shares).max() < SHARE_PRECISE:
            break
        newton = _newton(shares, known, rest, log_p, weights)
        if newton is not None:
            if np.abs(newton - shares).max() < SHARE_PRECISE:
                return newton
            found = memberships(newton, known, rest)
            if weights @ found[1] > weights @ log_p:
                shares, (q, log_p) = newton, found
                continue
        shares = after_em
        q, log_p = memberships(shares, known, rest)
    return shares


def _newton(shares: Array, known: Array, rest: Array, log_p: Array, weights: Array) -> Array | None:
    """Take a step of Newton; None where it leads to shares that are none."""
    with np.errstate(over="ignore", invalid="ignore"):
        slopes = np.exp(known - log_p) - np.exp(rest - log_p)
        curvature = (weights * slopes) @ slopes.T
    if not np.isfinite(curvature).all():
        return None
    new = shares + np.linalg.lstsq(curvature, slopes @ weights, rcond=None)[0]
    return new if (new > 0).all() and new.sum() < 1 else None


def fit_with_known_parts(
    data: Observations, known: Array, rng: np.random.RandomState, threads: int | None = None
) -> KnownPartsFit:
    """Fit a mixture beside known parts, with as few components as BIC wants.

    Parameters
    ----------
    data
        Rows.
    known
        ``(J, N)`` log density of each row under each known part.
    rng
        Makes starts, and chooses the rows that are looked at, of very many.
    threads
        How many to use at most.
    """
    if len(data) > MOST_ROWS:
        some = np.sort(rng.permutation(len(data))[:MOST_ROWS])
        data, known = data[some], known[:, some]
    search = _Search(data, known, rng, threads)
    best, behind = search.fit(1), 0
    most = max(1, len(data) // ROWS_PER_COMPONENT)
    for count in [count for count in COMPONENTS_TO_TRY[1:] if count <= most]:
        found = search.thinned(search.fit(count))
        behind = 0 if search.worth(found) > search.worth(best) else behind + 1
        best = max(best, found, key=search.worth)
        if behind == PATIENCE:
            break
    search.stopping = replace(search.stopping, tol=MOST_PRECISE, max_iter=LAST_STEPS)
    best = search.fit(best.mixture.n_components, best)
    return replace(best, mixture=search.units.mixture_from_standard(best.mixture))


def refit_with_known_parts(
    data: Observations, known: Array, mixture: GaussianMixture, shares: Array
) -> KnownPartsFit:
    """Continue from a mixture and shares, with as many components as it has."""
    search = _Search(data, known, np.random.RandomState(0), None)
    start = search.units.mixture_to_standard(mixture)
    return search.fit(mixture.n_components, KnownPartsFit(start, shares, -np.inf))


class _Search:
    """Fits of any number of components to the same rows."""

    def __init__(
        self,
        data: Observations,
        known: Array,
        rng: np.random.RandomState,
        threads: int | None,
    ) -> None:
        self.prepared, self.known, self.rng = PreparedData(data), known, rng
        self.stopping = Stopping(tol=PRECISE, max_iter=STEPS, accelerate=True, threads=threads)
        self.units, self.weights = self.prepared.rows.units, row_weights(data)
        self.shares = np.empty(0)

    def worth(self, fit: KnownPartsFit) -> float:
        """Log-likelihood less what its parameters cost, by BIC."""
        return fit.log_likelihood - price(fit.mixture, len(self.weights))

    def fit(self, count: int, start: KnownPartsFit | None = None) -> KnownPartsFit:
        """Climb to the maximum of the likelihood, from a start or from one that is made."""
        settings = FitSettings(count, floor=FLOOR, stopping=self.stopping)
        constraints = settings.constraints(self.prepared)
        if start is None:
            made = self.prepared.start(settings, self.rng)
            made = made_feasible(self.units.mixture_to_standard(made), constraints)
            parts = len(self.known)
            start = KnownPartsFit(made, np.full(parts, FIRST_SHARE / parts), -np.inf)
        self.shares = start.shares
        mixture = em(start.mixture, self._pass, constraints, self.stopping).mixture
        _, log_p = self._parted(mixture)
        return KnownPartsFit(mixture, self.shares, float(self.weights @ log_p))

    def _pass(self, mixture: GaussianMixture) -> EMStatistics:
        """Add up over the rows, by their membership in the rest."""
        q, log_p = self._parted(mixture)
        weights = np.maximum(self.weights * q[-1], LEAST_WEIGHT)
        rows = self.prepared.rows
        blocks = [replace(block, omega=np.array(weights[block.index])) for block in rows.blocks]
        total = float(weights.sum())
        rows = replace(rows, blocks=blocks, weights=weights, total_weight=total)
        return replace(
            one_pass(mixture, rows, self.stopping.threads),
            log_likelihood=float(self.weights @ log_p),
        )

    def _parted(self, mixture: GaussianMixture) -> tuple[Array, Array]:
        """Find the shares beside a mixture; return memberships and the rows' log-likelihood."""
        rows, threads = self.prepared.rows, self.stopping.threads
        rest = expectation(mixture, rows, moments=False, threads=threads).log_p
        start = (1 - LEAST_SHARE) * np.maximum(self.shares, LEAST_SHARE / len(self.shares))
        self.shares = shares_of_parts(start, self.known, rest, self.weights)
        return memberships(self.shares, self.known, rest)

    def thinned(self, fit: KnownPartsFit) -> KnownPartsFit:
        """Take out components for as long as BIC gains: known parts take over their rows."""
        while fit.mixture.n_components > 1:
            count = fit.mixture.n_components - 1
            found = self.fit(count, _without(fit, self._least_missed(fit)))
            if self.worth(found) <= self.worth(fit):
                return fit
            fit = found
        return fit

    def _least_missed(self, fit: KnownPartsFit) -> int:
        """Return the component without which the rows are most likely, before anything adapts."""
        rows, threads = self.prepared.rows, self.stopping.threads
        sums = expectation(fit.mixture, rows, moments=False, responsibilities=True, threads=threads)
        values = []
        for k in range(fit.mixture.n_components):
            with np.errstate(divide="ignore"):
                left = np.log1p(-np.minimum(sums.responsibilities[:, k], 1.0))
            rest = sums.log_p + left - np.log1p(-fit.mixture.weights[k])
            shares = _without(fit, k).shares
            values.append(self.weights @ memberships(shares, self.known, rest)[1])
        return int(np.argmax(values))


def _without(fit: KnownPartsFit, k: int) -> KnownPartsFit:
    """Take a component out; the known parts share its weight."""
    gone = (1 - fit.shares.sum()) * fit.mixture.weights[k] / len(fit.shares)
    return KnownPartsFit(
        without(fit.mixture, np.arange(fit.mixture.n_components) == k), fit.shares + gone, -np.inf
    )


#: Points are shared out among components: the error of their integral counts once per row.
POINTS, FEWEST_POINTS = 1024, 128
#: Few steps of many components on purpose: more of them fit chance where little is seen. One or two
#: have no such freedom, and go on to the end.
FEW_STEPS, MANY_STEPS, MOST_ACCELERATED = 150, 600, 2


def fit_selected(
    prepared: PreparedData,
    start: GaussianMixture,
    chances: Callable[[Array], Array],
    shares: Array,
    threads: int | None = None,
) -> tuple[GaussianMixture, float]:
    """Fit a mixture of all truths, in the user's units, from one that is near.

    The second answer is the log-likelihood of all rows that were seen together, less what
    parameters cost by BIC.

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
    count, n_rows, units = start.n_components, len(prepared.data), prepared.rows.units
    constraints = FitSettings(count, floor=FLOOR).constraints(prepared)
    few = count <= MOST_ACCELERATED
    stopping = Stopping(MOST_PRECISE, MANY_STEPS if few else FEW_STEPS, accelerate=few)
    each = max(FEWEST_POINTS, POINTS // 2 ** int(np.ceil(np.log2(count))))
    counts, white = shares * prepared.rows.total_weight, _white(prepared.rows.dim, each)

    def pass_over(mixture: GaussianMixture) -> EMStatistics:
        seen = one_pass(mixture, prepared.rows, threads)
        return _with_unseen(seen, mixture, units, chances, counts, white)

    begin = made_feasible(units.mixture_to_standard(start), constraints)
    result = em(begin, pass_over, constraints, stopping)
    mixture = units.mixture_from_standard(result.mixture)
    return mixture, n_rows * result.log_likelihood - price(mixture, n_rows)


def _with_unseen(
    seen: EMStatistics,
    mixture: GaussianMixture,
    units: Standardiser,
    chances: Callable[[Array], Array],
    counts: Array,
    white: Array,
) -> EMStatistics:
    """Add the sums of unseen rows, whose truths are at known offsets from the means."""
    factors = np.linalg.cholesky(mixture.covariances)
    offsets = np.einsum("kij,pj->kpi", factors, white)
    v = (mixture.means[:, None] + offsets) * units.scale + units.location
    chance = chances(v.reshape(-1, mixture.dim)).reshape(len(counts), *v.shape[:2])
    share = np.maximum(chance.mean(2) @ mixture.weights, 1e-300)
    unseen = np.einsum("l,lkp->kp", counts / share, 1.0 - chance) * mixture.weights[:, None]
    unseen /= len(white)
    q0 = unseen.sum(1)
    scatter = np.einsum("kp,kpi,kpj->kij", unseen, offsets, offsets)
    return replace(
        seen,
        log_likelihood=seen.log_likelihood - float(counts @ np.log(share)),
        q0=seen.q0 + q0,
        vu=seen.vu + np.einsum("kp,kpi->ki", unseen, offsets),
        vgv=seen.vgv + (scatter - q0[:, None, None] * mixture.covariances),
    )


def _white(dim: int, count: int) -> Array:
    """Quasi-random normal points, with mean zero and unit covariance exactly."""
    points = ndtri(qmc.Sobol(dim, seed=0).random(count).clip(1e-9, 1 - 1e-9))
    points = points - points.mean(0)
    return points @ np.linalg.inv(np.linalg.cholesky(points.T @ points / count)).T
