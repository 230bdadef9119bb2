"""What the classical estimators share: how rows come in, and what a density on a grid answers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from deconflow.checks import check_integer, check_number
from deconflow.classical.empirical import Rows
from deconflow.classical.grid import GridDensity, cut
from deconflow.classical.kde import FourierFit
from deconflow.classical.posterior import resample, weigh
from deconflow.estimators.door import observe, refuse_noise_as_y, true_values
from deconflow.estimators.persistence import read_model, write_model
from deconflow.estimators.results import PosteriorSamples
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.standardising import Standardiser

Array = NDArray[np.float64]

LARGEST_ERROR = 0.5
"""A fit with more error for its signal than this warns."""
GRID_ARRAYS = ("low", "step", "values", "mean", "factor")


class GridQueries:
    """The answers of a fitted density on a grid; the estimators that make it inherit this.

    Attributes
    ----------
    density_ : GridDensity
        The density.
    relative_error_ : float
        Integrated squared error that comes from the noise, over the density's integrated square.
    """

    density_: GridDensity
    relative_error_: float
    background: float
    parameters_: dict[str, Any]

    def score_samples(self, v: ArrayLike) -> Array:
        """Log density ``log p(v)`` of true values ``(N, D)``, as ``(N,)``."""
        values = true_values(self, v).numpy()
        return self.density_.log_prob(values)

    def score_observations(
        self,
        w: ArrayLike,
        noise: Any = None,
        *,
        projection: None = None,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Array:
        """Log density ``log p(w)`` of each measurement, ``(N,)``.

        Rows with noise wider than the grid's cells are summed over the grid, and over
        ``n_proposals`` draws of their noise for the law behind it; the others over draws alone.
        """
        check_integer("n_proposals", n_proposals, 1)
        data = self._observe(w, noise, projection)
        answer = np.empty(len(data))
        for weighed in weigh(self.density_, data, n_proposals, random_state):
            answer[weighed.rows] = weighed.log_marginal()
        return answer

    def score(
        self, w: ArrayLike, y: None = None, *, noise: Any = None, projection: None = None
    ) -> float:
        """Mean of ``log p(w)`` over the rows."""
        refuse_noise_as_y(y, noise)
        return float(self.score_observations(w, noise, projection=projection).mean())

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Array:
        """Draw true values ``(n_samples, D)`` from the density."""
        check_is_fitted(self)
        check_integer("n_samples", n_samples, 1)
        return self.density_.sample(n_samples, random_state)

    def posterior(
        self,
        w: ArrayLike,
        noise: Any = None,
        *,
        projection: None = None,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> PosteriorSamples:
        """Posterior of each row's true value.

        Parameters
        ----------
        w, noise
            As for ``fit``.
        projection
            Must be None.
        n_samples
            Draws to return for each row.
        n_proposals
            Draws of the noise that are weighed; rows with noise wider than the grid's cells are
            weighed on the grid, too.
        random_state
            Seed of the draws.
        """
        check_integer("n_samples", n_samples, 1)
        check_integer("n_proposals", n_proposals, 1)
        data = self._observe(w, noise, projection)
        n, dim = data.w.shape
        samples, means = np.empty((n, n_samples, dim)), np.empty((n, dim))
        covariances, sizes = np.empty((n, dim, dim)), np.empty(n)
        rng = check_random_state(random_state)
        for weighed in weigh(self.density_, data, n_proposals, rng):
            parts = resample(self.density_, weighed, n_samples, rng)
            for whole, part in zip((samples, means, covariances, sizes), parts, strict=True):
                whole[weighed.rows] = part
        return PosteriorSamples(samples, means, covariances, sizes)

    def save(self, path: str | Path, extra_files: dict[str, str] | None = None) -> None:
        """Write the fitted model to a folder, as JSON and safetensors."""
        check_is_fitted(self)
        arrays = {
            name: torch.from_numpy(np.array(getattr(self.density_, name))) for name in GRID_ARRAYS
        }
        details = {
            "background": self.density_.background,
            "relative_error": self.relative_error_,
            "learned": self._learned(),
        }
        write_model(path, self, details, arrays, extra_files)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that :meth:`save` wrote."""
        return read_model(path, cls, {})

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "density_")

    def _learned(self) -> dict[str, Any]:
        """What :meth:`save` writes beside the density."""
        raise NotImplementedError

    def _learn(self, learned: dict[str, Any]) -> None:
        """Take what :meth:`_learned` gave."""
        raise NotImplementedError

    def _restore(self, details: dict[str, Any], arrays: dict[str, torch.Tensor]) -> None:
        """Take what :meth:`save` wrote."""
        values = {name: arrays[name].numpy() for name in GRID_ARRAYS}
        self.density_ = GridDensity(background=details["background"], **values)
        self.relative_error_ = details["relative_error"]
        self._learn(details["learned"])
        self.parameters_ = self.get_params()  # type: ignore[attr-defined]

    def _observe(
        self,
        w: ArrayLike,
        noise: Any,
        projection: Any,
        weights: ArrayLike | None = None,
        *,
        reset: bool = False,
    ) -> Observations:
        name = type(self).__name__
        if projection is not None:
            raise ValueError(
                f"Expected no projection with {name}; got one. Use XDGMM, which takes projections."
            )
        data = observe(self, w, noise, None, weights, reset=reset)
        if data.observed is not None:
            raise ValueError(
                f"Expected complete rows in w with {name}; got NaN. Drop those rows, or use XDGMM, "
                "which takes missing values."
            )
        return data

    def _take(self, fit: FourierFit, units: Units) -> None:
        """Make the density of a fit, and say so if it is mostly noise."""
        values = fit.lattice.density(fit.characteristic)
        step = fit.lattice.length / np.array(values.shape)
        self.density_ = GridDensity(
            low=fit.lattice.low,
            step=step,
            values=cut(values, float(step.prod())),
            background=1 - (1 - float(self.background)) * (1 - float(fit.far_weights.sum())),
            mean=units.location,
            factor=np.diag(units.spread),
        )
        self.relative_error_ = fit.relative_error
        self.parameters_ = self.get_params()  # type: ignore[attr-defined]
        if len(fit.far_weights):
            ends = (end.tolist() for end in (fit.lattice.low, fit.lattice.low + fit.lattice.length))
            low, high = ([float(f"{x:.5g}") for x in end] for end in ends)
            warnings.warn(
                f"{len(fit.far_weights)} of the rows lie too far out for a grid, which is between "
                f"{low} and {high}: a normal law behind it has their share. Drop them, raise the "
                "bandwidth, or use XDGMM.",
                stacklevel=3,
            )
        if fit.relative_error > LARGEST_ERROR:
            warnings.warn(
                f"The noise hides the density at this resolution: error is {fit.relative_error:.2g}"
                " times the signal. Check the noise, smooth more, or bring more rows.",
                stacklevel=3,
            )


class Units:
    """Where the rows lie: location, deconvolved scale and measured spread, each ``(D,)``."""

    def __init__(self, data: Observations) -> None:
        standard = Standardiser.fit(data)
        self.location = standard.location.numpy()
        self.scale = standard.scale.numpy()
        self.spread = np.sqrt(np.square(self.scale) + _typical_variance(data))


def _typical_variance(data: Observations) -> Array:
    """Inverse mean precision of the noise, ``(D,)``: rows that tell nothing do not count."""
    variance = data.noise.variance().numpy()
    if data.noise.shared:
        return variance[0]
    weights = None if data.weights is None else data.weights.numpy()
    with np.errstate(divide="ignore"):  # an exact row has all precision that there is
        return 1 / np.average(1 / variance, axis=0, weights=weights)


def as_rows(data: Observations, name: str, most_dimensions: int) -> Rows:
    """Check what only a classical estimator cannot take, and make its rows."""
    n, dim = data.w.shape
    if n < 2:
        raise ValueError(f"Expected at least 2 rows to fit a density; got n_samples = {n}.")
    if dim > most_dimensions:
        word = "one column" if most_dimensions == 1 else f"at most {most_dimensions} columns"
        raise ValueError(
            f"Expected {word} in w with {name}; got {dim}. "
            "Use XDGMM or FlowDeconvolver in more dimensions."
        )
    w = data.w.numpy()
    constant = np.ptp(w, axis=0) == 0
    if constant.any():
        raise ValueError(
            "Expected values that differ in every column of w; "
            f"got one value in column {int(constant.argmax())}. Drop it."
        )
    weights = np.ones(n) if data.weights is None else data.weights.numpy()
    return Rows(w, data.noise, weights / weights.sum())


def check_background(background: Any) -> None:
    """Check the share of the normal law behind the grid."""
    check_number("background", background, 0, 1)
