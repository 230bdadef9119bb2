"""Noise laws: how each row's measurement differs from the truth."""

from deconflow.noise.base import Ends, Noise, Reading, RowIndex, as_index
from deconflow.noise.coerce import as_noise
from deconflow.noise.free_errors import FreeErrors, in_call
from deconflow.noise.from_replicates import from_replicates, replicate_covariance
from deconflow.noise.from_samples import FewDrawsWarning, from_samples
from deconflow.noise.gaussian_noise import HALF_LOG_2PI, GaussianNoise, gaussian, psd_cholesky
from deconflow.noise.gaussian_parts import IndependentMixture, JointMixture, NoiseMixture
from deconflow.noise.law_noise import LawNoise, from_law
from deconflow.noise.likelihood_noise import LikelihoodNoise
from deconflow.noise.likelihoods import binomial, likelihood, multiplicative, poisson
from deconflow.noise.limits import Limited, LimitedNoise, limited
from deconflow.noise.ready_made import (
    gaussian_mixture,
    laplace,
    same_for_all,
    split_normal,
    student_t,
    uniform,
)
from deconflow.noise.split_normal_law import SplitNormal

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
    "Noise",
    "NoiseMixture",
    "Reading",
    "RowIndex",
    "SplitNormal",
    "as_index",
    "as_noise",
    "binomial",
    "from_law",
    "from_replicates",
    "from_samples",
    "gaussian",
    "gaussian_mixture",
    "in_call",
    "laplace",
    "likelihood",
    "limited",
    "multiplicative",
    "poisson",
    "psd_cholesky",
    "replicate_covariance",
    "same_for_all",
    "split_normal",
    "student_t",
    "uniform",
]


def __dir__() -> list[str]:
    return list(__all__)
