"""Rows with limits, completed: so that checks which simulate rows can be made of them.

How limits come about nobody has said, so that they cannot be simulated. But given a model, what a
measurement would have been is known as far as its limit and the rest of its row tell: a draw of it
stands for the limit. If model and noise are right, completed rows are as the model says that rows
are. If they are not, only what was measured can show it.
"""

from dataclasses import replace

import numpy as np

from deconflow.fits import FittedDensity
from deconflow.noise import LimitedNoise
from deconflow.observations import Observations
from deconflow.randomness import own_rng


def completed(density: FittedDensity, data: Observations) -> Observations:
    """Put a draw of the measurement, beyond its limit, in the place of each limit."""
    noise = data.noise
    if not isinstance(noise, LimitedNoise):
        return data
    w, limits = data.w.copy(), (noise.flags != 0).any(1)
    some = data[limits]
    assert isinstance(some.noise, LimitedNoise)
    seed = int(own_rng().integers(2**31 - 1))
    truths = density.posterior(some, n_samples=1, random_state=seed).sample(1, seed)[:, 0]
    clean = (some.projections() @ np.asarray(truths)[..., None])[..., 0]
    w[limits] = some.noise.complete(some.w, clean)
    return replace(data, w=w, noise=noise.without_limits())
