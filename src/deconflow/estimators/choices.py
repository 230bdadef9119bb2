"""What can be chosen by name in ``FlowDeconvolver``, and which choices go together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from deconflow.densities import Architecture, Density, MixtureDensity
from deconflow.objectives import (
    ELBO,
    CoupledChains,
    ImportanceWeighted,
    Objective,
    Roulette,
    WakeSleep,
)
from deconflow.posteriors import MixtureExact, MixtureNetwork, PosteriorModel, RecognitionFlow


def wake_sleep(density: Density, posterior: PosteriorModel, draws: int) -> WakeSleep:
    """Make wake-sleep whose posterior learns asleep, from simulated pairs."""
    return WakeSleep(density, posterior, draws, wake=0.0)


def wake_wake(density: Density, posterior: PosteriorModel, draws: int) -> WakeSleep:
    """Make wake-sleep whose posterior learns awake, from weighted draws."""
    return WakeSleep(density, posterior, draws, wake=1.0)


OBJECTIVES: dict[str, Callable[[Density, PosteriorModel, int], Objective]] = {
    "elbo": ELBO,
    "iw": ImportanceWeighted,
    "wake_sleep": wake_sleep,
    "wake_wake": wake_wake,
    "roulette": Roulette,
    "coupled": CoupledChains,
}
POSTERIORS = ("flow", "mixture", "exact")
NEED_DERIVATIVES = ("elbo", "iw")
NEED_TWO_DRAWS = ("wake_sleep", "wake_wake", "coupled")


def check_choices(
    flow: str, objective: str, posterior_family: str, n_draws: int, dropout: float
) -> None:
    """Raise for names that are unknown, or that do not go together."""
    one_of("objective", objective, OBJECTIVES)
    one_of("posterior_family", posterior_family, POSTERIORS)
    if posterior_family == "exact" and flow != "gaussian_mixture":
        raise ValueError(
            "Expected flow='gaussian_mixture' for posterior_family='exact', because no other "
            f"density has an exact posterior; got flow={flow!r}."
        )
    if posterior_family == "mixture" and objective in NEED_DERIVATIVES:
        others = sorted(set(OBJECTIVES) - set(NEED_DERIVATIVES))
        raise ValueError(
            f"Expected objective to be one of {others} for posterior_family='mixture', whose draws "
            f"have no derivatives; got {objective!r}."
        )
    if objective in NEED_TWO_DRAWS and n_draws < 2:
        raise ValueError(
            f"Expected n_draws of at least 2 for objective={objective!r}; got {n_draws}."
        )
    if objective == "roulette" and dropout > 0:
        raise ValueError(
            "Expected dropout=0 for objective='roulette', which is unbiased for one density only; "
            f"got {dropout}."
        )


def one_of(name: str, value: Any, known: Iterable[str]) -> None:
    """Raise unless a name is known."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"Expected {name} to be one of {sorted(known)}; got {value!r}.")


def make_posterior(
    family: str,
    density: Density,
    n_features: int,
    size: Architecture,
    *,
    components: int,
    context_dim: int,
    residual: bool,
    anchored: bool,
) -> PosteriorModel:
    """Make a posterior by name, with fresh weights."""
    if family == "exact":
        return MixtureExact(cast(MixtureDensity, density))
    if family == "mixture":
        return MixtureNetwork(
            density.dim,
            n_features,
            components,
            hidden=size.hidden,
            dropout=size.dropout,
            anchored=anchored,
        )
    return RecognitionFlow(
        density.dim,
        n_features,
        size,
        context_dim=context_dim,
        residual=residual,
        anchored=anchored,
    )
