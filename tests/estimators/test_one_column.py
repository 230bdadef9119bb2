"""One column of the truth: cdf, quantiles, and a distribution of scipy."""

import functools
import pickle

import numpy as np
import pytest
import torch
from scipy import stats

from deconflow import XDGMM, DeconvolvingKDE, LogSplineDeconvolver, Observations
from deconflow.densities import MixtureDensity
from deconflow.fits.reduced_fits import folded
from deconflow.fits.weighted_fit import WeightedFit
from deconflow.standardising import Standardiser
from deconflow.truth import Bounds

RNG = np.random.default_rng(0)
SD = RNG.uniform(0.1, 0.5, (200, 2))
V = np.where(RNG.uniform(size=(200, 1)) < 0.3, [-2.0, 0.0], [1.0, 1.0]) + RNG.normal(size=(200, 2))
W = V + SD * RNG.normal(size=V.shape)
#: Of a truth above zero.
ABOVE = np.abs(V[:, :1]) + SD[:, :1] * RNG.normal(size=(200, 1))


def by_draws(dim, low=-np.inf):
    """A density of which no fit knows a closed form, folded at a bound of its columns."""
    fit = XDGMM(2, random_state=0).fit(W[:, :dim], noise=SD[:, :dim]).density_
    units = Standardiser.fit(Observations.from_arrays(W[:, :dim], SD[:, :dim]))
    mixture = units.mixture_to_standard(fit.mixture)
    parts = (torch.from_numpy(x) for x in (mixture.weights, mixture.means, mixture.covariances))
    made = WeightedFit(MixtureDensity(*parts), units, mixture, fit.names)
    if np.isinf(low):
        return made
    return folded(made, Bounds(np.full(dim, low), np.full(dim, np.inf)))


MODELS = {
    "mixture": lambda: XDGMM(2, random_state=0).fit(W, noise=SD).density_.marginal("v0"),
    "one column": lambda: XDGMM(2, random_state=0).fit(W[:, :1], noise=SD[:, :1]).density_,
    "bounded": lambda: XDGMM(2, random_state=0, bounds=[(0, None)])
    .fit(ABOVE, noise=SD[:, :1]).density_,
    "grid": lambda: DeconvolvingKDE().fit(W, noise=SD).density_.marginal(1),
    "bounded grid": lambda: LogSplineDeconvolver(bounds=[(0, None)])
    .fit(ABOVE, noise=SD[:, :1]).density_,
    "by draws": lambda: by_draws(1),
    "bounded, by draws": lambda: by_draws(1, low=0.5),
    "a column by draws": lambda: by_draws(2).marginal(1),
}  # fmt: skip
CLOSED = ("mixture", "one column")


@functools.cache
def fitted(name):
    """Make a density, once."""
    return MODELS[name]()


@pytest.fixture(scope="module")
def joint():
    return XDGMM(1).fit(W[:50], noise=SD[:50]).density_


@pytest.mark.parametrize("name", MODELS)
def test_cdf_quantiles_and_scipy_agree_with_the_density(name):
    """Held against sums of the density itself on an even grid of 1001 points."""
    density = fitted(name)
    close = 1e-5 if name in CLOSED else 1e-3  # sums on the grid; a table
    rough = 0.05 if name == "a column by draws" else 3 * close  # an estimate at every point
    low, high = (float(density.quantile(q)) for q in (1e-4, 1 - 1e-4))
    x = np.linspace(low, high, 1001)
    p = np.exp(density.log_prob(x[:, None]))
    below = 1e-4 + np.r_[0.0, np.cumsum(0.5 * (p[1:] + p[:-1]) * np.diff(x))]
    np.testing.assert_allclose(density.cdf(x), below, atol=close)
    q = np.array([0.01, 0.3, 0.5, 0.99])
    np.testing.assert_allclose(density.cdf(density.quantile(q)), q, atol=close)
    law = density.to_scipy()
    np.testing.assert_array_equal(law.cdf(x), density.cdf(x))
    np.testing.assert_array_equal(law.ppf(q), density.quantile(q))
    np.testing.assert_allclose(law.pdf(x), p, atol=rough * p.max())
    draws = density.sample(4000, random_state=0)[:, 0]
    assert stats.kstest(draws, law.cdf).pvalue > 1e-3
    assert stats.kstest(law.rvs(2000, random_state=0), draws).pvalue > 1e-3
    assert stats.kstest(draws + 0.2 * law.std(), law.cdf).pvalue < 1e-3  # the twin
    assert abs(law.mean() - draws.mean()) < 5 * law.std() / 4000**0.5
    assert abs(law.std() - draws.std()) < 5 * law.std() / 4000**0.5


def test_a_mixture_of_scipy_is_exact():
    density = fitted("mixture")
    law, mixture = density.to_scipy(), density.mixture
    assert (law.mean(), law.support()) == (mixture.mean[0], (-np.inf, np.inf))
    assert law.std() == pytest.approx(mixture.sd[0], rel=1e-15)
    assert [*law.ppf([0.0, 1.0]), *law.cdf([-np.inf, np.inf])] == [-np.inf, np.inf, 0.0, 1.0]
    assert law.cdf(law.ppf(1e-9)) == pytest.approx(1e-9, rel=1e-6)
    assert pickle.loads(pickle.dumps(law)).cdf(0.3) == law.cdf(0.3)
    assert law.rvs((2, 3), random_state=np.random.default_rng(3)).shape == (2, 3)


@pytest.mark.parametrize("name", ["bounded", "bounded grid", "bounded, by draws"])
def test_a_bounded_truth_ends_at_its_bound(name):
    density = fitted(name)
    end = 0.5 if "draws" in name else 0.0
    assert density.cdf([end - 1.0, end]).tolist() == [0.0, 0.0]
    assert density.to_scipy().support()[0] == end == density.ends[0]
    assert density.quantile(1e-6) > end


def test_atoms_are_steps_and_refused_by_scipy():
    rng = np.random.default_rng(1)
    v = np.where(rng.uniform(size=(300, 1)) < 0.4, 0.0, rng.normal(2.0, 1.0, size=(300, 1)))
    model = XDGMM(2, atoms=[0.0], random_state=0)
    model.fit(v + 0.1 * rng.normal(size=v.shape), noise=[0.1])
    density, share = model.density_, model.atom_weights_[0]
    under, upto = density.cdf([-1e-12, 0.0])
    assert upto - under == pytest.approx(share)
    assert density.quantile(0.5 * (under + upto)) == 0.0
    with pytest.raises(ValueError, match=r"without atoms for scipy.*v0 with atoms at 0\. Use cdf"):
        density.to_scipy()


BAD = {
    "several columns": (
        lambda joint: joint.cdf(0.0),
        r"one column; got one of v0, v1\. .*marginal\('v0'",
    ),
    "several to scipy": (lambda joint: joint.to_scipy(), r"one column; got one of v0, v1"),
    "no such name": (
        lambda joint: joint.marginal("z"),
        r"columns among v0, v1, or .*got 'z'",
    ),
    "NaN": (lambda joint: joint.marginal(0).cdf([0.0, np.nan]), r"numbers as x; got NaN"),
    "text": (lambda joint: joint.marginal(0).cdf("a"), r"numbers as x; got 'a'"),
    "shares": (
        lambda joint: joint.marginal(0).quantile([0.5, 1.0]),
        r"q between 0 and 1; got",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_questions(name, joint):
    ask, message = BAD[name]
    with pytest.raises((TypeError, ValueError), match=message):
        ask(joint)
