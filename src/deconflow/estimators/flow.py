"""FlowDeconvolver: one flow, one objective, in scikit-learn's shape."""

from __future__ import annotations

import copy
import math
import numbers
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import Tags
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from deconflow.checks import check_integer, check_number
from deconflow.densities import DENSITIES, Architecture, Restored
from deconflow.devices import resolve_device
from deconflow.estimators.choices import OBJECTIVES, check_choices, make_posterior, one_of
from deconflow.estimators.density_queries import DensityQueries
from deconflow.estimators.door import (
    observe,
    refuse_noise_as_y,
    unchanged_on_failure,
)
from deconflow.estimators.persistence import read_model, write_model
from deconflow.fitting import History, Training, fit
from deconflow.observations import Observations
from deconflow.posteriors import Posterior, WeightedDraws, weigh
from deconflow.randomness import RandomState, isolated_rng
from deconflow.standardising import Standardiser

POSITIVE = (
    "n_draws",
    "n_layers",
    "hidden",
    "n_blocks",
    "base_components",
    "posterior_layers",
    "posterior_components",
    "context_dim",
)
STEPS, MOST_EPOCHS = 4000, 300
"""What ``epochs=None`` means."""


class FlowDeconvolver(DensityQueries, DensityMixin, BaseEstimator):
    r"""Density deconvolution with one normalizing flow and an amortised posterior.

    The density :math:`p(v)` of the truth is a flow; a second, conditional flow
    :math:`q(v | w, n)` stands in for the posterior of each row; both are trained on a lower
    bound of :math:`\sum_i \log p(w_i)` with :math:`w_i = v_i + n_i`, or on an estimate of it.

    Parameters
    ----------
    flow : {"maf", "made", "spline", "coupling", "mixture", "gaussian_mixture"}
        Architecture of the density; see :mod:`deconflow.densities.architectures`. The last is no
        flow but a plain mixture of ``base_components`` Gaussians.
    objective : {"iw", "elbo", "wake_sleep", "wake_wake", "roulette", "coupled"}
        The importance-weighted bound; the evidence lower bound; reweighted wake-sleep, with a
        posterior that learns from simulated pairs or from weighted draws; the unbiased roulette;
        unbiased coupled chains. See :mod:`deconflow.objectives`.
    n_draws : int
        Posterior draws ``K`` a row and step.
    posterior_family : {"flow", "mixture", "exact"}
        The recognition flow; a network that gives Gaussian mixtures, for objectives that need no
        derivatives of draws; the closed form, for the Gaussian mixture under Gaussian noise.
    n_layers, hidden, n_blocks, dropout
        Sizes of the density's networks, and their dropout.
    base_components : int
        1 for a standard normal base of the flow, more for a Gaussian mixture.
    posterior_layers, context_dim
        Number of layers of a flow as posterior, and the size of the embedding of ``w`` and its
        noise.
    posterior_components : int
        Number of Gaussians a row of a mixture network as posterior.
    anchored : bool
        Whether the posterior starts at that of a Gaussian density; False is the paper's network.
    epochs : int or None
        Passes through the rows; None for as many as make about 4,000 steps, at most 300.
    batch_size, learning_rate, schedule, plateau_factor, plateau_patience
        How to step; see :class:`deconflow.fitting.Training`.
    weight_decay, clip_norm, averaging, patience, keep
        How to keep steps in check; see :class:`deconflow.fitting.Training`.
    validation_fraction : float
        Share of the rows that chooses the best epoch; 0 to train on all rows and keep the last.
    warm_start : bool
        Whether the next fit starts from the networks and units of the last.
    random_state : int, RandomState or None
        The same seed gives the same fit.
    device : str
        ``"cpu"``, ``"cuda"``, or ``"auto"`` for the best there is.
    dtype : {"float32", "float64"}
        Precision of the networks.
    checkpoint : path or None
        A file to write after every epoch; if it is there, an interrupted fit goes on from it.
    verbose : bool
        Whether to show a progress bar.

    Attributes
    ----------
    density_ : Density
        The density of the truth, in the units of the data.
    posterior_ : Posterior
        The posterior, in standardised units.
    standardiser_ : Standardiser
        The change of units.
    history_ : History
        What happened in training.
    parameters_ : dict
        The parameters the model was fitted with.
    n_features_in_ : int
        Number of columns of ``w``.

    References
    ----------
    Dockhorn, Ritchie, Yu, Murray (2020), "Density Deconvolution with Normalizing Flows",
    https://arxiv.org/abs/2006.09396

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> w = rng.normal(size=(200, 2)) + rng.normal(size=(200, 2)) * [0.3, 0.6]
    >>> model = FlowDeconvolver(epochs=2, random_state=0).fit(w, noise=[0.3, 0.6])
    >>> model.sample(5).shape
    (5, 2)
    """

    history_: History
    posterior_: Posterior

    __metadata_request__fit = {
        "w": UNUSED,
        "noise": True,
        "projection": True,
        "weights": True,
    }
    __metadata_request__score = {
        "w": UNUSED,
        "noise": True,
        "projection": True,
        "n_samples": UNUSED,
    }

    def __init__(
        self,
        flow: str = "mixture",
        *,
        objective: str = "iw",
        n_draws: int = 10,
        posterior_family: str = "flow",
        n_layers: int = 2,
        hidden: int = 64,
        n_blocks: int = 1,
        dropout: float = 0.0,
        base_components: int = 1,
        posterior_layers: int = 3,
        posterior_components: int = 8,
        context_dim: int = 64,
        anchored: bool = True,
        epochs: int | None = None,
        batch_size: int = 256,
        learning_rate: float = 2e-3,
        schedule: str = "cosine",
        plateau_factor: float = 0.8,
        plateau_patience: int = 20,
        weight_decay: float = 0.0,
        clip_norm: float | None = 5.0,
        averaging: float | None = 0.99,
        patience: int | None = None,
        keep: str = "best",
        validation_fraction: float = 0.1,
        warm_start: bool = False,
        random_state: RandomState = None,
        device: str = "cpu",
        dtype: str = "float32",
        checkpoint: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.flow = flow
        self.objective = objective
        self.n_draws = n_draws
        self.posterior_family = posterior_family
        self.n_layers = n_layers
        self.hidden = hidden
        self.n_blocks = n_blocks
        self.dropout = dropout
        self.base_components = base_components
        self.posterior_layers = posterior_layers
        self.posterior_components = posterior_components
        self.context_dim = context_dim
        self.anchored = anchored
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.plateau_factor = plateau_factor
        self.plateau_patience = plateau_patience
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.averaging = averaging
        self.patience = patience
        self.keep = keep
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.random_state = random_state
        self.device = device
        self.dtype = dtype
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
        with unchanged_on_failure(self):
            return self._fit(w, y, noise, projection, weights)

    def initialise(
        self, w: ArrayLike, *, noise: Any = None, projection: ArrayLike | None = None
    ) -> Self:
        """Make fresh networks in the units of these rows, and do not train them.

        For those who train ``density_.density`` and ``posterior_`` in their own way; with
        ``warm_start=True`` a later :meth:`fit` goes on from there. Parameters are those of
        :meth:`fit`.
        """
        with unchanged_on_failure(self):
            size = self._checked_size()
            data = observe(self, w, noise, projection, reset=True)
            with isolated_rng(self.random_state):
                self.standardiser_ = Standardiser.fit(data)
                self._build(size, self._standardised(data[:1]).features().shape[-1])
            self.history_ = History()
            self.parameters_ = self.get_params()
        return self

    def _fit(
        self,
        w: ArrayLike,
        y: Any,
        noise: Any,
        projection: ArrayLike | None,
        weights: ArrayLike | None,
    ) -> Self:
        size = self._checked_size()
        self._training(n_rows=1)  # a bad setting raises before any work
        refuse_noise_as_y(y, noise)
        data = observe(self, w, noise, projection, weights, reset=True).with_weight()
        if len(data) < 2:
            raise ValueError(
                f"Expected at least 2 rows to fit a density; got n_samples = {len(data)}."
            )
        going_on = bool(self.warm_start) and hasattr(self, "history_")
        with isolated_rng(self.random_state):
            if going_on:
                self._go_on()
            else:
                self.standardiser_ = Standardiser.fit(data)
            data = self._standardised(data)
            train, held_out = data, None
            if self.validation_fraction > 0:
                train, held_out = data.split(self.validation_fraction)
            if not going_on:
                self._build(size, data[:1].features().shape[-1])
            make = OBJECTIVES[self.objective]
            self.history_ = fit(
                make(self.density_.density, self.posterior_, self.n_draws),
                train,
                held_out,
                self._training(len(train)),
                checkpoint=self.checkpoint,
                progress=self.verbose,
            )
        self.parameters_ = self.get_params()
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
        """Log density ``log p(w)`` of each measurement, by the importance-weighted bound.

        Parameters
        ----------
        w, noise, projection
            As for :meth:`fit`.
        n_samples
            Draws a row; more make the bound tighter.
        random_state
            Seed of the draws.
        """
        check_integer("n_samples", n_samples, 1)
        answers = []
        data = observe(self, w, noise, projection)
        for part, draws in self._weighted_draws(data, n_samples, random_state):
            volume = self.standardiser_.log_observed_volume(part)
            answers.append(draws.log_marginal().double().cpu() - volume)
        return torch.cat(answers).numpy()

    def save(self, path: str | Path, extra_files: dict[str, str] | None = None) -> None:
        """Write the fitted model to a folder, as JSON and safetensors."""
        check_is_fitted(self)
        details = {
            "n_posterior_features": getattr(self.posterior_, "n_features", 0),
            "history": self.history_.as_dict(),
        }
        weights = {
            **_prefixed("standardiser.", vars(self.standardiser_)),
            **_prefixed("density.", self.density_.density.state_dict()),
            **_prefixed("posterior.", self.posterior_.state_dict()),
        }
        write_model(path, self, details, weights, extra_files)

    @classmethod
    def load(cls, path: str | Path, *, device: str | None = None) -> Self:
        """Read a model that :meth:`save` wrote; ``device`` overrides the one it was trained on."""
        changes = {} if device is None else {"device": device}
        return read_model(path, cls, changes)

    def _restore(self, details: dict[str, Any], weights: dict[str, torch.Tensor]) -> None:
        """Take what :meth:`save` wrote."""
        self.standardiser_ = Standardiser(**_without_prefix("standardiser.", weights))
        with isolated_rng(0):  # weights drawn here are replaced below
            self._build(self._checked_size(), details["n_posterior_features"])
        self.density_.density.load_state_dict(_without_prefix("density.", weights))
        self.posterior_.load_state_dict(_without_prefix("posterior.", weights))
        self.history_ = History(**details["history"])
        self.parameters_ = self.get_params()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "history_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _training(self, n_rows: int) -> Training:
        """Make the settings of the fit loop."""
        check_integer("batch_size", self.batch_size, 1)
        names = [f.name for f in fields(Training) if hasattr(self, f.name)]
        settings = {name: getattr(self, name) for name in names}
        if self.epochs is None:
            steps = math.ceil(n_rows / self.batch_size)
            settings["epochs"] = min(MOST_EPOCHS, math.ceil(STEPS / steps))
        return Training(**settings)

    def _checked_size(self) -> Architecture:
        """Check the other parameters, and make the sizes of the networks."""
        one_of("flow", self.flow, DENSITIES)
        one_of("dtype", self.dtype, ("float32", "float64"))
        resolve_device(self.device)
        for name in POSITIVE:
            check_integer(name, getattr(self, name), 1)
        check_number("dropout", self.dropout, 0, 1)
        check_choices(self.flow, self.objective, self.posterior_family, self.n_draws, self.dropout)
        check_number("validation_fraction", self.validation_fraction, 0, 1)
        validating = self.patience or self.schedule == "plateau" or self.keep != "best"
        if self.validation_fraction == 0 and validating:
            raise ValueError(
                "Expected a validation_fraction above 0 for patience, the plateau schedule and "
                "keep='one_standard_error'; got 0."
            )
        if self.checkpoint is not None and not isinstance(self.random_state, numbers.Integral):
            raise ValueError(
                "Expected an integer random_state for a checkpoint, so that the fit can go on; "
                f"got {self.random_state!r}."
            )
        return Architecture(
            layers=self.n_layers,
            hidden=self.hidden,
            blocks=self.n_blocks,
            dropout=self.dropout,
            base_components=self.base_components,
        )

    def _build(self, size: Architecture, n_posterior_features: int) -> None:
        """Make density and posterior, with fresh weights."""
        density = DENSITIES[self.flow](self.n_latent_, size)
        self.posterior_ = make_posterior(
            self.posterior_family,
            density,
            n_posterior_features,
            replace(size, layers=self.posterior_layers),
            components=self.posterior_components,
            context_dim=self.context_dim,
            residual=self.flow != "made",
            anchored=self.anchored,
        )
        self.density_ = Restored(density, self.standardiser_)
        for module in (self.density_, self.posterior_):
            module.to(dtype=getattr(torch, self.dtype), device=resolve_device(self.device)).eval()

    def _go_on(self) -> None:
        """Start from copies of the last networks: a fit that fails must leave those."""
        if self.density_.dim != self.n_latent_:
            raise ValueError(
                f"Expected a truth of {self.density_.dim} dimensions for warm_start, as in the "
                f"last fit; got {self.n_latent_}."
            )
        self.density_, self.posterior_ = copy.deepcopy((self.density_, self.posterior_))

    def _weigh(self, data: Observations, n_draws: int) -> WeightedDraws:
        return weigh(self.density_.density, self.posterior_, data, n_draws)


def _prefixed(prefix: str, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {prefix + name: tensor for name, tensor in state.items()}


def _without_prefix(prefix: str, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {n.removeprefix(prefix): tensor for n, tensor in state.items() if n.startswith(prefix)}
