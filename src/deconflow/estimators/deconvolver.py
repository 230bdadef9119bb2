"""Deconvolver: candidates of several kinds, averaged by weights that noisy rows teach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from deconflow import ranks
from deconflow._limits import cpus
from deconflow.auto import (
    Fitted,
    Resources,
    ensemble_of,
    fit_density,
    make_plan,
)
from deconflow.certificate import Certificate
from deconflow.checks import check_integer, warn_caller
from deconflow.densities import Density, FixedMixture
from deconflow.devices import resolve_device
from deconflow.estimators.base import DensityEstimator
from deconflow.estimators.certifying import CHECKING, certified
from deconflow.estimators.stream_fits import everything_of, folds_of_sample, in_memory
from deconflow.estimators.validation import check_resumable
from deconflow.fits import (
    BlendFit,
    FittedDensity,
    MixtureFit,
    ProposedByMixture,
    Replicates,
    WeightedFit,
    log_volume,
    refuse_far,
    standardised,
)
from deconflow.fitting import refuse_different_rows
from deconflow.mixtures import GaussianMixture, mix
from deconflow.observations import Observations
from deconflow.randomness import RandomState, isolated_rng
from deconflow.saving import refuse
from deconflow.standardising import Standardiser
from deconflow.streams import Overview, RowStream
from deconflow.xd import who_chose

FEWEST_ROWS, ROWS_FOR_UNITS = 10, 200_000
WORDS = {
    "mixtures": "Gaussian mixtures (Extreme Deconvolution)",
    "bayes": "Bayesian Gaussian mixtures",
    "spline": "log-splines",
    "flows": "normalizing flows",
}
"""What candidates are, in words."""


class UntrustedFitWarning(UserWarning):
    """The certificate of a fit has found a reason for doubt."""


def _usual_units(data: Observations) -> Standardiser:
    """Return standardised units; of many complete rows some are enough to find them."""
    complete = data.observed is None and data.projection is None
    step = -(-len(data) // ROWS_FOR_UNITS) if complete else 1
    return Standardiser.fit(data[::step])


class Deconvolver(DensityEstimator):
    r"""Density deconvolution with nothing to set.

    Fits several kinds of densities: averages of Gaussian mixtures (Extreme Deconvolution), Bayesian
    mixtures, penalised log-densities in one and two columns, and normalizing flows in more, by
    chains that leave no bias from inexact posteriors. Each is fitted without every fold of the
    rows and scored on it; the answer is their average

    .. math:: p(v) = \sum_c a_c \, p_c(v),

    with weights learned on these noisy rows, near even where the rows cannot tell, and none for a
    kind that does not help. ``certificate_`` says how far to trust the answer.

    Parameters
    ----------
    quick : bool
        Whether to be content with a first answer, without flows and with fewer fits.
    n_members : int or None
        Number of flows, over all folds; None for the usual number. More are better, and take
        longer.
    bounds, atoms, background
        What is known of the truth: see :class:`XDGMM`.
    random_state : int, RandomState or None
        The same seed gives the same fit.
    n_jobs : int or None
        Processors to use, for threads of the mixtures and processes of the flows; None or -1 for
        all that the process was allowed. The answer does not depend on it, but for rounding.
    device : str
        Where flows are trained, in float32: ``"cpu"``, ``"cuda"``, or ``"auto"`` for the best there
        is. Mixtures and all answers are computed on the processor. On a GPU, products are rounded
        to tf32 if ``torch.backends.cuda.matmul.allow_tf32`` says so: it is left as you have it, and
        torch has it off.
    checkpoint : path or None
        A folder to save flows in while they are trained; an interrupted fit goes on from it.
    verbose : bool
        Whether to show progress: stages of the fit, and steps done in each.

    Attributes
    ----------
    density_ : FittedDensity
        The density of the truth, in the units of the data.
    weights_ : dict of float
        The share of each kind of candidate in the answer, by its name: ``"mixtures"``,
        ``"bayes"``, ``"spline"``, ``"flows"``.
    candidates_ : dict of FittedDensity
        Every candidate by itself. Those without a share are not saved with the model.
    certificate_ : Certificate
        How far to trust it; :meth:`summary` prints it.
    selection_ : dict of arrays
        How the mixtures' components and floors were weighed.
    mixtures_ : list of GaussianMixture
        The candidates that are mixtures, averaged by their weights, one for each fold left out,
        in the units of the data.
    histories_ : list of dict
        What happened in the training of each flow.
    standardiser_ : Standardiser
        The change of units.
    n_features_in_ : int
        Number of columns of ``w``.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> w = rng.normal(size=(300, 2)) + rng.normal(size=(300, 2)) * [0.3, 0.6]
    >>> model = Deconvolver(quick=True, random_state=0).fit(w, noise=[0.3, 0.6])
    >>> model.sample(5).shape
    (5, 2)
    """

    _own_density: FittedDensity
    _fitted: Fitted
    _takes_covariates = True

    _saved: ClassVar = {"standardiser_": Standardiser, "_fitted": Fitted}

    def __init__(
        self,
        *,
        quick: bool = False,
        n_members: int | None = None,
        bounds: Any = None,
        atoms: ArrayLike | None = None,
        background: Any = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        device: str = "cpu",
        checkpoint: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.quick = quick
        self.n_members = n_members
        self.bounds = bounds
        self.atoms = atoms
        self.background = background
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device
        self.checkpoint = checkpoint
        self.verbose = verbose

    _fits_streams = True

    def _fit_stream(self, sample: Observations, stream: RowStream, overview: Overview) -> None:
        if in_memory(overview):
            self._fit(sample)
            return
        folds = make_plan(len(sample), self.n_members, quick=self.quick).folds
        standardiser = _usual_units(sample)
        everything = everything_of(
            stream, overview, sample, folds, threads=cpus(self.n_jobs), progress=self._progress,
            units=standardiser,
        )  # fmt: skip
        of_sample = folds_of_sample(overview, folds)
        self._fit(sample, folds=of_sample, everything=everything)

    def _fit(self, data: Observations, **beyond: Any) -> None:
        """Fit to rows in memory, or with ``beyond`` to a stream that these are a sample of."""
        refuse_different_rows(data)
        if len(data) < FEWEST_ROWS:
            raise ValueError(
                f"Expected at least {FEWEST_ROWS} rows in w to compare densities on held-out rows; "
                f"got n_samples = {len(data)}. Use XDGMM for so few."
            )
        self.standardiser_ = _usual_units(data)
        plan = make_plan(len(data), self.n_members, quick=self.quick)
        seed = ranks.from_first(check_random_state(self.random_state).randint(2**30))
        with isolated_rng(seed):
            volume = log_volume(self.standardiser_, data)
            ready = standardised(self.standardiser_, data)
            refuse_far(ready, torch.float32)
            fitted = fit_density(ready, volume, plan, self._resources(), seed, **beyond)
        self._take(fitted)
        self._seed = seed

    def _finish(self, data: Observations) -> None:
        self._progress.begin(CHECKING)
        self._take_certificate(certified(self, data, self._seed))
        for warning in self.certificate_.warnings:
            warn_caller(f"Do not trust this fit blindly: {warning}.", UntrustedFitWarning)

    def _take_certificate(self, certificate: Certificate) -> None:
        self.certificate_ = certificate
        self._fitted = replace(self._fitted, certificate=certificate)

    def _working_mixture(self) -> GaussianMixture | None:
        return self._in_units(self._fitted.proposing)

    @property
    def mixtures_(self) -> list[GaussianMixture]:
        """The average of the candidates that are mixtures, one for each fold left out."""
        check_is_fitted(self)
        return [self._in_units(mixture) for mixture in self._fitted.mixtures_by_fold()]

    @property
    def weights_(self) -> dict[str, float]:
        """The share of each kind of candidate, by its name."""
        check_is_fitted(self)
        return {name: each.share for name, each in self._fitted.standings.items()}

    @property
    def candidates_(self) -> dict[str, FittedDensity]:
        """Every candidate by itself, also those without a share until the model is saved."""
        check_is_fitted(self)
        alone = {name: self._alone(name) for name in self._fitted.parts}
        known = self._knowledge
        return alone if known is None else {k: known.density_from(v) for k, v in alone.items()}

    def describe(self) -> str:
        """Say in one line what was fitted."""
        shares = sorted(self.weights_.items(), key=lambda item: -item[1])
        said = [f"{share:.0%} {WORDS[name]}" for name, share in shares if share > 0]
        return f"Average of {', '.join(said)}.{who_chose(self.selection_)}"

    def summary(self) -> str:
        """Say what was fitted, who got which share and why, and how far to trust it."""
        lines = [self.describe(), *self.known_, *self._standings(), *self._fitted.notes]
        return "\n".join([*lines, self.certificate_.in_words()])

    def _standings(self) -> list[str]:
        """Say of every candidate how it did on rows that it had not seen."""
        lines = []
        for name, each in self._fitted.standings.items():
            place = "the best"
            if each.behind > 0:
                place = f"{each.behind:.4f} +- {each.error:.4f} behind the best"
            share = f"{each.share:.0%}" if each.share > 0 else "left out"
            lines.append(f"{name:<24}{share}; held-out log p(w) {place}")
        return lines

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "_fitted": self._fitted.with_shares()}

    def _restore(self, values: dict[str, Any]) -> None:
        self.standardiser_, fitted = values["standardiser_"], values["_fitted"]
        sizes = (len(self.standardiser_.scale), len(self.standardiser_.measured_scale))
        refuse("standardiser_", sizes != (self.n_latent_, self.n_features_in_), "of these columns")
        refuse("proposing", fitted.proposing.dim != self.n_latent_, "of these columns")
        self._take(fitted)

    def _take(self, fitted: Fitted) -> None:
        """Learn what a fit has found, or what was saved of it."""
        self._fitted = fitted
        mixtures = self._mixture_fit(fitted.mixtures_by_fold())
        self._own_density: FittedDensity = mixtures
        if fitted.members:
            share = fitted.shares["flows"]
            self._own_density = BlendFit([1 - share, share], [mixtures, self._alone("flows")])
        self._own_density.replicates = self._replicates()
        self.selection_ = fitted.table
        self.histories_ = [member.history for member in fitted.members]
        self.certificate_ = fitted.certificate

    def _alone(self, name: str, fold: int | None = None) -> FittedDensity:
        """Return one candidate as if there were no other, or what it has learned without a fold."""
        parts = self._fitted.parts[name]
        parts = parts if fold is None else parts[fold : fold + 1]
        mixtures = [part for part in parts if isinstance(part, GaussianMixture)]
        if mixtures:
            return self._mixture_fit(mixtures)
        members = [member for part in parts if isinstance(part, list) for member in part]
        return self._by_draws(ensemble_of(members, self.n_latent_))

    def _mixture_fit(self, mixtures: list[GaussianMixture]) -> MixtureFit:
        """Average mixtures in standardised units; under other laws draws are weighed."""
        members = [self._in_units(mixture) for mixture in mixtures]
        other_laws = self._by_draws(FixedMixture(mix(mixtures).without_copies(), torch.float64))
        return MixtureFit(members, self._names, self.n_jobs, other_laws)

    def _by_draws(self, density: Density) -> WeightedFit:
        proposing = ProposedByMixture(self._fitted.proposing)
        return WeightedFit(density, self.standardiser_, proposing, self._names, self.n_jobs)

    def _replicates(self) -> Replicates | None:
        """Return the answers without each fold, and the candidates that are averaged.

        None with fewer flows than folds: how much they vary is not known then.
        """
        shares, parts = self._fitted.shares, self._fitted.parts
        folds = max(len(parts[name]) for name in shares)
        if any(len(parts[name]) < folds for name in shares):
            return None
        blends = [
            BlendFit(list(shares.values()), [self._alone(name, f) for name in shares])
            for f in range(folds)
        ]
        whole = [(share, self._alone(name)) for name, share in shares.items()]
        return Replicates(blends, "folds", whole)

    def _in_units(self, mixture: GaussianMixture) -> GaussianMixture:
        return self.standardiser_.mixture_from_standard(mixture)

    def _check_parameters(self) -> None:
        if not isinstance(self.quick, bool):
            raise ValueError(f"Expected quick as True or False; got {self.quick!r}.")
        if self.n_members is not None:
            check_integer("n_members", self.n_members, 1)
            if self.quick:
                raise ValueError(
                    "Expected no n_members with quick=True, which has no flows; "
                    f"got {self.n_members}."
                )
        if self.n_jobs not in (None, -1):
            check_integer("n_jobs", self.n_jobs, 1)
        resolve_device(self.device)
        check_resumable(self)

    def _resources(self) -> Resources:
        checkpoint = ranks.from_first(self.checkpoint)  # the program names it to that one alone
        folder = None if checkpoint is None else Path(checkpoint)
        device = str(resolve_device(self.device))
        return Resources(cpus(self.n_jobs), folder, self._progress, device)
