r"""A noise law as a mixture of Gaussians, so that XD's closed forms hold for it.

A Gaussian is itself. Student-t, Laplace and other laws with independent values become mixtures
of a few Gaussians in each value (for symmetric laws of mean zero: scale mixtures), fitted once
for all rows that differ in scale only. A law over whole rows that is shared by all rows is fitted
from draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributions import (
    Distribution,
    Laplace,
    MixtureSameFamily,
    MultivariateNormal,
    StudentT,
)

from deconflow.noise import GaussianNoise, LawNoise, Noise
from deconflow.noise.ready_made import student_t
from deconflow.randomness import isolated_rng

Array = NDArray[np.float64]

PARTS_FOR_DIMENSION = {1: 12, 2: 6, 3: 5, 4: 4, 5: 3}
"""Gaussians a value, so that their products over the values of a row stay few."""
LARGEST_FITS = 20_000
LARGEST_LOG_RATIO = 3.0
DRAWS = 20_000


@dataclass(frozen=True)
class JointParts:
    """``sum_j c_j N(b_j, S_j)`` over whole rows; a leading axis of 1 holds for all rows.

    Attributes
    ----------
    weights, means : array
        ``(N or 1, J)``, and ``(N or 1, J, M)`` or None for zero.
    covariances : array
        ``(N or 1, J, M)`` if diagonal, else ``(N or 1, J, M, M)``.
    """

    weights: Array
    means: Array | None
    covariances: Array

    @property
    def diagonal(self) -> bool:
        """Whether only variances are kept."""
        return self.covariances.ndim == 3

    def take(self, rows: NDArray | None, columns: NDArray | None) -> JointParts:
        """Parts of some rows and some measured values."""
        means, covariances = self.means, self.covariances
        if columns is not None:
            means = None if means is None else means[..., columns]
            covariances = covariances[..., columns]
            if not self.diagonal:
                covariances = covariances[..., columns, :]
        return JointParts(
            _rows(self.weights, rows),
            None if means is None else _rows(means, rows),
            _rows(covariances, rows),
        )


@dataclass(frozen=True)
class IndependentParts:
    """A mixture for each value of a row: all arrays are ``(N or 1, M, J)``."""

    weights: Array
    means: Array | None
    variances: Array

    def take(self, rows: NDArray | None, columns: NDArray | None) -> JointParts:
        """Products of the values' mixtures, for some rows and some measured values."""

        def pick(values: Array) -> Array:
            return _rows(values if columns is None else values[:, columns], rows)

        weights, variances = pick(self.weights), pick(self.variances)
        means = np.zeros_like(weights) if self.means is None else pick(self.means)
        _, dim, parts = weights.shape
        choice = np.stack(np.meshgrid(*[np.arange(parts)] * dim, indexing="ij"), -1)
        choice = choice.reshape(-1, dim)  # (J^M, M)
        values = np.arange(dim)
        return JointParts(
            weights[:, values, choice].prod(-1),
            None if self.means is None else means[:, values, choice],
            variances[:, values, choice],
        )


def noise_parts(noise: Noise) -> JointParts | IndependentParts:
    """Write a noise law as a mixture of Gaussians."""
    if isinstance(noise, GaussianNoise):
        one = np.ones((1, 1))
        if noise.diagonal:
            return JointParts(one, None, noise.variance().numpy()[:, None])
        return JointParts(one, None, noise.covariance().numpy()[:, None])
    if not isinstance(noise, LawNoise):
        raise TypeError(f"Expected a noise of deconflow.noise; got {type(noise).__name__}.")
    return _independent(noise) if noise.independent else _joint(noise)


def core_covariance(noise: Noise) -> Array:
    """Return how wide the noise is where rows learn most from it, ``(N or 1, M, M)``.

    A Gaussian's covariance. Of a scale mixture the inverse of the mean precision: a few far
    outliers make a large covariance, yet most rows are as sharp as the law's core.
    """
    if isinstance(noise, GaussianNoise):
        return noise.covariance().numpy()
    parts = noise_parts(noise)
    if parts.means is not None and parts.means.any():
        return noise.covariance().double().numpy()
    if isinstance(parts, IndependentParts):
        return _diagonal(1 / (parts.weights / parts.variances).sum(-1))
    if parts.diagonal:
        return _diagonal(1 / (parts.weights[..., None] / parts.covariances).sum(1))
    precisions = parts.weights[..., None, None] * np.linalg.inv(parts.covariances)
    return np.linalg.inv(precisions.sum(1))


def _diagonal(variances: Array) -> Array:
    return variances[..., None] * np.eye(variances.shape[-1])


def _rows(values: Array, rows: NDArray | None) -> Array:
    return values if rows is None or len(values) == 1 else values[rows]


def _joint(noise: LawNoise) -> JointParts:
    law, unit = noise.distribution, noise.unit
    if isinstance(law, MultivariateNormal):
        weights, means, covariances = (
            torch.ones(1, 1),
            law.loc[:, None],
            law.covariance_matrix[:, None],
        )
    elif isinstance(law, MixtureSameFamily) and isinstance(
        law.component_distribution, MultivariateNormal
    ):
        weights = law.mixture_distribution.probs
        means = law.component_distribution.loc
        covariances = law.component_distribution.covariance_matrix
    elif noise.shared:
        return _fitted_to_draws(noise)
    else:
        raise ValueError(
            "Expected noise that XD can write as a mixture of Gaussians: Gaussian, a mixture, "
            "independent values, or one law for all rows; "
            f"got a {type(law).__name__} over whole rows that differs by row."
        )
    return JointParts(
        weights.double().numpy(),
        (means / unit).double().numpy(),
        (covariances / torch.outer(unit, unit)).double().numpy(),
    )


def _fitted_to_draws(noise: LawNoise) -> JointParts:
    from deconflow.xd.fit import fit_exact  # fits need rows, and rows need noise parts

    with isolated_rng(0):
        draws = noise[np.zeros(DRAWS, dtype=int)].sample(1)[0].double().numpy()
    mixture = fit_exact(draws, n_components=8, seed=0)
    return JointParts(mixture.weights[None], mixture.means[None], mixture.covariances[None])


def _independent(noise: LawNoise) -> IndependentParts:
    if noise.dim not in PARTS_FOR_DIMENSION:
        raise ValueError(
            f"Expected at most {max(PARTS_FOR_DIMENSION)} values a row for noise that is not "
            f"Gaussian; got {noise.dim}. Pass its covariances instead, or use a flow."
        )
    parts = PARTS_FOR_DIMENSION[noise.dim]
    name = getattr(noise.law, "__name__", "")
    if name not in FAMILIES or noise.law.__module__ != student_t.__module__:
        return _fitted_by_value(noise.distribution, noise.unit, parts)
    parameters = {key: value.double().numpy() for key, value in noise.parameters.items()}
    scale, shape = FAMILIES[name](parameters)
    scale = scale / noise.unit.double().numpy()
    shapes, which = np.unique(shape, return_inverse=True)
    units = [_unit_parts(name, float(value), parts) for value in shapes]
    weights, means, variances = (
        np.stack(column)[which.reshape(scale.shape)] for column in zip(*units, strict=True)
    )
    centred = means * scale[..., None] if means.any() else None
    return IndependentParts(weights, centred, variances * scale[..., None] ** 2)


def _split_normal_family(given: dict[str, Array]) -> tuple[Array, Array]:
    """Total width, and log ratio of the noise's positive to its negative side, in steps of 5 %."""
    ratio = np.log(given["lower"] / given["upper"])
    if np.abs(ratio).max() > LARGEST_LOG_RATIO:
        raise ValueError(
            "Expected lower and upper errors within a factor of 20 of each other for XD; "
            f"got a factor of {np.exp(np.abs(ratio).max()):.3g}. Use a flow."
        )
    return given["lower"] + given["upper"], np.round(20 * ratio) / 20


FAMILIES: dict[str, Callable[[dict[str, Array]], tuple[Array, Array]]] = {
    "_student_t": lambda given: (given["scale"], given["df"]),
    "_laplace": lambda given: (given["scale"], np.zeros_like(given["scale"])),
    "_uniform": lambda given: (given["half_width"], np.zeros_like(given["half_width"])),
    "_split_normal": _split_normal_family,
}
"""Laws that differ by a scale and a shape: each shape is fitted once, at unit scale."""


@lru_cache(maxsize=1000)
def _unit_parts(name: str, shape: float, parts: int) -> tuple[Array, Array, Array]:
    """Weights, means and variances of the mixture nearest to a law of unit scale."""
    if name in ("_uniform", "_split_normal"):
        x, mass = _unit_table(name, shape)
        weights, means, variances = _fit_tables(x[None], mass[None], parts)
        return weights[0], means[0], variances[0]
    law: Distribution = StudentT(shape) if name == "_student_t" else Laplace(0.0, 1.0)
    points = torch.as_tensor(np.sinh(np.linspace(0, 14, 501)) * 1e-3)
    mass = law.log_prob(points).exp().numpy() * np.gradient(points.numpy())
    mass /= mass.sum()
    square = points.numpy() ** 2
    variances = _quantiles(square, mass, parts) + 1e-6
    weights = np.full(parts, 1 / parts)
    for _ in range(1500):
        log_q = np.log(weights) - 0.5 * (np.log(variances) + square[:, None] / variances)
        q = np.exp(log_q - log_q.max(1, keepdims=True))
        q *= mass[:, None] / q.sum(1, keepdims=True)
        weights = q.sum(0) / q.sum()
        variances = (q.T @ square) / q.sum(0)
    return weights, np.zeros(parts), variances


def _unit_table(name: str, shape: float) -> tuple[Array, Array]:
    """Points and masses of a law without a scale-mixture form."""
    if name == "_uniform":
        return np.linspace(-1, 1, 300), np.full(300, 1 / 300)
    above = 1 / (1 + np.exp(-shape))
    below = 1 - above
    x = np.linspace(-4.5 * below, 4.5 * above, 300)
    mass = np.exp(-0.5 * (x / np.where(x < 0, below, above)) ** 2)
    return x, mass / mass.sum()


def _fitted_by_value(law: Distribution, unit: torch.Tensor, parts: int) -> IndependentParts:
    """Fit each row's and value's density, tabulated between its extreme quantiles."""
    rows, dim = law.batch_shape
    if rows * dim > LARGEST_FITS:
        raise ValueError(
            f"Expected at most {LARGEST_FITS} values with a noise law of their own; got "
            f"{rows * dim}. Use a ready-made law, Gaussian noise, or a flow."
        )
    with isolated_rng(0):
        draws = law.sample((4000,)).sort(0).values
    low, high = draws[4], draws[-5]
    share = torch.linspace(0, 1, 300, dtype=draws.dtype)[:, None, None]
    x = low + (high - low) * share
    p = law.log_prob(x).exp()
    mass = (p / p.sum(0)).double().numpy().reshape(300, -1).T
    points = (x / unit).double().numpy().reshape(300, -1).T
    weights, means, variances = _fit_tables(points, mass, parts)
    shape = (rows, dim, parts)
    return IndependentParts(weights.reshape(shape), means.reshape(shape), variances.reshape(shape))


def _fit_tables(x: Array, mass: Array, parts: int) -> tuple[Array, Array, Array]:
    """EM for many one-dimensional densities at once, each a table of points and masses."""
    spread = x[:, -1:] - x[:, :1]
    means = np.stack([_quantiles(*table, parts) for table in zip(x, mass, strict=True)])
    variances = np.repeat((spread / (2 * parts)) ** 2, parts, axis=1)
    weights = np.full_like(means, 1 / parts)
    floor = (spread / 300) ** 2
    for _ in range(200):
        offset = x[:, :, None] - means[:, None]
        log_q = -0.5 * (offset**2 / variances[:, None] + np.log(variances[:, None]))
        log_q += np.log(weights[:, None] + 1e-300)
        q = np.exp(log_q - log_q.max(2, keepdims=True))
        q *= mass[:, :, None] / q.sum(2, keepdims=True)
        total = q.sum(1) + 1e-300
        weights = total / total.sum(1, keepdims=True)
        means = np.einsum("ngj,ng->nj", q, x) / total
        offset = x[:, :, None] - means[:, None]
        variances = np.maximum((q * offset**2).sum(1) / total, floor)
    return weights, means, variances


def _quantiles(x: Array, mass: Array, parts: int) -> Array:
    return np.interp((np.arange(parts) + 0.5) / parts, np.cumsum(mass), x)
