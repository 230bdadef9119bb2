"""BayesianXDGMM: a Dirichlet mixture of the truth by Gibbs sampling, in scikit-learn's shape."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from deconflow._limits import cpus
from deconflow._types import Array
from deconflow.checks import check_integer, check_number, warn_caller
from deconflow.estimators.base import DensityEstimator
from deconflow.estimators.chain_files import FinishedChains
from deconflow.estimators.validation import check_resumable, refuse_unseen
from deconflow.estimators.xd_settings import threads
from deconflow.fits import MixtureFit, Replicates, clear_errors
from deconflow.mixtures import GaussianMixture, mix
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.saving import refuse
from deconflow.xd import (
    FLOORS,
    Chain,
    ChainSettings,
    CrossFits,
    PreparedData,
    lay_out,
    log_p,
    row_weights,
    sample_chains,
    single_rows,
    starts_of_chains,
    telling_rows,
)

FOLDS = 5
FARTHEST_APART = 0.1
"""Nats per row by which chains may differ on held-out rows before a fit warns."""


@dataclass(frozen=True)
class _Part:
    """The rows of some chains, and those that they leave out."""

    prepared: PreparedData
    held: Observations
    weights: Array


SAMPLING = "sampling Bayesian mixtures"


class BayesianXDGMM(DensityEstimator):
    r"""A Dirichlet mixture of Gaussians under noise, by Gibbs sampling: nothing to choose.

    .. math:: w_i = R_i v_i + n_i, \quad
              p(v) = E \Bigl[ \sum_k \pi_k \, N(v; \mu_k, U_k + F) \;\Bigl|\; w \Bigr]

    The mean is over the posterior of all weights, means and covariances, as several chains of
    draws see it. The prior has a scale of its own for every component and needs no setting. Every
    two chains leave out one of five folds of the rows, which tell how well the chains agree.

    Parameters
    ----------
    n_chains : int
        Number of chains, whose densities are averaged. More are better, and take longer: one does
        not find all ways in which components can share the rows.
    n_components : int or None
        Most components that a chain can use; None for a number that grows with rows and columns.
        Those that the rows do not ask for stay empty.
    floor : float or sequence of float
        The least covariance ``F`` of a component, in units of the mean noise covariance, as in
        :class:`XDGMM`; of several, the folds take turns, or the chains where there are no folds.
    n_sweeps : int or None
        Draws of everything by each chain, the first third of which is not used; None for a number
        that takes the rows into account.
    n_snapshots : int
        Mixtures that are kept of each chain.
    bounds, atoms, background
        What is known of the truth: see :class:`XDGMM`.
    random_state : int, RandomState or None
        The same seed gives the same fit.
    n_jobs : int or None
        Chains to sample at a time; None or -1 for one per processor that the process was allowed.
        The answer does not depend on it.
    checkpoint : path or None
        A file to keep finished chains in; an interrupted fit goes on from it.
    verbose : bool
        Whether to show progress: stages of the fit, and steps done in each.

    Attributes
    ----------
    mixtures_ : list of GaussianMixture
        One for each chain, the average of its snapshots.
    n_components_ : int
        Most components that a chain could use.
    n_used_ : array
        Mean number of components with rows, for each chain.
    floors_ : array
        The floor of each chain.
    n_sweeps_ : int
        Number of sweeps.
    n_rows_ : int
        Rows that were sampled: those whose noise is so wide that all of them together say less than
        a hundredth of the whole are left out.
    held_out_score_ : float or None
        Mean ``log p(w)`` of the rows of the folds, each under the chains that left it out; None
        with fewer than four chains, or few rows: then chains leave nothing out.
    chain_spread_ : float or None
        Standard deviation between chains of their mean ``log p(w)`` on the same rows, held-out ones
        if there are any; None for a single chain. Above 0.1, the fit warns.
    n_features_in_ : int
        Number of columns of ``w``.

    References
    ----------
    Malsiner-Walli, Frühwirth-Schnatter, Grün (2016), "Model-based clustering based on sparse finite
    Gaussian mixtures", https://arxiv.org/abs/1606.06828

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> v = rng.normal(size=(500, 2)) * [1.0, 0.5]
    >>> w = v + rng.normal(size=(500, 2)) * [0.3, 0.6]
    >>> model = BayesianXDGMM(2, n_sweeps=60, random_state=0).fit(w, noise=[0.3, 0.6])
    >>> model.density_.mixture.sd.round(1)
    array([1. , 0.5])
    """

    _takes_covariates = True

    _saved: ClassVar = {
        "_snapshots": list[list[GaussianMixture]], "floors_": Array, "n_used_": Array,
        "n_components_": int, "n_sweeps_": int, "n_rows_": int,
        "held_out_score_": float | None, "chain_spread_": float | None,
    }  # fmt: skip

    def __init__(
        self,
        n_chains: int = 10,
        *,
        n_components: int | None = None,
        floor: float | Sequence[float] = FLOORS,
        n_sweeps: int | None = None,
        n_snapshots: int = 10,
        bounds: Any = None,
        atoms: ArrayLike | None = None,
        background: Any = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        checkpoint: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_chains = n_chains
        self.n_components = n_components
        self.floor = floor
        self.n_sweeps = n_sweeps
        self.n_snapshots = n_snapshots
        self.bounds = bounds
        self.atoms = atoms
        self.background = background
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.verbose = verbose

    @property
    def _own_density(self) -> MixtureFit:  # type: ignore[override]
        """The density of the truth: all answers are closed forms."""
        density = MixtureFit(self.mixtures_, self._names, threads(self))
        each = [snapshot for chain in self._snapshots for snapshot in chain]
        if len(each) > 1:
            draws = [MixtureFit([mixture], self._names, density.threads) for mixture in each]
            density.replicates = Replicates(draws, "draws")
        return density

    @property
    def mixtures_(self) -> list[GaussianMixture]:
        """One for each chain, the average of its snapshots."""
        check_is_fitted(self)
        return [mix(chain) for chain in self._snapshots]

    def describe(self) -> str:
        """Say in one line what was fitted."""
        check_is_fitted(self)
        count = len(self._snapshots)
        chains = f"{count} chains" if count > 1 else "one chain"
        used = float(np.mean(self.n_used_))
        return (
            f"Bayesian Gaussian mixture: average of {chains} of {self.n_sweeps_} sweeps, with "
            f"{used:.0f} of {self.n_components_} components in use."
        )

    def _check_parameters(self) -> None:
        check_integer("n_chains", self.n_chains, 1)
        check_integer("n_snapshots", self.n_snapshots, 1)
        for name, least in (("n_components", 1), ("n_sweeps", 3)):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), least)
        floors = np.ravel(np.asarray(self.floor, object))
        if not len(floors):
            raise ValueError("Expected at least one value of floor; got none.")
        for value in floors:
            check_number("floor", value, 0.0)
        if self.n_jobs not in (None, -1):
            check_integer("n_jobs", self.n_jobs, 1)
        check_resumable(self)

    def _fit(self, data: Observations) -> None:
        refuse_unseen(data)
        lay_out(data)  # so that an error counts the rows of all data
        data = data[torch.from_numpy(telling_rows(data))].with_weight()
        self.n_rows_ = len(data)
        rng = check_random_state(self.random_state)
        settings = self._settings(data)
        with clear_errors():
            parts = self._parts(data, rng)
            chains = self._sample(data, parts, settings, rng)
        self._judge(parts, chains)
        together = [chain for these in chains for chain in these]
        self._snapshots = [chain.snapshots for chain in together]
        self.floors_ = np.array([chain.floor for chain in together])
        self.n_used_ = np.array([chain.used[settings.burn_in :].mean() for chain in together])
        self.n_components_, self.n_sweeps_ = settings.n_components, settings.sweeps
        if self.chain_spread_ is not None and self.chain_spread_ > FARTHEST_APART:
            rows = "all rows" if self.held_out_score_ is None else "rows that none of them has seen"
            warn_caller(
                f"Chains differ by {self.chain_spread_:.2f} nats per row on {rows}. "
                "Raise n_sweeps, or n_chains, whose average hides less of it.",
                ConvergenceWarning,
            )

    def _settings(self, data: Observations) -> ChainSettings:
        most = None if self.n_components is None else int(self.n_components)
        settings = ChainSettings.plan(lay_out(data), most)
        if self.n_sweeps is not None:
            sweeps = int(self.n_sweeps)
            settings = replace(settings, sweeps=sweeps, burn_in=sweeps // 3)
        most = settings.sweeps - settings.burn_in
        return replace(settings, snapshots=min(int(self.n_snapshots), most))

    def _parts(self, data: Observations, rng: np.random.RandomState) -> list[_Part]:
        """Prepare the rows but for each fold; all of them where folds would be too few or small."""
        folds, used = min(FOLDS, len(data) // 4), min(FOLDS, self.n_chains // 2)
        if data.group_codes() is not None:
            folds = min(folds, data.fewest_groups())
        seen = data.projections().abs().sum(1).gt(0).expand(len(data), -1)
        if min(folds, used) < 2 or int(seen.sum(0).min()) < 2 * folds:
            return [_Part(PreparedData(single_rows(data)), data, row_weights(data))]
        parts = []
        for fold in CrossFits(data, folds, rng).folds[:used]:
            kept, held = (data[torch.from_numpy(each)] for each in fold)
            prepared = PreparedData(single_rows(kept))
            parts.append(_Part(prepared, held, row_weights(held)))
        return parts

    def _sample(
        self,
        data: Observations,
        parts: list[_Part],
        settings: ChainSettings,
        rng: np.random.RandomState,
    ) -> list[list[Chain]]:
        """Sample the chains of every part, those in a file left as they are."""
        floors = [float(value) for value in np.ravel(self.floor)]
        said = repr((settings, floors, self.n_chains, self.random_state))
        finished = FinishedChains(self.checkpoint, data, said)
        seeds = rng.randint(2**31 - 1, size=self.n_chains).tolist()
        own = [seeds[p :: len(parts)] for p in range(len(parts))]
        workers = cpus(threads(self))
        side_by_side = max(1, min(len(parts), workers // len(own[0])))
        self._progress.begin(SAMPLING, "sweeps", settings.sweeps * self.n_chains)

        def sampled(p: int) -> list[Chain]:
            chains = finished.get(p)
            if chains is None:
                prepared = parts[p].prepared
                first = floors[p % len(floors)]
                each = [first if len(parts) > 1 else f for f, _ in zip(cycle(floors), own[p])]
                starts = starts_of_chains(prepared, first, settings, own[p])
                chains = sample_chains(
                    prepared, starts, each, settings, own[p],
                    threads=-(-workers // side_by_side), progress=self._progress.advance,
                )  # fmt: skip
                finished.add(p, chains)
            else:
                self._progress.advance(len(chains) * settings.sweeps)
            return chains

        with ThreadPoolExecutor(side_by_side) as pool:
            return list(pool.map(sampled, range(len(parts))))

    def _judge(self, parts: list[_Part], chains: list[list[Chain]]) -> None:
        """Score the rows left out by each chain: how good they are, and how far apart."""
        score, spread, total = 0.0, 0.0, 0.0
        for part, these in zip(parts, chains, strict=True):
            rows = lay_out(part.held, part.prepared.rows.units)
            each = [log_p(mix(chain.snapshots), rows, threads(self)) for chain in these]
            means = np.average(each, axis=1, weights=part.weights)
            whole = np.logaddexp.reduce(each, axis=0) - np.log(len(each))
            score += float(part.weights @ whole)
            spread += float(part.weights.sum() * np.var(means, ddof=1)) if len(these) > 1 else 0.0
            total += float(part.weights.sum())
        self.held_out_score_ = score / total if len(parts) > 1 else None
        self.chain_spread_ = float(np.sqrt(spread / total)) if self.n_chains > 1 else None

    def _restore(self, values: dict[str, Any]) -> None:
        super()._restore(values)
        dims = {each.dim for chain in self._snapshots for each in chain}
        refuse("snapshots", dims != {self.n_latent_}, f"of {self.n_latent_} columns")
        n_chains = len(self._snapshots)
        for name in ("floors_", "n_used_"):
            refuse(name, getattr(self, name).shape[:1] != (n_chains,), "one for each chain")
