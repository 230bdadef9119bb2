"""Extreme Deconvolution: Gaussian mixtures of the truth, by EM under per-row noise."""

from deconflow.xd.mixture import Mixture
from deconflow.xd.posterior import MixturePosterior

__all__ = ["Mixture", "MixturePosterior"]
