r"""Values of which only a limit is known, as mixtures of Gaussians.

An upper limit ``w`` with error ``s`` says :math:`P(v + n < w) = \Phi((w - v) / s)` of the truth:
an edge of width ``s``, and then a plateau without end. A few Gaussians, narrow at the edge and ever
wider beyond it, add up to that as far as the plateau is needed.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array, IntArray
from deconflow.noise.gaussian_parts import JointMixture, NoiseMixture


@dataclass(frozen=True)
class LimitShape:
    r"""Gaussians that add up to :math:`\Phi(x)` from ``x = -3`` to ``reach``, within 3 %.

    They were found by least squares of the relative error; :math:`\Phi(x) < .003` is exceeded by
    at most 3e-5 farther below.
    """

    reach: float
    weights: Array
    means: Array
    sds: Array


def _shape(reach: float, *numbers: tuple[float, ...]) -> LimitShape:
    return LimitShape(reach, *(np.array(each) for each in numbers))


_MANY = _shape(
    400.0,
    (0.8158, 1.486, 2.089, 2.827, 3.822, 5.172, 6.999, 9.466,
     12.8, 17.3, 23.38, 31.63, 43.04, 59.98, 90.61, 180.2),
    (0.4464, 1.706, 3.591, 6.151, 9.601, 14.26, 20.57, 29.1,
     40.63, 56.22, 77.28, 105.7, 144.3, 197.0, 272.6, 400.7),
    (1.027, 1.174, 1.488, 1.967, 2.637, 3.551, 4.788, 6.461,
     8.719, 11.77, 15.88, 21.44, 28.96, 39.15, 53.23, 75.42),
)  # fmt: skip
#: By how many values of a row are limits: the Gaussians of each multiply, and so get fewer.
SHAPES = {
    1: _MANY,
    2: _MANY,
    3: _shape(
        60.0,
        (0.8066, 1.451, 2.029, 2.731, 3.676, 4.963, 6.749, 9.422, 14.31, 28.77),
        (0.4438, 1.679, 3.516, 5.997, 9.325, 13.8, 19.86, 28.14, 40.04, 60.4),
        (1.027, 1.171, 1.475, 1.939, 2.588, 3.472, 4.668, 6.289, 8.528, 12.09),
    ),
    4: _shape(
        20.0,
        (0.9556, 1.687, 2.428, 3.494, 5.436, 11.19),
        (0.5349, 1.981, 4.149, 7.209, 11.71, 19.55),
        (1.04, 1.238, 1.64, 2.26, 3.164, 4.622),
    ),
    5: _shape(
        8.0,
        (0.9358, 1.676, 2.651, 5.423),
        (0.5193, 1.926, 4.131, 7.951),
        (1.04, 1.221, 1.599, 2.272),
    ),
    6: _shape(
        5.0,
        (1.018, 1.948, 4.08),
        (0.5579, 2.113, 4.984),
        (1.047, 1.252, 1.728),
    ),
}


@dataclass(frozen=True)
class LimitMixture(NoiseMixture):
    """Independent values, each one Gaussian, or the shape of a limit.

    Edges are at least as wide as the plateau's reach asks for: with one or two limits in a row the
    400th part of it. So narrower errors of limits, or none, are blurred to that. Weights of a limit
    sum to the length of its plateau, not to one: what they weigh is the likelihood itself.

    Attributes
    ----------
    sd, flags, reach : array
        ``(N, M)``: standard deviations of the noise, -1 or 1 for limits, and how long the plateau
        of each must be.
    unit : array
        ``(M,)``: by what the values were divided; likelihoods are per unit of the data's.
    """

    sd: Array
    flags: Array
    reach: Array
    unit: Array

    @property
    def n_parts(self) -> int:
        """Number of Gaussians of the row that has most."""
        counts = (self.flags != 0).sum(1)
        return max(_parts_of(int(count)) for count in np.unique(counts))

    @property
    def patterns(self) -> NDArray[np.uint8]:
        """Which values of each row are limits, in bytes ``(N, P)``."""
        return np.packbits(self.flags != 0, axis=1)

    def divide(self, unit: Array) -> "LimitMixture":
        """Return the mixture of the noise divided by ``unit``, ``(M,)``."""
        return LimitMixture(self.sd / unit, self.flags, self.reach / unit, self.unit * unit)

    def take(
        self, rows: IntArray | slice | None = None, columns: IntArray | None = None
    ) -> JointMixture:
        """Mixtures of some rows and values; rows with fewer limits than others have empty parts."""
        of, among = (slice(None) if each is None else each for each in (columns, rows))
        sd, flags, reach = (x[among][:, of] for x in (self.sd, self.flags, self.reach))
        limits = flags != 0
        if not limits.any():
            return JointMixture(np.ones((1, 1)), None, np.square(sd)[:, None])
        found, which = np.unique(limits, axis=0, return_inverse=True)
        most = max(_parts_of(int(each.sum())) for each in found)
        shape = (len(sd), most, sd.shape[1])
        weights, means = np.zeros(shape[:2]), np.zeros(shape)
        variances = np.repeat(np.square(sd)[:, None], most, axis=1)
        order = np.argsort(which.ravel(), kind="stable")
        ends = np.concatenate([[0], np.cumsum(np.bincount(which.ravel()))])
        for limited, (first, last) in zip(found, pairwise(ends.tolist()), strict=True):
            mine, own = order[first:last], np.flatnonzero(limited)
            parts = _parts_of(len(own))
            log_weights = np.zeros((len(mine), parts))
            for d, part in zip(own.tolist(), _products(len(own)), strict=True):
                table = SHAPES[len(own)]
                edge = np.maximum(sd[mine, d], reach[mine, d] / table.reach)[:, None]
                log_weights += np.log(table.weights[part] * edge * self.unit[of][d])
                means[mine, :parts, d] = -flags[mine, d, None] * table.means[part] * edge
                variances[mine, :parts, d] = np.square(table.sds[part] * edge)
            weights[mine, :parts] = np.exp(log_weights)
        return JointMixture(weights, means, variances)


def _parts_of(limits: int) -> int:
    """Return how many Gaussians a row with so many limits is made of."""
    if limits == 0:
        return 1
    if limits not in SHAPES:
        raise ValueError(
            f"Expected at most {max(SHAPES)} limits in a row; got {limits}. "
            "Put NaN for those that say least."
        )
    return len(SHAPES[limits].weights) ** limits


def _products(limits: int) -> list[IntArray]:
    """Return which Gaussian of each of so many limits every part of a row takes."""
    if limits == 0:
        return []
    grid = np.meshgrid(*[np.arange(len(SHAPES[limits].weights))] * limits, indexing="ij")
    return [each.ravel() for each in grid]
