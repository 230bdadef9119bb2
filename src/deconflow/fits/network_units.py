"""Units of networks: rows standardised for them, and what no precision holds."""

from dataclasses import replace

import numpy as np

from deconflow._types import Array, BoolArray
from deconflow.checks import first_bad
from deconflow.noise import GaussianNoise, Noise
from deconflow.observations import Observations, OutOfReachError, noise_sizes
from deconflow.standardising import Standardiser

#: Exact values are taken to be known to this share of the truth's standard deviation; noise beyond
#: so many of these tells nothing.
SMALLEST_NOISE, LARGEST_NOISE = 1e-3, 1e9
#: Standard deviations of the truth whose squares a precision can add up.
FARTHEST = {"float32": 1e15, "float64": 1e140}


def standardised(standardiser: Standardiser, data: Observations) -> Observations:
    """Change the units of rows to those of networks.

    Exact values get a little noise. A value with noise beyond any use, which single precision
    does not hold, is divided by what there is too much of it: it says as little as before.
    """
    data = standardiser.observations(data)
    excess = too_much_noise(data.noise)
    if excess.max() > 1:
        data = replace(data, w=data.w / excess, noise=data.noise.divide(excess))
    return replace(data, noise=data.noise.floor(SMALLEST_NOISE))


def far_rows(data: Observations, dtype: str) -> BoolArray:
    """Say which standardised rows, or their noise, a precision does not hold, ``(N,)``."""
    sizes = (np.abs(data.w), noise_sizes(data.noise))
    largest = [size.reshape(len(size), -1).max(1) for size in sizes]
    return ~(np.maximum(*largest) <= FARTHEST[dtype])


def refuse_far(data: Observations, dtype: str) -> None:
    """Raise for standardised rows that networks cannot be trained on."""
    position = first_bad(far_rows(data, dtype))
    if position is not None:
        raise OutOfReachError(
            f"Expected w and noise within {FARTHEST[dtype]:g} times the spread of the truth; "
            f"got more in row {position[0]} of w. Leave that row out."
        )


def log_volume(standardiser: Standardiser, data: Observations) -> Array:
    """Return ``log |dw / dw'|`` of each row for what :func:`standardised` does, ``(N or 1,)``."""
    noise = data.noise.divide(standardiser.measured_scale)
    return standardiser.log_observed_volume(data) + np.log(too_much_noise(noise)).sum(-1)


def too_much_noise(noise: Noise) -> Array:
    """Return by how much noise exceeds the most of use, ``(N or 1, M)``; at least one."""
    if not isinstance(noise, GaussianNoise):
        return np.ones((1, noise.dim))
    sd = noise.factor if noise.diagonal else np.sqrt(noise.variance())
    return np.maximum(sd / LARGEST_NOISE, 1.0)
