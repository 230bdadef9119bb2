"""BayesianXDGMM: a Dirichlet mixture of the truth by Gibbs sampling, in scikit-learn's shape."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deconflow.checks import check_integer, check_number
from deconflow.engines import Bayes
from deconflow.estimators.base import DensityEstimator
from deconflow.randomness import RandomState
from deconflow.xd import FLOORS


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

    _engine_type = Bayes

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

    def _check_together(self) -> None:
        if self.n_components is not None:
            check_integer("n_components", self.n_components, 1)
        floors = np.ravel(np.asarray(self.floor, object))
        if not len(floors):
            raise ValueError("Expected at least one value of floor; got none.")
        for value in floors:
            check_number("floor", value, 0.0)
