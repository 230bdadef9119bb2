"""Deconvolver: XD and flows, and the choice made for the user."""

from __future__ import annotations

import numbers
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from deconflow.auto.fitting import Fitted, Means, blend_of, fit_density
from deconflow.auto.member import Member
from deconflow.auto.plan import FLOW_SHARE, Plan, make_plan
from deconflow.checks import check_integer
from deconflow.densities import Restored
from deconflow.estimators.density_queries import POINTS_AT_ONCE, DensityQueries
from deconflow.estimators.door import (
    observe,
    refuse_noise_as_y,
    true_values,
    unchanged_on_failure,
)
from deconflow.estimators.persistence import read_model, write_model
from deconflow.evaluation import Certificate, Estimate, estimate_log_likelihood
from deconflow.observations import Observations
from deconflow.posteriors import WeightedDraws
from deconflow.posteriors.defensive import Defensive, PreparedRows
from deconflow.randomness import RandomState, isolated_rng
from deconflow.standardising import Standardiser
from deconflow.xd.expectation import usable_cpus
from deconflow.xd.mixture import Mixture, take_apart

FEWEST_ROWS = 10
PARTS = ("weights", "means", "covariances")


class UntrustedFitWarning(UserWarning):
    """The certificate of a fit has found a reason for doubt."""


class Deconvolver(DensityQueries, DensityMixin, BaseEstimator):
    r"""Density deconvolution with nothing to set.

    Fits an average of Gaussian mixtures (Extreme Deconvolution) and an ensemble of normalizing
    flows, the latter by chains that leave no bias from inexact posteriors; takes the flows where
    noisy rows that neither has seen say that these are better, and the mixtures alone where they
    do not; and says in ``certificate_`` how far to trust the answer.

    Parameters
    ----------
    quick : bool
        Whether to be content with one flow and fewer mixtures: a first answer.
    members : int or None
        Number of flows that are trained on all rows, beside those of the comparison; None for the
        usual number. More are better, and take longer.
    random_state : int, RandomState or None
        The same seed gives the same fit.
    n_jobs : int or None
        Flows that are trained side by side, in a process each; None for one a processor. The
        answer does not depend on it.
    checkpoint : path or None
        A folder to save flows in while they are trained; an interrupted fit goes on from it.
    verbose : bool
        Whether to show progress bars.

    Attributes
    ----------
    density_ : Density
        The density of the truth, in the units of the data.
    method_ : {"xd", "flow"}
        What was chosen.
    certificate_ : Certificate
        How far to trust it; :meth:`summary` prints it.
    selection_ : dict of arrays
        How the mixtures' components and floor were chosen.
    smoothing_ : float
        How much the flows' draws were blurred in training, as a share of the noise covariance;
        chosen on held-out rows.
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

    _proposing: Mixture

    __metadata_request__fit = {"w": UNUSED, "noise": True, "projection": True, "weights": True}
    __metadata_request__score = {
        "w": UNUSED,
        "noise": True,
        "projection": True,
        "n_samples": UNUSED,
    }

    def __init__(
        self,
        *,
        quick: bool = False,
        members: int | None = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        checkpoint: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.quick = quick
        self.members = members
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.verbose = verbose

    def fit(
        self,
        w: ArrayLike,
        y: None = None,
        *,
        noise: Any = None,
        projection: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> Self:
        """Fit the density of the truth.

        Parameters
        ----------
        w
            ``(N, D)`` measurements; NaN marks a missing value.
        y
            Ignored.
        noise
            Standard deviations ``(D,)`` or ``(N, D)``, covariances ``(D, D)`` or ``(N, D, D)``, a
            :class:`~deconflow.noise.Noise`, or a torch distribution over ``D`` values.
        projection
            ``(N, M, D)`` or ``(M, D)``, if what is measured is ``R v + n``.
        weights
            ``(N,)`` row weights.
        """
        means = self._checked()
        refuse_noise_as_y(y, noise)
        with unchanged_on_failure(self):
            data = observe(self, w, noise, projection, weights, reset=True).with_weight()
            if len(data) < FEWEST_ROWS:
                raise ValueError(
                    f"Expected at least {FEWEST_ROWS} rows to compare densities on held-out rows; "
                    f"got n_samples = {len(data)}. Use XDGMM for so few."
                )
            self.standardiser_ = Standardiser.fit(data)
            plan = make_plan(len(data), self.members, quick=self.quick)
            seed = check_random_state(self.random_state).randint(2**30)
            with isolated_rng(seed):
                volume = self.standardiser_.log_observed_volume(data)
                fitted = fit_density(self._standardised(data), volume, plan, means, seed)
            self._take(fitted, plan)
        for warning in self.certificate_.warnings:
            warnings.warn(f"Do not trust this fit blindly: {warning}.", UntrustedFitWarning, 2)
        return self

    def score_observations(
        self,
        w: ArrayLike,
        noise: Any = None,
        *,
        projection: ArrayLike | None = None,
        n_samples: int = 100,
        random_state: RandomState = 0,
    ) -> NDArray[np.float64]:
        """Log density ``log p(w)`` of each measurement; see :meth:`estimate_observations`."""
        answer = self.estimate_observations(
            w, noise, projection=projection, n_samples=n_samples, random_state=random_state
        )
        return answer.log_p.numpy()

    def estimate_observations(
        self,
        w: ArrayLike,
        noise: Any = None,
        *,
        projection: ArrayLike | None = None,
        n_samples: int = 100,
        random_state: RandomState = 0,
    ) -> Estimate:
        """Log density ``log p(w)`` of each measurement, with its standard error and bias.

        Parameters
        ----------
        w, noise, projection
            As for :meth:`fit`.
        n_samples
            Points a row, at least 32; more make the answer more exact.
        random_state
            Seed of the points.
        """
        check_is_fitted(self)
        check_integer("n_samples", n_samples, 32)
        like = next(self.density_.parameters()).dtype
        parts = []
        data = observe(self, w, noise, projection)
        with isolated_rng(random_state):
            for part in data.chunks(max(1, POINTS_AT_ONCE // n_samples)):
                rows = PreparedRows.of(self._standardised(part), self._proposing, like)
                estimate = estimate_log_likelihood(self.density_.density, rows, n_samples)
                parts.append(estimate.shifted(-self.standardiser_.log_observed_volume(part)))
        return Estimate.joined(parts)

    def xd_score_samples(self, v: ArrayLike) -> NDArray[np.float64]:
        """Log density of true values under the average of Gaussian mixtures alone, as ``(N,)``."""
        z = self.standardiser_.latent(true_values(self, v)).numpy()
        return self._mixture.log_prob(z) - float(self.standardiser_.log_latent_volume())

    @property
    def mixtures_(self) -> list[Mixture]:
        """The mixtures that the average consists of, one a fold left out, in the data's units."""
        units = (self.standardiser_.location.numpy(), self.standardiser_.scale.numpy())
        return [part.in_units(*units) for part in take_apart(self._mixture, self._plan.folds)]

    def summary(self) -> str:
        """Say what was fitted, what was chosen and why, and how far to trust it."""
        check_is_fitted(self)
        chosen = self.selection_["share"].argmax()
        count = self.selection_["n_components"][chosen]
        what = f"Average of Gaussian mixtures with {count} components each"
        if self.method_ == "flow":
            flows = len(self.histories_)
            what = f"{flows} flows, with {1 - FLOW_SHARE:.0%} of an a" + what[1:]
        return f"{what}.\n{self.certificate_.in_words()}"

    def save(self, path: str | Path, extra_files: dict[str, str] | None = None) -> None:
        """Write the fitted model to a folder, as JSON and safetensors."""
        check_is_fitted(self)
        details = {
            "size": asdict(self._plan.size),
            "smoothing": self.smoothing_,
            "certificate": self.certificate_.as_dict(),
            "selection": {k: v.tolist() for k, v in self.selection_.items()},
            "histories": self.histories_,
        }
        tensors = dict(vars(self.standardiser_))
        tensors = {f"standardiser.{name}": tensor for name, tensor in tensors.items()}
        for prefix, mixture in (("mixture", self._mixture), ("proposing", self._proposing)):
            for name in PARTS:
                tensors[f"{prefix}.{name}"] = torch.tensor(getattr(mixture, name))
        for m, member in enumerate(self._members):
            tensors |= {f"flow{m}.{name}": tensor for name, tensor in member.state.items()}
        write_model(path, self, details, tensors, extra_files)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that :meth:`save` wrote."""
        return read_model(path, cls, {})

    def _restore(self, details: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """Take what :meth:`save` wrote."""

        def under(prefix: str) -> dict[str, torch.Tensor]:
            start = f"{prefix}."
            return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}

        self.standardiser_ = Standardiser(**under("standardiser"))
        mixture, proposing = (
            Mixture(*(under(prefix)[name].numpy() for name in PARTS))
            for prefix in ("mixture", "proposing")
        )
        members = [
            Member(under(f"flow{m}"), history, torch.empty(0))
            for m, history in enumerate(details["histories"])
        ]
        plan = make_plan(FEWEST_ROWS, self.members, quick=self.quick)
        plan = plan.with_size(details["size"])
        selection = {k: np.array(v) for k, v in details["selection"].items()}
        certificate = Certificate.from_dict(details["certificate"])
        smoothing = details["smoothing"]
        fitted = Fitted(mixture, proposing, members, smoothing, selection, certificate)
        self._take(fitted, plan)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "certificate_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a missing value
        return tags

    def _take(self, fitted: Fitted, plan: Plan) -> None:
        self._plan, self._members = plan, fitted.members
        self._mixture, self._proposing = fitted.mixture, fitted.proposing
        density = blend_of(fitted.mixture, fitted.members, plan)
        self.density_ = Restored(density, self.standardiser_)
        self.method_ = "flow" if fitted.members else "xd"
        self.smoothing_ = fitted.smoothing
        self.selection_ = fitted.table
        self.histories_ = [member.history for member in fitted.members]
        self.certificate_ = fitted.certificate
        self.parameters_ = self.get_params()

    def _checked(self) -> Means:
        if not isinstance(self.quick, bool):
            raise ValueError(f"Expected quick as True or False; got {self.quick!r}.")
        if self.members is not None:
            check_integer("members", self.members, 1)
            if self.quick:
                raise ValueError(
                    f"Expected no members with quick=True, which has one flow; got {self.members}."
                )
        n_jobs = usable_cpus()
        if self.n_jobs not in (None, -1):
            check_integer("n_jobs", self.n_jobs, 1)
            n_jobs = int(self.n_jobs)
        if self.checkpoint is not None and not isinstance(self.random_state, numbers.Integral):
            raise ValueError(
                "Expected an integer random_state for a checkpoint, so that the fit can go on; "
                f"got {self.random_state!r}."
            )
        folder = None if self.checkpoint is None else Path(self.checkpoint)
        return Means(n_jobs, folder, bool(self.verbose))

    def _weigh(self, data: Observations, n_draws: int) -> WeightedDraws:
        proposal, density = Defensive(), self.density_.density
        rows = PreparedRows.of(data.to(dtype=torch.float64), self._proposing, data.w.dtype)
        rows = rows.to(dtype=data.w.dtype)
        v = proposal.sample(rows, n_draws)
        return WeightedDraws(v, density.log_prob(v) + proposal.log_ratio(rows, v))
