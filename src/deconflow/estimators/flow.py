"""FlowDeconvolver: one flow, one objective, in scikit-learn's shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

import torch

from deconflow.checks import check_choice, check_integer, check_number
from deconflow.densities import (
    DENSITIES,
    Architecture,
    Density,
    MixtureDensity,
)
from deconflow.devices import resolve_device
from deconflow.estimators.base import DensityEstimator
from deconflow.estimators.validation import check_resumable
from deconflow.fits import (
    ProposedByModel,
    WeightedFit,
    refuse_far,
    standardised,
)
from deconflow.fitting import (
    History,
    Training,
    common_rng,
    fit,
    refuse_different_rows,
    share_of,
)
from deconflow.objectives import (
    ELBO,
    CoupledChains,
    ImportanceWeighted,
    Objective,
    Roulette,
)
from deconflow.observations import Observations
from deconflow.posteriors import (
    MixtureExact,
    MixtureNetwork,
    PosteriorModel,
    RecognitionFlow,
)
from deconflow.randomness import RandomState, isolated_rng
from deconflow.saving import refuse
from deconflow.standardising import Standardiser
from deconflow.streams import Overview, RowStream

OBJECTIVES: dict[str, Callable[[Density, PosteriorModel, int], Objective]] = {
    "elbo": ELBO,
    "iw": ImportanceWeighted,
    "roulette": Roulette,
    "coupled": CoupledChains,
}
POSTERIORS = ("flow", "mixture", "exact")
NEED_DERIVATIVES = ("elbo", "iw")

POSITIVE = ("n_draws", "n_layers", "hidden", "base_components")
BLOCKS, POSTERIOR_COMPONENTS, AVERAGING = 1, 8, 0.99
"""Hidden blocks of the density's networks, Gaussians per row of a mixture network as posterior, and
decay of the running average of the weights."""
Weights = dict[str, torch.Tensor]
STEPS, MOST_EPOCHS = 4000, 300
"""What ``epochs=None`` means."""
TRAINING = "training the flow"


class FlowDeconvolver(DensityEstimator):
    r"""Density deconvolution with one normalizing flow and an amortised posterior.

    The density :math:`p(v)` of the truth is a flow; a second, conditional flow
    :math:`q(v | w, n)` stands in for the posterior of each row; both are trained on a lower
    bound of :math:`\sum_i \log p(w_i)` with :math:`w_i = v_i + n_i`, or on an estimate of it.

    Parameters
    ----------
    flow : {"maf", "made", "spline", "coupling", "mixture", "gaussian_mixture"}
        Architecture of the density; see :mod:`deconflow.densities.flows`. The last is no
        flow but a plain mixture of ``base_components`` Gaussians.
    objective : {"iw", "elbo", "roulette", "coupled"}
        The importance-weighted bound; the evidence lower bound; the unbiased roulette; unbiased
        coupled chains. See :mod:`deconflow.objectives`.
    n_draws : int
        Posterior draws ``K`` per row and step.
    posterior_family : {"flow", "mixture", "exact"}
        The recognition flow; a network that gives Gaussian mixtures, for objectives that need no
        derivatives of draws; the closed form, for the Gaussian mixture under Gaussian noise.
    n_layers, hidden
        Layers of the density, and the width of their networks. The recognition flow has one layer
        more, networks of the same width, and an embedding of ``w`` and its noise of that size.
    base_components : int
        1 for a standard normal base of the flow, more for a Gaussian mixture.
    epochs : int or None
        Passes through the rows; None for as many as make about 4,000 steps, at most 300.
    batch_size, learning_rate
        Rows per step, and Adam's step size at the start, which falls along a cosine.
    validation_fraction : float
        Share of the rows that chooses the best epoch; 0 to train on all rows and keep the last.
    bounds : dict, sequence or None
        Where the truth can be at all: ``{"x": (0, None)}``, or a pair ``(low, high)`` per column,
        None for no bound.
    random_state : int, RandomState or None
        The same seed gives the same fit.
    device : str
        ``"cpu"``, ``"cuda"``, or ``"auto"`` for the best there is. Networks are trained there, and
        give their answers from there.
    dtype : {"float32", "float64"}
        Precision of the networks. On a GPU, products of float32 are rounded to tf32 if
        ``torch.backends.cuda.matmul.allow_tf32`` says so: it is left as you have it, and torch has
        it off.
    checkpoint : path or None
        A file to write after every epoch; if it is there, an interrupted fit goes on from it.
    verbose : bool
        Whether to show progress: stages of the fit, and steps done in each.

    Attributes
    ----------
    density_ : FittedDensity
        The density of the truth, in the units of the data; ``density_.density`` is the network.
    posterior_ : PosteriorModel
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

    _own_density: WeightedFit
    history_: History
    posterior_: PosteriorModel
    _takes_covariates = True
    _fits_streams = True

    _saved: ClassVar = {
        "standardiser_": Standardiser, "history_": History, "n_posterior_features": int,
        "density": Weights, "posterior": Weights,
    }  # fmt: skip

    def __init__(
        self,
        flow: str = "mixture",
        *,
        objective: str = "iw",
        n_draws: int = 10,
        posterior_family: str = "flow",
        n_layers: int = 2,
        hidden: int = 64,
        base_components: int = 1,
        epochs: int | None = None,
        batch_size: int = 256,
        learning_rate: float = 2e-3,
        validation_fraction: float = 0.1,
        bounds: Any = None,
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
        self.base_components = base_components
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.bounds = bounds
        self.random_state = random_state
        self.device = device
        self.dtype = dtype
        self.checkpoint = checkpoint
        self.verbose = verbose

    def describe(self) -> str:
        """Say in one line what was fitted."""
        return f"One density of kind {self.flow}, trained by {self.objective}."

    def _fit(self, data: Observations) -> None:
        refuse_different_rows(data)
        if len(data) < 2:
            raise ValueError(
                f"Expected at least 2 rows in w to fit a density; got n_samples = {len(data)}."
            )
        with common_rng(self.random_state):
            self.standardiser_ = Standardiser.fit(data)
            data = standardised(self.standardiser_, data)
            refuse_far(data, getattr(torch, self.dtype))
            train, held_out = data, None
            if self.validation_fraction > 0:
                train, held_out = data.split(self.validation_fraction)
            self._build(data[:1].features().shape[-1])
            make = OBJECTIVES[self.objective]
            training = self._training(len(train))
            self._progress.begin(TRAINING, "epochs", training.epochs)
            self.history_ = fit(
                make(self._own_density.density, self.posterior_, self.n_draws),
                share_of(train),
                None if held_out is None else share_of(held_out),
                training,
                checkpoint=self.checkpoint,
                progress=self._progress,
            )

    def _fit_stream(self, sample: Observations, stream: RowStream, overview: Overview) -> None:
        """Train on the sample: networks learn from batches, not from every row."""
        self._rows_of_stream = len(sample), overview.n_rows
        self._fit(sample)

    def _state(self) -> dict[str, Any]:
        return {
            "standardiser_": self.standardiser_,
            "history_": self.history_,
            "n_posterior_features": getattr(self.posterior_, "n_features", 0),
            "density": self._own_density.density.state_dict(),
            "posterior": self.posterior_.state_dict(),
        }

    def _restore(self, values: dict[str, Any]) -> None:
        self.standardiser_, self.history_ = values["standardiser_"], values["history_"]
        sizes = (len(self.standardiser_.scale), len(self.standardiser_.measured_scale))
        refuse("standardiser_", sizes != (self.n_latent_, self.n_features_in_), "of these columns")
        with isolated_rng(0):  # weights drawn here are replaced below
            self._build(values["n_posterior_features"])
        for model, name in ((self._own_density.density, "density"), (self.posterior_, "posterior")):
            finite = all(bool(each.isfinite().all()) for each in values[name].values())
            refuse(name, not finite, "finite")
            model.load_state_dict(values[name])

    def _training(self, n_rows: int) -> Training:
        """Make the settings of the fit loop."""
        check_integer("batch_size", self.batch_size, 1)
        epochs = self.epochs
        if epochs is None:
            epochs = min(MOST_EPOCHS, math.ceil(STEPS / math.ceil(n_rows / self.batch_size)))
        return Training(
            epochs=epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            averaging=AVERAGING,
        )

    def _check_parameters(self) -> None:
        check_choice("flow", self.flow, DENSITIES)
        check_choice("dtype", self.dtype, ("float32", "float64"))
        resolve_device(self.device)
        for name in POSITIVE:
            check_integer(name, getattr(self, name), 1)
        self._check_combinations()
        check_number("validation_fraction", self.validation_fraction, 0, 1)
        check_resumable(self)
        self._training(n_rows=1)

    def _check_combinations(self) -> None:
        """Raise for names that are unknown, or that do not go together."""
        check_choice("objective", self.objective, OBJECTIVES)
        check_choice("posterior_family", self.posterior_family, POSTERIORS)
        if self.posterior_family == "exact" and self.flow != "gaussian_mixture":
            raise ValueError(
                "Expected flow='gaussian_mixture' for posterior_family='exact', because no other "
                f"density has an exact posterior; got flow={self.flow!r}."
            )
        if self.posterior_family == "mixture" and self.objective in NEED_DERIVATIVES:
            others = sorted(set(OBJECTIVES) - set(NEED_DERIVATIVES))
            raise ValueError(
                f"Expected objective to be one of {others} for posterior_family='mixture', whose "
                f"draws have no derivatives; got {self.objective!r}."
            )
        if self.objective == "coupled" and self.n_draws < 2:
            raise ValueError(
                f"Expected n_draws of at least 2 for objective='coupled'; got {self.n_draws}."
            )

    def _build(self, n_posterior_features: int) -> None:
        """Make density and posterior, with fresh weights."""
        size = Architecture(
            layers=self.n_layers,
            hidden=self.hidden,
            blocks=BLOCKS,
            base_components=self.base_components,
        )
        density = DENSITIES[self.flow](self.n_latent_, size)
        posterior = self._make_posterior(density, n_posterior_features, size)
        for module in (density, posterior):
            module.to(dtype=getattr(torch, self.dtype), device=resolve_device(self.device)).eval()
        self.posterior_ = posterior
        proposing = ProposedByModel(posterior)
        self._own_density = WeightedFit(density, self.standardiser_, proposing, self._names)

    def _make_posterior(
        self, density: Density, n_features: int, size: Architecture
    ) -> PosteriorModel:
        if self.posterior_family == "exact":
            return MixtureExact(cast(MixtureDensity, density))
        if self.posterior_family == "mixture":
            return MixtureNetwork(density.dim, n_features, POSTERIOR_COMPONENTS, hidden=size.hidden)
        return RecognitionFlow(
            density.dim,
            n_features,
            replace(size, layers=size.layers + 1),
            context_dim=size.hidden,
            residual=self.flow != "made",
        )
