"""The paper's flows: its networks, its training, and answers as an estimator gives them."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch

from deconflow import Observations
from deconflow.densities import DENSITIES, Architecture, Density, MixtureDensity
from deconflow.fits.network_units import standardised
from deconflow.fits.posterior import Posterior
from deconflow.fits.weighted_fit import WeightedFit
from deconflow.fitting import History, Training, fit
from deconflow.objectives import ELBO, ImportanceWeighted
from deconflow.posteriors import MixtureExact, PosteriorModel, RecognitionFlow
from deconflow.randomness import isolated_rng
from deconflow.standardising import Standardiser
from paper.data import Array

Settings = dict[str, Any]
OBJECTIVES = {"elbo": ELBO, "iw": ImportanceWeighted}
OF_TRAINING = (
    "epochs", "batch_size", "learning_rate", "schedule", "clip_norm", "averaging", "patience",
)  # fmt: skip


@dataclass
class PaperFlow:
    """A prior and the posterior of each row, in standardised units.

    Attributes
    ----------
    settings : dict
        Sizes of the networks and how to train them.
    units : Standardiser
        The change of units.
    prior, recognition
        The networks.
    history : History
        What happened in training.
    """

    settings: Settings
    units: Standardiser
    prior: Density
    recognition: PosteriorModel
    history: History = field(default_factory=History)

    def score_samples(self, v: Array) -> Array:
        """Log density of true values."""
        return self._fit.log_prob(v)

    def score_observations(self, w: Array, noise: Array, n_samples: int) -> Array:
        """Log density of measurements, by so many draws each."""
        return self._fit.log_marginal(Observations.from_arrays(w, noise), n_samples).log_p

    def sample(self, n: int, random_state: int) -> Array:
        """Draw true values."""
        return self._fit.sample(n, random_state)

    def posterior(self, w: Array, noise: Array, n_samples: int, n_proposals: int) -> Posterior:
        """Posterior of each row, by weighted draws."""
        return self._fit.posterior(Observations.from_arrays(w, noise), n_samples, n_proposals)

    @property
    def _fit(self) -> WeightedFit:
        names = [f"v{d}" for d in range(self.prior.dim)]
        return WeightedFit(self.prior, self.units, self.recognition, names)


def untrained(settings: Settings, data: Observations, seed: int) -> PaperFlow:
    """Make networks, in the units of these rows."""
    with isolated_rng(seed):
        return _made(settings, Standardiser.fit(data), data)


def trained(
    settings: Settings,
    data: Observations,
    seed: int,
    checkpoint: Path,
    start: PaperFlow | None = None,
) -> PaperFlow:
    """Train by one of the paper's bounds, from new networks or from those of ``start``."""
    with isolated_rng(seed):
        units = Standardiser.fit(data) if start is None else start.units
        train, held_out = standardised(units, data).split(settings["validation_fraction"])
        flow = _made(settings, units, data) if start is None else replace(start, settings=settings)
        make = OBJECTIVES[settings["objective"]]
        objective = make(flow.prior, flow.recognition, settings["n_draws"])
        training = Training(**{name: settings[name] for name in OF_TRAINING if name in settings})
        flow.history = fit(objective, train, held_out, training, checkpoint=checkpoint)
    return flow


def _made(settings: Settings, units: Standardiser, data: Observations) -> PaperFlow:
    size = Architecture(
        layers=settings["n_layers"],
        hidden=settings["hidden"],
        blocks=settings["n_blocks"],
        dropout=settings.get("dropout", 0.0),
        base_components=settings.get("base_components", 1),
    )
    n_features = standardised(units, data[:1]).features().shape[-1]
    prior = DENSITIES[settings["flow"]](data.latent_dim, size)
    recognition = _recognition(settings, prior, n_features, size)
    for network in (prior, recognition):
        network.to(dtype=torch.float32).eval()
    return PaperFlow(settings, units, prior, recognition)


def _recognition(
    settings: Settings, prior: Density, n_features: int, size: Architecture
) -> PosteriorModel:
    if settings.get("posterior_family") == "exact":
        return MixtureExact(cast(MixtureDensity, prior))
    return RecognitionFlow(
        prior.dim,
        n_features,
        replace(size, layers=settings["posterior_layers"]),
        residual=settings["flow"] != "made",
        anchored=False,
    )
