r"""Averages of densities that answer by different means: closed forms beside weighted draws.

.. math:: p(v \mid w) = \sum_c r_c \, p_c(v \mid w), \qquad
          r_c = \frac{a_c \, p_c(w)}{\sum_d a_d \, p_d(w)}

so that every part answers as it does best, and only the shares :math:`r` are put together here.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import logsumexp
from sklearn.utils import check_random_state

from deconflow._limits import row_slices
from deconflow._types import Array
from deconflow.evaluation import Estimate
from deconflow.fits.fitted import Columns, FittedDensity
from deconflow.fits.mixture_fit import MixtureFit
from deconflow.fits.posterior import Posterior, WeightedPosterior
from deconflow.mixtures import GaussianMixture, mix
from deconflow.noise import GaussianNoise
from deconflow.observations import Observations, rows_counted_from
from deconflow.randomness import RandomState

#: Arrays of the size of the draws that it takes to put them together.
ARRAYS = 4
#: Points per row for the shares of a posterior.
POINTS = 128


class BlendFit(FittedDensity):
    r"""The density :math:`p(v) = \sum_c a_c \, p_c(v)`.

    Attributes
    ----------
    shares : array
        ``(C,)``: ``a``, with sum one.
    parts : list of FittedDensity
        What is averaged, of any kinds.
    """

    def __init__(self, shares: Sequence[float] | Array, parts: Sequence[FittedDensity]) -> None:
        self.shares, self.parts = np.asarray(shares, dtype=np.float64), list(parts)
        self.names, self.threads = self.parts[0].names, self.parts[0].threads

    @property
    def ends(self) -> tuple[Array, Array]:
        """Lower and upper ends of the truth, ``(D,)`` each, infinite where there is none."""
        lower, upper = zip(*(part.ends for part in self.parts), strict=True)
        return np.min(lower, axis=0), np.max(upper, axis=0)

    def _log_prob(self, v: Array) -> Array:
        each = np.stack([part._log_prob(v) for part in self.parts])
        return np.asarray(logsumexp(each, axis=0, b=self.shares[:, None]), dtype=np.float64)

    def _sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n, D)``, each row from a part drawn by its share."""
        rng = check_random_state(random_state)
        owner = rng.choice(len(self.parts), size=n, p=self.shares / self.shares.sum())
        drawn = np.empty((n, self.dim))
        for c, part in enumerate(self.parts):
            mine = owner == c
            if mine.any():
                drawn[mine] = part._sample(mine.sum(), rng.randint(2**31 - 1))
        return drawn

    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row, with the errors of the parts that have one."""
        found = [part.log_marginal(data, n_draws, random_state) for part in self.parts]
        log_p, r = self._shared_out(found)
        error = np.sqrt(sum(np.square(r[c] * each.error) for c, each in enumerate(found)))
        bias = sum(r[c] * each.bias for c, each in enumerate(found))
        return Estimate(log_p, np.asarray(error), np.asarray(bias))

    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value: the parts' own, by the shares of each row."""
        mixture = self.as_mixture()
        if mixture is not None and self.exact(gaussian_noise=isinstance(data.noise, GaussianNoise)):
            whole = MixtureFit([mixture], self.names, self.threads)
            return whole.posterior(data, n_samples, n_proposals, random_state)
        pieces = self._pieces(data, n_samples, n_proposals, check_random_state(random_state))
        return WeightedPosterior.of_pieces(len(data), n_samples, self.names, pieces)

    def _pieces(
        self, data: Observations, n_samples: int, n_proposals: int, rng: np.random.RandomState
    ) -> Iterator[tuple[slice, tuple[Array, ...]]]:
        """Walk through rows and their answers, so that no part keeps its draws of all rows."""
        for some in row_slices(len(data), ARRAYS * len(self.parts) * n_samples * self.dim):
            rows, seeds = data[some], rng.randint(2**31 - 1, size=2).tolist()
            with rows_counted_from(some.start):
                evidence = [part.log_marginal(rows, POINTS, seeds[0]) for part in self.parts]
                found = [
                    part.posterior(rows, n_samples, n_proposals, seeds[1]) for part in self.parts
                ]
            yield some, self._blended(self._shared_out(evidence)[1], found, n_samples, rng)

    def _blended(
        self, r: Array, found: list[Posterior], n_samples: int, rng: np.random.RandomState
    ) -> tuple[Array, Array, Array, Array]:
        """Draws, mean, covariance and effective size of each row, from those of the parts."""
        n_rows = r.shape[1]
        edges = np.cumsum(r, axis=0).T[:, None]
        owner = (edges[..., :-1] < rng.uniform(size=(n_rows, n_samples, 1))).sum(2)
        samples = np.empty((n_rows, n_samples, self.dim))
        for c, each in enumerate(found):
            mine = owner == c
            samples[mine] = each.sample(n_samples, rng)[mine]
        mean = np.sum([r[c, :, None] * each.mean for c, each in enumerate(found)], axis=0)
        covariance = np.zeros((n_rows, self.dim, self.dim))
        for c, each in enumerate(found):
            apart = each.mean - mean
            spread = each.covariance + apart[:, :, None] * apart[:, None]
            covariance += r[c, :, None, None] * spread
        lost = sum(np.square(r[c]) / each.effective_sample_size for c, each in enumerate(found))
        with np.errstate(divide="ignore"):  # infinite where all parts are exact
            size = 1 / np.asarray(lost)
        return samples, mean, covariance, size

    def exact(self, *, gaussian_noise: bool) -> bool:
        """Whether all parts are."""
        return all(part.exact(gaussian_noise=gaussian_noise) for part in self.parts)

    def as_mixture(self) -> GaussianMixture | None:
        """Return the average as one mixture, if all parts are mixtures."""
        mixtures = [part.as_mixture() for part in self.parts]
        known = [each for each in mixtures if each is not None]
        return mix(known, self.shares) if len(known) == len(mixtures) else None

    def averaged(self) -> list[FittedDensity]:
        """Return the parts."""
        return self.parts

    def _marginal(self, columns: Columns) -> "BlendFit":
        return BlendFit(self.shares, [part._marginal(columns) for part in self.parts])

    def measuring(self, rows: Observations) -> "BlendFit":
        """Return the average of the parts for such rows."""
        return BlendFit(self.shares, [part.measuring(rows) for part in self.parts])

    def _shared_out(self, estimates: list[Estimate]) -> tuple[Array, Array]:
        """Log densities ``(N,)`` of the average, and each part's share ``(C, N)`` in a row."""
        each = np.stack([estimate.log_p for estimate in estimates])
        with np.errstate(divide="ignore"):
            each = each + np.log(self.shares)[:, None]
        total = np.asarray(logsumexp(each, axis=0), dtype=np.float64)
        return total, np.exp(each - total)
