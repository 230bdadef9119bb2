"""Deconvolver: XD and flows, and the choice made for the user."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from deconflow._limits import cpus
from deconflow.auto import FLOW_SHARE, Fitted, Member, Resources, blend_of, fit_density, make_plan
from deconflow.certificate import Certificate
from deconflow.checks import check_integer
from deconflow.densities import Architecture
from deconflow.estimators.base import DensityEstimator
from deconflow.estimators.fitted import FittedDensity
from deconflow.estimators.mixture_fit import MixtureFit
from deconflow.estimators.saved_values import (
    SAVED_HISTORY,
    refuse,
    saved_mixture,
    saved_standardiser,
    saved_table,
)
from deconflow.estimators.validation import check_resumable, true_values
from deconflow.estimators.weighted_fit import (
    ProposedByMixture,
    WeightedFit,
    log_volume,
    refuse_far,
    standardised,
)
from deconflow.mixtures import GaussianMixture, mix
from deconflow.model_files import NUMBERS, SAVED_CERTIFICATE, check_form
from deconflow.observations import Observations
from deconflow.randomness import RandomState, isolated_rng
from deconflow.standardising import Standardiser

FEWEST_ROWS = 10
PARTS = ("weights", "means", "covariances")
SAVED_DETAILS = {
    "size": {str: float},
    "components?": [int],
    "certificate": SAVED_CERTIFICATE,
    "selection": {"n_components": NUMBERS, "share": NUMBERS, str: object},
    "histories": [SAVED_HISTORY],
}


class UntrustedFitWarning(UserWarning):
    """The certificate of a fit has found a reason for doubt."""


class Deconvolver(DensityEstimator):
    r"""Density deconvolution with nothing to set.

    Fits an average of Gaussian mixtures (Extreme Deconvolution) and an ensemble of normalizing
    flows, the latter by chains that leave no bias from inexact posteriors; takes the flows where
    noisy rows that neither has seen say that these are better, and the mixtures alone where they
    do not; and says in ``certificate_`` how far to trust the answer.

    Parameters
    ----------
    quick : bool
        Whether to be content with one flow and fewer mixtures: a first answer.
    n_members : int or None
        Number of flows that are trained on all rows, beside those of the comparison; None for the
        usual number. More are better, and take longer.
    random_state : int, RandomState or None
        The same seed gives the same fit.
    n_jobs : int or None
        Processors to use, for threads of the mixtures and processes of the flows; None or -1 for
        all that the process was allowed. The answer does not depend on it, but for rounding.
    checkpoint : path or None
        A folder to save flows in while they are trained; an interrupted fit goes on from it.
    verbose : bool
        Whether to show progress bars.

    Attributes
    ----------
    density_ : FittedDensity
        The density of the truth, in the units of the data.
    method_ : {"xd", "flow"}
        What was chosen.
    certificate_ : Certificate
        How far to trust it; :meth:`summary` prints it.
    selection_ : dict of arrays
        How the mixtures' components and floor were chosen.
    mixtures_ : list of GaussianMixture
        The mixtures that are averaged, one for each fold left out, in the units of the data.
    histories_ : list of dict
        What happened in the training of each flow.
    standardiser_ : Standardiser
        The change of units.
    n_features_in_ : int
        Number of columns of ``w``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> w = rng.normal(size=(300, 2)) + rng.normal(size=(300, 2)) * [0.3, 0.6]
    >>> model = Deconvolver(quick=True, random_state=0).fit(w, noise=[0.3, 0.6])
    >>> model.sample(5).shape
    (5, 2)
    """

    density_: FittedDensity

    def __init__(
        self,
        *,
        quick: bool = False,
        n_members: int | None = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        checkpoint: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.quick = quick
        self.n_members = n_members
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.verbose = verbose

    def _fit(self, data: Observations) -> None:
        if len(data) < FEWEST_ROWS:
            raise ValueError(
                f"Expected at least {FEWEST_ROWS} rows in w to compare densities on held-out rows; "
                f"got n_samples = {len(data)}. Use XDGMM for so few."
            )
        self.standardiser_ = Standardiser.fit(data)
        plan = make_plan(len(data), self.n_members, quick=self.quick)
        seed = check_random_state(self.random_state).randint(2**30)
        with isolated_rng(seed):
            volume = log_volume(self.standardiser_, data)
            ready = standardised(self.standardiser_, data)
            refuse_far(ready, torch.float32)
            fitted = fit_density(ready, volume, plan, self._resources(), seed)
        self._take(fitted, plan.size)
        for warning in self.certificate_.warnings:
            warnings.warn(f"Do not trust this fit blindly: {warning}.", UntrustedFitWarning, 3)

    def xd_score_samples(self, v: ArrayLike) -> NDArray[np.float64]:
        """Log density of true values under the average of Gaussian mixtures alone, as ``(N,)``."""
        values = true_values(self, v).numpy()
        return MixtureFit(self.mixtures_, self._names).log_prob(values)

    @property
    def mixtures_(self) -> list[GaussianMixture]:
        """The mixtures that are averaged, one for each fold left out, in the units of the data."""
        check_is_fitted(self)
        units = self.standardiser_
        return [units.mixture_from_standard(mixture) for mixture in self._fitted.mixtures]

    def describe(self) -> str:
        """Say in one line what was fitted."""
        check_is_fitted(self)
        chosen = self.selection_["share"].argmax()
        count = self.selection_["n_components"][chosen]
        what = f"verage of Gaussian mixtures with {count} components each."
        if self.method_ == "xd":
            return f"A{what}"
        flows = f"{len(self.histories_)} flow{'s' if len(self.histories_) > 1 else ''}"
        return f"{flows}, with {1 - FLOW_SHARE:.0%} of an a{what}"

    def summary(self) -> str:
        """Say what was fitted, what was chosen and why, and how far to trust it."""
        return f"{self.describe()}\n{self.certificate_.in_words()}"

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        fitted = self._fitted
        details = {
            "size": asdict(self._size),
            "components": [mixture.n_components for mixture in fitted.mixtures],
            "certificate": self.certificate_.as_dict(),
            "selection": {k: v.tolist() for k, v in self.selection_.items()},
            "histories": self.histories_,
        }
        tensors = {f"standardiser.{k}": v for k, v in self.standardiser_.as_dict().items()}
        parts = {"mixture": mix(fitted.mixtures), "proposing": fitted.proposing}
        for prefix, mixture in parts.items():
            for name in PARTS:
                tensors[f"{prefix}.{name}"] = torch.tensor(getattr(mixture, name))
        for m, member in enumerate(fitted.members):
            tensors |= {f"flow{m}.{name}": tensor for name, tensor in member.state.items()}
        return details, tensors

    def _restore(self, details: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        def under(prefix: str) -> dict[str, torch.Tensor]:
            start = f"{prefix}."
            return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}

        check_form(details, SAVED_DETAILS, "details")
        dim, units = self.n_latent_, under("standardiser")
        self.standardiser_ = saved_standardiser(units, dim, self.n_features_in_)
        average, proposing = (
            saved_mixture(tensors, tuple(f"{prefix}.{name}" for name in PARTS), dim)
            for prefix in ("mixture", "proposing")
        )
        members = [
            Member(under(f"flow{m}"), history, torch.empty(0))
            for m, history in enumerate(details["histories"])
        ]
        fitted = Fitted(
            _members_of(average, details.get("components"), 4 if self.quick else 5),
            proposing,
            members,
            saved_table(details["selection"]),
            Certificate.from_dict(details["certificate"]),
        )
        self._take(fitted, Architecture(**details["size"]))

    def _take(self, fitted: Fitted, size: Architecture) -> None:
        """Learn what a fit has found, or what was saved of it."""
        self._fitted, self._size = fitted, size
        density = blend_of(fitted.mixtures, fitted.members, size)
        proposing = ProposedByMixture(fitted.proposing)
        self.density_ = WeightedFit(
            density, self.standardiser_, proposing, self._names, self.n_jobs
        )
        if not fitted.members:
            units = self.standardiser_
            members = [units.mixture_from_standard(mixture) for mixture in fitted.mixtures]
            self.density_ = MixtureFit(members, self._names, self.n_jobs, self.density_)
        self.method_ = "flow" if fitted.members else "xd"
        self.selection_ = fitted.table
        self.histories_ = [member.history for member in fitted.members]
        self.certificate_ = fitted.certificate

    def _check_parameters(self) -> None:
        if not isinstance(self.quick, bool):
            raise ValueError(f"Expected quick as True or False; got {self.quick!r}.")
        if self.n_members is not None:
            check_integer("n_members", self.n_members, 1)
            if self.quick:
                raise ValueError(
                    "Expected no n_members with quick=True, which has one flow; "
                    f"got {self.n_members}."
                )
        if self.n_jobs not in (None, -1):
            check_integer("n_jobs", self.n_jobs, 1)
        check_resumable(self)

    def _resources(self) -> Resources:
        folder = None if self.checkpoint is None else Path(self.checkpoint)
        return Resources(cpus(self.n_jobs), folder, bool(self.verbose))


def _members_of(
    average: GaussianMixture, sizes: list[int] | None, count: int
) -> list[GaussianMixture]:
    """Part an average into its members; ``sizes`` are not known of models of version 0.1."""
    if sizes is None:
        middles = np.cumsum(average.weights) - 0.5 * average.weights
        owner = np.minimum((middles * count).astype(int), count - 1)
        sizes = np.bincount(owner, minlength=count).tolist()
    right = min(sizes, default=0) > 0 and sum(sizes) == average.n_components
    refuse("components", not right, "those of its mixture")
    edges = np.cumsum(sizes)[:-1]
    parts = (np.split(getattr(average, name), edges) for name in PARTS)
    return [
        GaussianMixture(len(sizes) * weights, means, covariances)
        for weights, means, covariances in zip(*parts, strict=True)
    ]
