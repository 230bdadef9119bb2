"""Questions to a density that was fitted in standardised units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from deconflow.checks import check_integer, first_bad
from deconflow.densities import Restored
from deconflow.estimators.door import observe, refuse_noise_as_y, true_values
from deconflow.estimators.results import PosteriorSamples
from deconflow.observations import Observations
from deconflow.posteriors import WeightedDraws
from deconflow.randomness import RandomState, isolated_rng
from deconflow.standardising import Standardiser

POINTS_AT_ONCE = 2**14
SMALLEST_NOISE = 1e-3
"""Exact values are taken to be known to this share of the truth's standard deviation."""


class OutOfReachError(ValueError):
    """A measurement to which the model gives no density at all."""


class DensityQueries:
    """What can be asked of ``density_`` with weighted draws from a proposal, ``_weigh``."""

    density_: Restored
    standardiser_: Standardiser

    def _weigh(self, data: Observations, n_draws: int) -> WeightedDraws:
        """Draw and weigh for standardised rows."""
        raise NotImplementedError

    def score_observations(
        self,
        w: ArrayLike,
        noise: Any = None,
        *,
        projection: ArrayLike | None = None,
        n_samples: int = 100,
        random_state: RandomState = 0,
    ) -> NDArray[np.float64]:
        """Log density ``log p(w)`` of each measurement."""
        raise NotImplementedError

    def score_samples(self, v: ArrayLike) -> NDArray[np.float64]:
        """Log density ``log p(v)`` of true values ``(N, D)``, as ``(N,)``."""
        values = true_values(self, v)
        with torch.no_grad():
            device = next(self.density_.parameters()).device
            chunks = values.to(device).split(POINTS_AT_ONCE)
            parts = [self.density_.log_prob(part) for part in chunks]
        return torch.cat(parts).cpu().numpy()

    def score(
        self,
        w: ArrayLike,
        y: None = None,
        *,
        noise: Any = None,
        projection: ArrayLike | None = None,
        n_samples: int = 100,
    ) -> float:
        """Mean of ``log p(w)`` over the rows; see :meth:`score_observations`."""
        refuse_noise_as_y(y, noise)
        return float(
            self.score_observations(
                w, noise=noise, projection=projection, n_samples=n_samples
            ).mean()
        )

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> NDArray[np.float64]:
        """Draw true values ``(n_samples, D)`` from the density."""
        check_is_fitted(self)
        check_integer("n_samples", n_samples, 1)
        with torch.no_grad(), isolated_rng(random_state):
            starts = range(0, n_samples, POINTS_AT_ONCE)
            counts = [min(POINTS_AT_ONCE, n_samples - start) for start in starts]
            parts = [self.density_.sample(count).double().cpu() for count in counts]
        return torch.cat(parts).numpy()

    def posterior(
        self,
        w: ArrayLike,
        noise: Any = None,
        *,
        projection: ArrayLike | None = None,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> PosteriorSamples:
        """Posterior of each row's true value, by sampling-importance-resampling.

        Parameters
        ----------
        w, noise, projection
            As for :meth:`fit`.
        n_samples
            Draws to return for each row.
        n_proposals
            Draws that are weighed for each row.
        random_state
            Seed of the draws.
        """
        check_integer("n_samples", n_samples, 1)
        check_integer("n_proposals", n_proposals, 1)
        data = observe(self, w, noise, projection)
        parts: list[tuple[torch.Tensor, ...]] = []
        for _, draws in self._weighted_draws(data, n_proposals, random_state):
            scale = self.standardiser_.scale.to(draws.v.device)
            parts.append((
                self.standardiser_.restore(draws.resample(n_samples)).transpose(0, 1),
                self.standardiser_.restore(draws.mean()),
                draws.covariance().double() * torch.outer(scale, scale),
                draws.effective_sample_size(),
            ))  # fmt: skip
        arrays = (torch.cat(column).double().cpu().numpy() for column in zip(*parts, strict=True))
        return PosteriorSamples(*arrays)

    def _standardised(self, data: Observations) -> Observations:
        data = self.standardiser_.observations(data)
        return replace(data, noise=data.noise.floor(SMALLEST_NOISE))

    def _weighted_draws(
        self, data: Observations, n_draws: int, random_state: RandomState
    ) -> Iterator[tuple[Observations, WeightedDraws]]:
        """Walk through the rows in chunks of bounded memory, with weighted draws for each."""
        like = next(self.density_.parameters())
        row = 0
        with torch.no_grad(), isolated_rng(random_state):
            for part in data.chunks(max(1, POINTS_AT_ONCE // n_draws)):
                ready = self._standardised(part).to(dtype=like.dtype, device=like.device)
                draws = self._weigh(ready, n_draws)
                _refuse_out_of_reach(draws, row)
                row += len(part)
                yield part, draws


def _refuse_out_of_reach(draws: WeightedDraws, first_row: int) -> None:
    """Raise where no proposal of a row has a density above zero."""
    position = first_bad(~draws.log_weights.amax(0).isfinite())
    if position is not None:
        raise OutOfReachError(
            "Expected measurements that the model can reach; "
            f"got row {first_row + position[0]} of w, whose density is zero in {draws.v.dtype}. "
            "Look at that row, or use dtype='float64'."
        )
