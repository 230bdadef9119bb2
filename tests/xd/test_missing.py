"""Missing values: fits end at the truth's optimum, and posteriors of what is missing are right."""

import numpy as np
import pytest
import toy
from scipy.stats import kstest

from deconflow import XDGMM, Observations
from deconflow.mixtures import GaussianMixture
from deconflow.noise import gaussian
from deconflow.xd import lay_out, log_p, posterior

TRUTH = GaussianMixture(toy.WEIGHTS, toy.MEANS, toy.COVARIANCES)
DRAWS = 200
#: Of 24 seeds those whose fit, if it starts at posterior means, ends far below the truth.
HARD = (13, 22, 23)


def rows(seed, n=3000):
    """True values, measurements with 30 % missing by chance, errors, and what is missing."""
    rng = np.random.default_rng(seed)
    v = toy.draw(n, seed)[0]
    sd = np.column_stack([rng.uniform(0.15, 0.5, n), rng.uniform(0.4, 1.4, n)])
    gone = rng.uniform(size=v.shape) < 0.3
    w = np.where(gone, np.nan, v + sd * rng.normal(size=v.shape))
    some = ~gone.all(1)  # whether a row is empty does not depend on its values
    return v[some], w[some], sd[some], gone[some]


def draws_of(mixture, w, sd):
    """Draws of each row's posterior."""
    return posterior(mixture, Observations.from_arrays(w, gaussian(sd=sd))).sample(DRAWS, 0)


def p_values(draws, v, cells):
    """How well ranks of the truth agree with uniform ones, for some cells of each column."""
    below = (draws < v[:, None]).sum(1)
    found = (below + np.random.default_rng(0).uniform(size=v.shape)) / (DRAWS + 1)
    return np.array([kstest(found[cells[:, d], d], "uniform").pvalue for d in range(2)])


def fit(seed):
    """The mixture of one start, and the rows it was fitted to."""
    data = rows(seed)
    return XDGMM(3, floor=0.1, random_state=seed).fit(data[1], noise=data[2]).mixture_, data


@pytest.fixture
def fit_from_means(monkeypatch):
    """The same from posterior means under one Gaussian: a line, where a value is missing."""

    def fit_stuck(seed):
        with monkeypatch.context() as patch:
            patch.setattr(GaussianMixture, "sample", lambda self, *_: self.means)
            return fit(seed)

    return fit_stuck


def lead_over_truth(mixture, data):
    """Log-likelihood of all rows under a mixture, less that under the truth."""
    _, w, sd, _ = data
    laid_out = lay_out(Observations.from_arrays(w, gaussian(sd=sd)))
    return (log_p(mixture, laid_out) - log_p(TRUTH, laid_out)).sum()


@pytest.mark.parametrize("seed", range(3))
def test_ranks_under_the_truth_are_uniform(seed):
    """Of measured and of missing values; a fixed seed, so 1 in 1000 is no flake but a fault."""
    v, w, sd, gone = rows(seed)
    draws = draws_of(TRUTH, w, sd)
    assert min(p_values(draws, v, gone)) > 1e-3
    assert min(p_values(draws, v, ~gone)) > 1e-3


def test_ranks_with_the_columns_mean_for_missing_values_are_not():
    """The negative twin."""
    v, w, sd, gone = rows(0)
    draws = draws_of(TRUTH, np.where(gone, np.nanmean(w, axis=0), w), sd)
    assert max(p_values(draws, v, gone)) < 1e-6


@pytest.mark.parametrize("seed", [*range(3), *HARD])
def test_one_start_ends_above_the_truth(seed):
    """The best mixture's lead is half a chi-squared of its 17 parameters: 8.5 in the mean, above
    0 always and above 20.4 once in 1000.
    """
    assert 0 < lead_over_truth(*fit(seed)) < 20.4


@pytest.mark.parametrize("seed", HARD)
def test_a_start_at_posterior_means_does_not(seed, fit_from_means):
    """The negative twin: two components lie across the same two clumps."""
    assert lead_over_truth(*fit_from_means(seed)) < -100
