r"""A Dirichlet mixture under noise by blocked Gibbs sampling: the prior, the state, one sweep.

Each truth is :math:`v = x + e` with :math:`e \sim N(0, F)`, the floor, and
:math:`x \sim N(\mu_k, U_k)` with probability :math:`\pi_k`. The prior needs no setting:

.. math:: \pi \sim \mathrm{Dirichlet}(a, \dots, a), \quad
          \mu_k \sim N(m_0, U_k / \kappa), \quad U_k \sim IW(\nu, s_k \Psi), \quad
          s_k \sim \mathrm{Gamma}(1, 1), \\
          \Psi \sim \mathrm{Wishart}(D, C / 10 D), \quad
          \kappa \sim \mathrm{Gamma}(\tfrac12, \tfrac12), \quad m_0 \sim N(m, C),

with :math:`m` and :math:`C` the mean and covariance of the truth as one Gaussian sees them, and
:math:`a` and :math:`\nu` on grids. A scale :math:`s_k` for every component matters most: narrow and
wide components need not agree on a size.

Chains of Gibbs sweeps side by side, and the few snapshots of each that answers need.

References
----------
Richardson and Green (1997), "On Bayesian analysis of mixtures with an unknown number of
components", Journal of the Royal Statistical Society B 59.
Ishwaran and James (2001), "Gibbs sampling methods for stick-breaking priors", Journal of the
American Statistical Association 96.
Malsiner-Walli, Frühwirth-Schnatter, Grün (2016), "Model-based clustering based on sparse finite
Gaussian mixtures", https://arxiv.org/abs/1606.06828
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import gammaln
from sklearn.utils import check_random_state

from deconflow._limits import cpus
from deconflow._types import Array, BoolArray, IntArray
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.xd.em import Stopping
from deconflow.xd.expectation import Pass
from deconflow.xd.fit import (
    COMPONENTS_TO_TRY,
    FitSettings,
    PreparedData,
    price,
    shares_of_truth,
    without,
)
from deconflow.xd.kernel import draws
from deconflow.xd.layout import KernelRows, row_weights

#: Grid of ``nu - (D - 1)``, degrees of freedom of the components' covariances.
FREEDOMS = np.array([1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0])
#: Grid of ``a``, even in its logarithm.
CONCENTRATIONS = np.exp(np.linspace(np.log(0.002), np.log(2.0), 16))
#: Weight at the start of all components that a start does not have.
EMPTY = 1e-3


@dataclass(frozen=True)
class Prior:
    """What is fixed: the whole, as one Gaussian sees it, and the floor; in the rows' units."""

    mean: Array
    covariance: Array
    floor: Array


@dataclass
class State:
    """Where a chain is; all in the units of the rows.

    Attributes
    ----------
    weights, mu, U : array
        ``(K,)``, ``(K, D)``, ``(K, D, D)``: the components of ``x``.
    root, precision, log_det : array
        Of ``U``: ``U = root root'``, its inverse, and the logarithm of its determinant.
    scales : array
        ``(K,)``: ``s``.
    psi, m0, kappa, nu, a
        The hyperparameters.
    count : array
        ``(K,)`` weights of the rows that each component had in the last sweep.
    centre, spread, freedom : array
        ``(K, D)``, ``(K, D, D)``, ``(K,)``: the Student-t law of a further ``x`` of each component.
    log_p : float
        Mean log-likelihood of the rows before the last sweep.
    """

    weights: Array
    mu: Array
    U: Array
    root: Array
    precision: Array
    log_det: Array
    scales: Array
    psi: Array
    m0: Array
    kappa: float
    nu: float
    a: float
    count: Array
    centre: Array
    spread: Array
    freedom: Array
    log_p: float = float("nan")

    def drawn(self, floor: Array) -> GaussianMixture:
        """Return the density of the truth for the components as they were drawn."""
        return GaussianMixture(self.weights, self.mu, self.U + floor)

    def mixture(self, floor: Array) -> GaussianMixture:
        """Return the density of a further truth, given what the last sweep drew of the rows.

        With a component's mean and covariance integrated out it is a Student-t law, here as one
        Gaussian of its variance (of at most twice its scale, where there is hardly one). So one
        snapshot holds what many draws of the component would say: on wine four times as many.
        """
        weights = (self.count + self.a) / (self.count.sum() + self.a * len(self.count))
        divisor = np.maximum(self.freedom - 2.0, 0.5 * self.freedom)[:, None, None]
        return GaussianMixture(weights, self.centre.copy(), self.spread / divisor + floor)


def begin(start: GaussianMixture, n_components: int, prior: Prior, n_rows: float) -> State:
    """Start from a mixture in the units of the rows; other components are empty at first.

    A chain needs long to empty components that it does not need: from thirty of k-means two clumps
    came out .10 nat off after 600 sweeps, from three of EM .012.
    """
    more = n_components - start.n_components
    if more <= 0:
        start = start.heaviest(n_components)
    else:
        wide = np.repeat(prior.covariance[None] / 10.0 + prior.floor, more, axis=0)
        start = GaussianMixture(
            np.r_[(1.0 - EMPTY) * start.weights, np.full(more, EMPTY / more)],
            np.concatenate([start.means, np.repeat(prior.mean[None], more, axis=0)]),
            np.concatenate([start.covariances, wide]),
        )
    U = _inside(start.covariances, prior.floor)
    values, vectors = np.linalg.eigh(U)
    return State(
        weights=start.weights,
        mu=start.means.copy(),
        U=U,
        root=vectors * np.sqrt(values)[:, None, :],
        precision=(vectors / values[:, None, :]) @ np.swapaxes(vectors, 1, 2),
        log_det=np.log(values).sum(1),
        scales=np.ones(n_components),
        psi=prior.covariance / 10.0,
        m0=prior.mean.copy(),
        kappa=0.1,
        nu=len(prior.mean) + 2.0,
        a=float(CONCENTRATIONS[len(CONCENTRATIONS) // 2]),
        count=n_rows * start.weights,
        centre=start.means.copy(),
        spread=U.copy(),
        freedom=np.ones(n_components),
    )


def _inside(covariances: Array, floor: Array) -> Array:
    """Covariances less the floor, and no thinner than a tenth of it."""
    factor = np.linalg.cholesky(floor)
    inverse = np.linalg.inv(factor)
    values, vectors = np.linalg.eigh(inverse @ covariances @ inverse.T)
    values = np.maximum(values - 1.0, 0.1)[:, None, :]
    return factor @ ((vectors * values) @ np.swapaxes(vectors, 1, 2)) @ factor.T


class Sweeper:
    """Sweeps of one chain over rows that were laid out."""

    def __init__(self, rows: KernelRows, prior: Prior, rng: np.random.Generator) -> None:
        self.rows, self.prior, self.rng = rows, prior, rng
        self.floor_root = np.linalg.cholesky(prior.floor)
        half = np.linalg.inv(np.linalg.cholesky(prior.covariance))
        self.whole_precision = half.T @ half

    def sweep(self, state: State) -> None:
        """Draw everything once: components of the rows, truths, components, hyperparameters."""
        first, second = self._pass(state)
        occupied = np.flatnonzero(state.count > 0)
        self._components(state, occupied, first, second)
        self._location(state, occupied)
        self._shape(state, occupied)
        empty = np.flatnonzero(state.count <= 0)
        state.scales[empty] = self.rng.standard_exponential(len(empty))
        self._components(state, empty, first, second)
        self._weights(state)

    def _pass(self, state: State) -> tuple[Array, Array]:
        """Draw the rows' components and truths; return the sums of the latter."""
        K, D = state.mu.shape
        sums = np.zeros(K), np.zeros((K, D)), np.zeros((K, D, D))
        mixture = state.drawn(self.prior.floor)
        total, fine = 0.0, True
        for block in self.rows.blocks:
            seen = Pass(block, mixture, False, False)
            _, size, n = block.w.shape
            chosen, log_p = np.empty(n, np.int64), np.empty(n)
            draws.choose_rows(
                seen.functions[0], block.w, seen.s, block.log_share, seen.log_a, seen.means,
                seen.packed, self.rng.random(n), chosen, log_p,
            )  # fmt: skip
            R, cover, across = np.eye(size, D), mixture.covariances, state.U
            if block.projection is not None:
                R = block.projection
                cover, across = R @ cover @ R.T, across @ R.T
            if block.common is not None:
                gain, root = _conditional(seen, R, block.common[2], state, self.prior.floor)
                draws.draw_shared(
                    self.rng, block.w, chosen, len(block.common[0]), block.omega, seen.means, gain,
                    root, *sums,
                )  # fmt: skip
            else:
                fine &= draws.draw_rows(
                    self.rng, block.w, block.s, R, chosen, block.omega, state.mu, state.root,
                    self.floor_root, cover, across, *sums,
                )  # fmt: skip
            log_p += block.log_unit
            total += float(log_p.sum() if len(block.omega) == 0 else block.omega @ log_p)
        if not fine:
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        state.count, state.log_p = sums[0], total / self.rows.total_weight
        return sums[1:]

    def _components(self, state: State, which: IntArray, first: Array, second: Array) -> None:
        K, D = state.mu.shape
        freedom = state.nu + state.count[which, None] - np.arange(D)
        state.freedom[which] = freedom[:, -1]
        chi = np.empty((K, D))
        chi[which] = np.sqrt(2.0 * self.rng.standard_gamma(freedom / 2.0))
        z = self.rng.standard_normal((K, D + D * (D - 1) // 2))
        draws.draw_components(
            which, state.count, first, second, state.m0, state.kappa, state.psi, state.scales,
            chi, z, state.mu, state.U, state.root, state.precision, state.log_det,
            state.centre, state.spread,
        )  # fmt: skip

    def _location(self, state: State, occupied: IntArray) -> None:
        """Draw ``kappa`` and ``m0``."""
        D, precision = len(self.prior.mean), state.precision[occupied]
        offset = state.mu[occupied] - state.m0
        square = float(np.einsum("ki,kij,kj->", offset, precision, offset))
        shape = 0.5 + 0.5 * D * len(occupied)
        state.kappa = float(self.rng.standard_gamma(shape) / (0.5 + 0.5 * square))
        total = self.whole_precision + state.kappa * precision.sum(0)
        pull = np.einsum("kij,kj->i", precision, state.mu[occupied])
        pull = self.whole_precision @ self.prior.mean + state.kappa * pull
        factor = np.linalg.cholesky(_regular(total))
        white = np.linalg.solve(factor, pull) + self.rng.standard_normal(D)
        state.m0 = np.asarray(np.linalg.solve(factor.T, white), dtype=np.float64)

    def _shape(self, state: State, occupied: IntArray) -> None:
        """Draw ``nu`` with ``Psi`` integrated out, then ``Psi``, then the scales."""
        D, K = len(self.prior.mean), len(occupied)
        precision, scales = state.precision[occupied], state.scales[occupied]
        inverse = 10.0 * D * self.whole_precision + np.einsum("k,kij->ij", scales, precision)
        nu = D - 1 + FREEDOMS
        whole = D + K * nu
        large, small = gammaln(np.array([whole, nu])[..., None] / 2 - 0.5 * np.arange(D)).sum(-1)
        log_det = -float(np.linalg.slogdet(inverse)[1])
        log_p = 0.5 * nu * (D * np.log(scales).sum() - state.log_det[occupied].sum())
        log_p += large - K * small + 0.5 * whole * log_det  # of gamma functions but a constant
        state.nu = float(nu[self._pick(log_p)])
        A = np.tril(self.rng.standard_normal((D, D)), -1)  # a Wishart draw, by Bartlett
        freedom = D + K * state.nu - np.arange(D)
        A[np.diag_indices(D)] = np.sqrt(2.0 * self.rng.standard_gamma(freedom / 2.0))
        root = np.linalg.solve(np.linalg.cholesky(_regular(inverse)).T, A)
        state.psi = root @ root.T
        traces = np.einsum("ij,kji->k", state.psi, precision)
        drawn = self.rng.standard_gamma(1.0 + 0.5 * state.nu * D, K)
        state.scales[occupied] = drawn / (1.0 + 0.5 * traces)

    def _weights(self, state: State) -> None:
        """Draw ``a`` with the weights integrated out, then the weights."""
        K, a, count = len(state.count), CONCENTRATIONS, state.count
        log_p = gammaln(K * a) - gammaln(K * a + count.sum())
        log_p += (gammaln(count[:, None] + a) - gammaln(a)).sum(0)
        state.a = float(a[self._pick(log_p)])
        drawn = self.rng.standard_gamma(count + state.a)
        state.weights = drawn / drawn.sum()

    def _pick(self, log_p: Array) -> int:
        p = np.exp(log_p - log_p.max())
        return int(self.rng.choice(len(p), p=p / p.sum()))


def _conditional(
    seen: Pass, R: Array, noise: Array, state: State, floor: Array
) -> tuple[Array, Array]:
    """Gain ``U R' T^-1`` and a root of the covariance of ``x`` given ``w``, as sums of squares."""
    U = np.repeat(state.U, len(noise), axis=0)
    half = seen.whitener @ (R @ U)  # T^-1/2 R U
    gain = np.swapaxes(half, 1, 2) @ seen.whitener
    rest = np.eye(len(floor)) - gain @ R
    noise = np.tile(noise + R @ floor @ R.T, (len(state.mu), 1, 1))
    covariance = rest @ U @ np.swapaxes(rest, 1, 2) + gain @ noise @ np.swapaxes(gain, 1, 2)
    return np.ascontiguousarray(gain), _lower_roots(covariance)


def _lower_roots(covariances: Array) -> Array:
    """Lower triangular roots of covariances that may be singular but for rounding."""
    size = 1e-14 * np.trace(covariances, axis1=1, axis2=2)[:, None, None]
    try:
        return np.linalg.cholesky(covariances + size * np.eye(covariances.shape[1]))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(0.5 * (covariances + np.swapaxes(covariances, 1, 2)))
        roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        upper = np.linalg.qr(np.swapaxes(roots, 1, 2), mode="r")
        return np.ascontiguousarray(np.swapaxes(upper, 1, 2))


def _regular(matrix: Array) -> Array:
    """Add what rounding may have taken: precisions of thin components differ by many orders."""
    return matrix + 1e-13 * np.trace(matrix) * np.eye(len(matrix))


#: Fewer columns than these are few.
FEW_COLUMNS = 3
#: Floors of chains, in turns: noisy rows cannot say which is best.
FLOORS = (0.05, 0.1, 0.2)
#: Densities that a chain may compute in all, where that leaves enough sweeps.
WORK, WORK_IF_QUICK = 3e8, 4.5e7
FEWEST_SWEEPS, SWEEPS_PER_COLUMN, MOST_SWEEPS = 60, 60, 600
#: Components with less weight than this many rows are left out of snapshots.
NEGLIGIBLE = 0.3

#: Share of what the rows say that makes no difference, and of a column's rows that must stay.
LEAST_SAID, FEWEST_LEFT = 0.01, 0.5


@dataclass(frozen=True)
class ChainSettings:
    """How long a chain is, and what is kept of it.

    Attributes
    ----------
    n_components : int
        Most components that a chain can use.
    burn_in, sweeps : int
        Sweeps before the first snapshot can be, and in all.
    snapshots : int
        How many mixtures are kept, evenly spread over the sweeps after ``burn_in``.
    """

    n_components: int
    burn_in: int
    sweeps: int
    snapshots: int

    @classmethod
    def plan(
        cls, rows: KernelRows, n_components: int | None = None, *, quick: bool = False
    ) -> "ChainSettings":
        """Decide by the rows: more components for more rows, fewer sweeps where each is long.

        From starts that fit, chains in few columns need few sweeps: with 24 chains on a ring, 60
        sweeps came .096 nat near the truth and 200 .108; nine columns of wine gain up to 600.
        """
        most = max(2, int(min(1.5 * np.sqrt(rows.n_rows), 10 + 10 * rows.dim)))
        most = most if n_components is None else n_components
        settings = cls(most, 0, 0, 5 if quick else 10)
        affordable = (WORK_IF_QUICK if quick else WORK) / settings.pairs(rows)
        enough = np.clip(SWEEPS_PER_COLUMN * rows.dim, 2 * SWEEPS_PER_COLUMN, MOST_SWEEPS)
        sweeps = int(np.clip(affordable, FEWEST_SWEEPS, enough))
        return replace(settings, burn_in=sweeps // 3, sweeps=sweeps)

    def pairs(self, rows: KernelRows) -> float:
        """Densities that one sweep computes: rows times components times parts of the noise."""
        return float(self.n_components * rows.n_gaussians)


@dataclass
class Chain:
    """What is kept of a chain.

    Attributes
    ----------
    snapshots : list of GaussianMixture
        Mixtures of the truth, in the user's units.
    floor : float
        The floor, in units of the mean noise covariance.
    log_p : array
        Mean log-likelihood of the rows before each sweep.
    used : array
        Number of components that had rows in each sweep.
    """

    floor: float
    snapshots: list[GaussianMixture] = field(default_factory=list)
    log_p: Array = field(default_factory=lambda: np.empty(0))
    used: Array = field(default_factory=lambda: np.empty(0))


def telling_rows(data: Observations) -> BoolArray:
    """Which rows ``(N,)`` a chain needs: all but those that say next to nothing of the truth.

    A row says as much as the shares of the truth in its values' variances. What says less than a
    hundredth of the mean is left out, as long as all of it together says less than a hundredth of
    the whole, and most rows stay that measure any one column: chains would carry draws for it that
    only make them slow.
    """
    if len(data.noise.variance()) == 1 and data.observed is None and data.projection is None:
        return np.ones(len(data), dtype=bool)
    said = shares_of_truth(data).sum(-1) * row_weights(data)
    little = said < LEAST_SAID * said.mean()
    seen = np.broadcast_to(np.asarray(data.projections()).any(1), (len(data), data.latent_dim))
    rare = (seen[~little].sum(0) < FEWEST_LEFT * seen.sum(0)).any()
    if rare or said[little].sum() >= LEAST_SAID * said.sum():
        return np.ones(len(data), bool)
    return ~little


def single_rows(data: Observations) -> Observations:
    """Return rows of weights up to one: those of more are there several times.

    A row of weight five that draws one component and one truth would be five rows that agree, and
    what they agree on would look far more certain than it is.
    """
    weights = row_weights(data)
    copies = np.ceil(weights).astype(np.int64)
    if (copies == 1).all():
        return data
    rows = np.repeat(np.arange(len(data)), copies)
    return replace(data[rows], weights=(weights / copies)[rows])


def starts_of_chains(
    prepared: PreparedData, floor: float, settings: ChainSettings, seeds: Sequence[int]
) -> list[GaussianMixture]:
    """Make a start for each of some chains, in the user's units.

    In few columns a mixture by EM, of as many components as BIC likes: a chain needs long to empty
    components that the rows do not ask for (two clumps came out .10 nat off after 600 sweeps from
    thirty components of k-means, .012 from three of EM). In more columns all components about
    clusters of the rows: from fewer, chains on wine were .03 and .05 nat behind on held-out rows.
    """
    if prepared.rows.dim >= FEW_COLUMNS:
        begin = FitSettings(settings.n_components, floor=floor)
        return [prepared.start(begin, check_random_state(seed)) for seed in seeds]
    n = len(prepared.data)
    stopping = Stopping(1e-4, 100, accelerate=True, threads=1)
    best, found = -np.inf, list[GaussianMixture]()
    for size in [size for size in COMPONENTS_TO_TRY if size <= min(settings.n_components, n)]:
        each = FitSettings(size, floor=floor, stopping=stopping)
        some = seeds[:1] if size == 1 else seeds
        fits = [prepared.fit(each, check_random_state(seed)) for seed in some]
        score = max(fit.log_likelihood for fit in fits) - price(fits[0].mixture, n) / n
        if score <= best:
            break
        best, found = score, [fit.mixture for fit in fits] * (len(seeds) if size == 1 else 1)
    return found


def sample_chains(
    prepared: PreparedData,
    starts: Sequence[GaussianMixture],
    floors: Sequence[float],
    settings: ChainSettings,
    seeds: Sequence[int],
    *,
    threads: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> list[Chain]:
    """Sample one chain for each start, floor and seed, side by side in threads.

    Parameters
    ----------
    prepared
        The rows.
    starts
        A mixture for each chain, in the user's units.
    floors
        A floor for each chain, in units of the mean noise covariance.
    settings
        How long to sample.
    seeds
        A seed for each chain; the same seed gives the same chain, however many threads there are.
    threads
        How many chains to run at a time; None for one per processor.
    progress
        Is called with 1 after every sweep of any chain.
    """
    alone = Stopping(tol=1e-5, max_iter=200, accelerate=True, threads=1)
    one = prepared.fit(FitSettings(1, floor=0.1, stopping=alone), check_random_state(0)).mixture
    last = np.linspace(settings.burn_in, settings.sweeps, settings.snapshots + 1)[1:]
    kept = {round(float(each)) for each in last}
    rows, whole = prepared.rows, prepared.rows.units.mixture_to_standard(one)

    def sample(start: GaussianMixture, floor: float, seed: int) -> Chain:
        prior = Prior(whole.means[0], whole.covariances[0], prepared.floor(floor))
        sweeper = Sweeper(rows, prior, np.random.Generator(np.random.SFC64(seed)))
        start = rows.units.mixture_to_standard(start)
        state = begin(start, settings.n_components, prior, rows.total_weight)
        chain, trace = Chain(floor), []
        for sweep in range(1, settings.sweeps + 1):
            sweeper.sweep(state)
            trace.append((state.log_p, np.count_nonzero(state.count)))
            if sweep in kept:
                mixture = state.mixture(prior.floor)
                least = min(NEGLIGIBLE / rows.total_weight, mixture.weights.max())
                thin = without(mixture, mixture.weights < least)
                chain.snapshots.append(rows.units.mixture_from_standard(thin))
            if progress is not None:
                progress(1)
        chain.log_p, chain.used = np.array(trace).T
        return chain

    with ThreadPoolExecutor(max(1, min(cpus(threads), len(seeds)))) as pool:
        return list(pool.map(sample, starts, floors, seeds))
