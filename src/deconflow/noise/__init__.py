"""Noise laws: how each row's measurement differs from the truth."""

from deconflow.noise.base import Noise
from deconflow.noise.characteristic import characteristic_function
from deconflow.noise.door import as_noise
from deconflow.noise.gaussian import GaussianNoise, gaussian
from deconflow.noise.laws import LawNoise, from_law
from deconflow.noise.ready_made import (
    gaussian_mixture,
    laplace,
    same_for_all,
    split_normal,
    student_t,
    uniform,
)
from deconflow.noise.split_normal import SplitNormal

__all__ = [
    "GaussianNoise",
    "LawNoise",
    "Noise",
    "SplitNormal",
    "as_noise",
    "characteristic_function",
    "from_law",
    "gaussian",
    "gaussian_mixture",
    "laplace",
    "same_for_all",
    "split_normal",
    "student_t",
    "uniform",
]
