"""Posteriors ``q(v | w, noise)`` of the truth given a measurement."""

from deconflow.posteriors.base import Posterior
from deconflow.posteriors.coupled import SignedDraws, couple
from deconflow.posteriors.linear_gaussian import LinearGaussian
from deconflow.posteriors.mixture_exact import MixtureExact
from deconflow.posteriors.mixture_network import MixtureNetwork
from deconflow.posteriors.noise_kernel import NoiseKernel
from deconflow.posteriors.recognition import RecognitionFlow
from deconflow.posteriors.resampling import WeightedDraws, weigh

__all__ = [
    "LinearGaussian",
    "MixtureExact",
    "MixtureNetwork",
    "NoiseKernel",
    "Posterior",
    "RecognitionFlow",
    "SignedDraws",
    "WeightedDraws",
    "couple",
    "weigh",
]
