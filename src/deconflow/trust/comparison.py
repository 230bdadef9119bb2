r"""Sums over rows, held against the same sums over simulated rows, with the fit allowed for.

Any function of a row whose simulated companions come from the fitted model would have the same mean
on both, if the model were not fitted to these very rows. A fit by maximum likelihood removes what
goes together with the scores (derivatives of ``log p(w)`` by the parameters): to first order,

.. math:: \sum_i f_i(\hat\theta) \approx \sum_i e_i, \quad e = f - \mathrm{Cov}(f, s)
          \mathrm{Cov}(s, s)^{-1} s,

and :math:`\sum_i e_i` does not change with the parameters, so that it need not matter how exactly
they were fitted (a C(alpha) test). All covariances are those of simulated rows, given the noise of
each row.

References
----------
Neyman (1959), "Optimal asymptotic tests of composite statistical hypotheses"; Durbin (1973), "Weak
convergence of the sample distribution function when parameters are estimated".
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import eval_legendre
from scipy.stats import chi2, norm

from deconflow._types import Array

#: Directions in which the scores vary by less than this share are none.
SMALLEST_DIRECTION = 1e-8
#: With less of its variance left, a function says nothing that the fit has not taken up.
UNTOUCHED = 1e-6
#: Directions of several functions that keep less than this share of their variance are left out:
#: first-order theory is no guide there.
TELLING = 0.02

#: Polynomials of a probability: shift, spread, skewness and finer shape (Neyman's smooth test).
DEGREES = (1, 2, 3, 4, 5)
LARGEST_LOG_RATIO = 50.0


@dataclass(frozen=True)
class Sums:
    """Sums of ``F`` functions over rows, less what simulated rows give.

    Attributes
    ----------
    excess : array
        ``(F,)``: the sums, with the fit allowed for.
    covariance : array
        ``(F, F)``: theirs, if the model is right.
    left : array
        ``(F,)``: the share of the variance that the fit has not taken up.
    """

    excess: Array
    covariance: Array
    left: Array

    @property
    def z(self) -> Array:
        """Excess in standard deviations; NaN where the fit leaves nothing to look at."""
        known = self.left > UNTOUCHED
        variance = np.where(known, np.diag(self.covariance), 1.0)
        return np.where(known, self.excess / np.sqrt(variance), np.nan)

    def together(self, slack: float = 0.0) -> tuple[float, float]:
        """Return the p-value of all functions at once, and half their chi-square statistic.

        An excess of about ``slack`` counts as none: no model is right to the last row.
        """
        values, vectors = np.linalg.eigh(self.covariance)
        full = np.diag(self.covariance) / np.maximum(self.left, 1e-300)
        used = values > TELLING * full.mean()
        if not used.any():
            return 1.0, 0.0
        squares = np.square(vectors[:, used].T @ self.excess)
        statistic = float((squares / (values[used] + slack**2)).sum())
        return float(chi2.sf(statistic, used.sum())), 0.5 * statistic


class Comparison:
    """Rows beside their simulated companions; the first of each ``C`` values is the real one."""

    def __init__(self, scores: Array, weights: Array) -> None:
        self.weights = weights
        inside = self._centred(scores)
        self._at_rows = np.einsum("n,np->p", weights, inside[:, 0])
        companions = self._weighed(inside)
        gram = companions.T @ companions
        unit = np.sqrt(np.diag(gram))
        unit[unit == 0] = 1.0
        values, vectors = np.linalg.eigh(gram / np.outer(unit, unit))
        used = values > SMALLEST_DIRECTION * max(values[-1], 1e-300)
        self._white = vectors[:, used] / np.sqrt(values[used]) / unit[:, None]
        self._directions = companions @ self._white

    def sums(self, functions: Array) -> Sums:
        """Compare functions ``(N, C, F)`` of the rows."""
        inside = self._centred(functions)
        companions = self._weighed(inside)
        slopes = self._directions.T @ companions
        left = companions - self._directions @ slopes
        raw = np.einsum("n,nf->f", self.weights, inside[:, 0])
        # The mean of the companions has an error of its own.
        draws = functions.shape[1] - 1
        blur = (1 + 1 / draws) / (draws - 1)
        full = np.square(companions).sum(0)
        share = np.square(left).sum(0) / np.maximum(full, 1e-300)
        return Sums(raw - self._at_rows @ self._white @ slopes, blur * left.T @ left, share)

    def _centred(self, values: Array) -> Array:
        """Take off the mean of each row's companions."""
        return values - values[:, 1:].mean(1, keepdims=True)

    def _weighed(self, inside: Array) -> Array:
        """Return the companions, each by its row's weight, as ``(N (C - 1), F)``."""
        return (inside[:, 1:] * self.weights[:, None, None]).reshape(-1, inside.shape[2])


def two_sided(z: ArrayLike) -> Array:
    """P-values of standard normal numbers that may err to both sides."""
    return 2 * norm.sf(np.abs(z))


def one_sided(z: ArrayLike) -> Array:
    """P-values of standard normal numbers that would be large."""
    return norm.sf(z)


def of_smallest(p_values: ArrayLike, count: int | None = None) -> float:
    """P-value of the smallest of several (Sidak), or of ``count`` of which these are some."""
    count, smallest = count or np.size(p_values), np.min(p_values)
    return float(-np.expm1(count * np.log1p(-smallest))) if smallest < 1 else 1.0


def shape(degree: int, probability: Array) -> Array:
    """Legendre polynomial of a probability, with variance one where that is uniform."""
    return np.sqrt(2 * degree + 1) * eval_legendre(degree, 2 * probability - 1)


def ratio(log_ratio: Array) -> Array:
    """Return a ratio of likelihoods that is neither infinite nor zero."""
    return np.exp(np.clip(log_ratio, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO))
