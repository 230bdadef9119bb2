"""Noise laws: how each row's measurement differs from the truth."""

from typing import TYPE_CHECKING

import deconflow.noise.distributions as distributions
from deconflow.extras import need, of_flows
from deconflow.noise.base import (
    ByRow,
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
    "ByRow",
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


__getattr__ = of_flows(
    __name__,
    dict.fromkeys(("LawNoise", "from_law", "same_for_all"), "law_noise"),
    lambda name: need("torch", f"noise.{name} takes its distributions"),
)


def __dir__() -> list[str]:
    return list(__all__)
