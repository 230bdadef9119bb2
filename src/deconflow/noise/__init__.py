"""Noise laws: how each row's measurement differs from the truth."""

from typing import TYPE_CHECKING, Any

import deconflow.noise.distributions as distributions
from deconflow.extras import need
from deconflow.noise.base import (
    Ends,
    JointMixture,
    Noise,
    NoiseMixture,
    Reading,
    RowIndex,
    as_index,
)
from deconflow.noise.coerce import as_noise, is_distribution
from deconflow.noise.distributions import *  # noqa: F403
from deconflow.noise.from_replicates import from_replicates, replicate_covariance
from deconflow.noise.from_samples import FewDrawsWarning, from_samples
from deconflow.noise.gaussian_noise import (
    HALF_LOG_2PI,
    FreeErrors,
    GaussianNoise,
    gaussian,
    in_call,
    psd_cholesky,
)
from deconflow.noise.likelihoods import (
    LikelihoodNoise,
    binomial,
    likelihood,
    multiplicative,
    poisson,
)
from deconflow.noise.limits import Limited, LimitedNoise, limited
from deconflow.noise.mixture_noise import IndependentMixture, MixtureNoise, gaussian_mixture

if TYPE_CHECKING:
    from deconflow.noise.law_noise import LawNoise, from_law, same_for_all

__all__ = [
    "HALF_LOG_2PI",
    "Ends",
    "FewDrawsWarning",
    "FreeErrors",
    "GaussianNoise",
    "IndependentMixture",
    "JointMixture",
    "LawNoise",
    "LikelihoodNoise",
    "Limited",
    "LimitedNoise",
    "MixtureNoise",
    "Noise",
    "NoiseMixture",
    "Reading",
    "RowIndex",
    "as_index",
    "as_noise",
    "binomial",
    "from_law",
    "from_replicates",
    "from_samples",
    "gaussian",
    "gaussian_mixture",
    "in_call",
    "is_distribution",
    "likelihood",
    "limited",
    "multiplicative",
    "poisson",
    "psd_cholesky",
    "replicate_covariance",
    "same_for_all",
]
__all__ += distributions.__all__


def __getattr__(name: str) -> Any:
    """Import what takes distributions of torch when it is first asked for."""
    if name not in ("LawNoise", "from_law", "same_for_all"):
        raise AttributeError(f"module 'deconflow.noise' has no attribute {name!r}")
    need("torch", f"noise.{name} takes its distributions")
    import deconflow.noise.law_noise

    return getattr(deconflow.noise.law_noise, name)


def __dir__() -> list[str]:
    return list(__all__)
