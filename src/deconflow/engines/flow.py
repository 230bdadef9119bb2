"""The engine of FlowDeconvolver: one flow, one objective."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from deconflow.core import EVERYTHING, Run
from deconflow.engines.shared import Engine, refuse_rows
from deconflow.fitting import History, Training
from deconflow.guests import check_device
from deconflow.observations import Observations
from deconflow.randomness import isolated_rng
from deconflow.saving import refuse
from deconflow.standardising import Standardiser, refuse_far, standardised

if TYPE_CHECKING:
    from deconflow.densities import Density, MixtureDensity
    from deconflow.fits import WeightedFit
    from deconflow.posteriors import PosteriorModel

#: Classes of :mod:`deconflow.objectives`.
OBJECTIVES = {
    "elbo": "ELBO",
    "iw": "ImportanceWeighted",
    "roulette": "Roulette",
    "coupled": "CoupledChains",
}
#: Hidden blocks of the density's networks, Gaussians per row of a mixture network as posterior, and
#: decay of the running average of the weights.
BLOCKS, POSTERIOR_COMPONENTS, AVERAGING = 1, 8, 0.99
#: What ``epochs=None`` means.
STEPS, MOST_EPOCHS = 4000, 300
TRAINING = "training the flow"
#: Precision of the networks.
PRECISION = "float32"


@dataclass(frozen=True)
class FlowSettings:
    """Kind and size of the two networks of a fit."""

    flow: str
    objective: str
    posterior_family: str
    n_layers: int
    hidden: int
    base_components: int
    dtype: str
    device: str
    dim: int
    n_features: int

    def networks(self) -> "tuple[Density, PosteriorModel]":
        """Make density and posterior, with fresh weights."""
        import torch

        from deconflow.densities import DENSITIES, Architecture
        from deconflow.posteriors import MixtureExact, MixtureNetwork, RecognitionFlow

        size = Architecture(
            layers=self.n_layers, hidden=self.hidden, blocks=BLOCKS,
            base_components=self.base_components,
        )  # fmt: skip
        density = DENSITIES[self.flow](self.dim, size)
        posterior: PosteriorModel
        if self.posterior_family == "exact":
            posterior = MixtureExact(cast("MixtureDensity", density))
        elif self.posterior_family == "mixture":
            posterior = MixtureNetwork(
                self.dim, self.n_features, POSTERIOR_COMPONENTS, hidden=size.hidden
            )
        else:
            posterior = RecognitionFlow(
                self.dim, self.n_features, replace(size, layers=size.layers + 1),
                context_dim=size.hidden, residual=self.flow != "made",
            )  # fmt: skip
        for module in (density, posterior):
            module.to(dtype=getattr(torch, self.dtype), device=check_device(self.device)).eval()
        return density, posterior


@dataclass(frozen=True)
class FlowSolution:
    """A trained flow, its posterior network, and what happened in training."""

    settings: FlowSettings
    standardiser: Standardiser
    network: "Density"
    posterior: "PosteriorModel"
    history: History

    def density(self, names: list[str], threads: int | None) -> "WeightedFit":
        """Return the flow's density, with draws from the posterior network."""
        from deconflow.fits import WeightedFit

        return WeightedFit(self.network, self.standardiser, self.posterior, names)

    def words(self) -> str:
        """Return what was fitted."""
        return f"One density of kind {self.settings.flow}, trained by {self.settings.objective}."

    def lean(self) -> "FlowWeights":
        """Return what is saved."""
        from deconflow.densities import as_arrays

        return FlowWeights(
            self.settings, self.standardiser,
            as_arrays(self.network), as_arrays(self.posterior), self.history,
        )  # fmt: skip

    def attributes(self) -> dict[str, Any]:
        """Return what FlowDeconvolver shows."""
        return {
            "posterior_": self.posterior,
            "standardiser_": self.standardiser,
            "history_": self.history,
        }


@dataclass(frozen=True)
class FlowWeights:
    """A solution as it is saved: the weights of its networks."""

    settings: FlowSettings
    standardiser: Standardiser
    network: dict[str, Any]
    posterior: dict[str, Any]
    history: History

    def validate(self) -> None:
        """Raise unless all weights are finite."""
        for name in ("network", "posterior"):
            arrays = getattr(self, name).values()
            refuse(name, not all(np.isfinite(each).all() for each in arrays), "finite")

    def whole(self) -> FlowSolution:
        """Return the solution."""
        from deconflow.densities import load_arrays

        with isolated_rng(0):  # weights drawn here are replaced below
            networks = self.settings.networks()
        for module, state in zip(networks, (self.network, self.posterior), strict=True):
            load_arrays(module, state)
        return FlowSolution(self.settings, self.standardiser, *networks, self.history)


class Flow(Engine):
    """Training of one flow with the settings of an estimator."""

    name = "FlowDeconvolver"
    takes = EVERYTHING - {"atoms", "background"}
    solution = FlowWeights
    samples = True

    def fit(self, rows: Observations, run: Run) -> FlowSolution:
        """Train a flow and its posterior network."""
        from deconflow import objectives
        from deconflow.fitting import common_rng, fit, share_of

        given = self.settings
        refuse_rows(rows, 2)
        with common_rng(given.random_state):
            units = Standardiser.fit(rows)
            data = standardised(units, rows)
            refuse_far(data, PRECISION)
            data, share = data.to(), given.validation_fraction
            train, held_out = data.split(share) if share > 0 else (data, None)
            names = [name for name in FlowSettings.__dataclass_fields__ if hasattr(given, name)]
            settings = FlowSettings(
                **{name: getattr(given, name) for name in names},
                dtype=PRECISION,
                dim=rows.latent_dim,
                n_features=data[:1].features().shape[-1],
            )
            density, posterior = settings.networks()
            steps_an_epoch = math.ceil(len(train) / given.batch_size)
            training = Training(
                epochs=given.epochs or min(MOST_EPOCHS, math.ceil(STEPS / steps_an_epoch)),
                batch_size=given.batch_size,
                learning_rate=given.learning_rate,
                averaging=AVERAGING,
            )
            run.progress.begin(TRAINING, "epochs", training.epochs)
            objective = getattr(objectives, OBJECTIVES[given.objective])
            history = fit(
                objective(density, posterior, given.n_draws),
                share_of(train),
                None if held_out is None else share_of(held_out),
                training,
                checkpoint=given.checkpoint,
                progress=run.progress,
            )
        return FlowSolution(settings, units, density, posterior, history)
