"""Likelihoods as noise: exact log densities, Gaussians folded at the ends, draws, bad input."""

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp

from deconflow import Observations, noise
from deconflow.noise.mixture_fits import images
from deconflow.randomness import isolated_rng

COUNTS = np.array([[0.0], [1.0], [2.0], [7.0], [40.0]])
TRIALS = np.array([1, 4, 4, 9, 60])
POSITIVE = np.array([[0.3], [2.0], [70.0], [1e-6], [1e8]])


def lognormal_in_v(w, sd=0.3):
    """Density of the truth for ``w = v exp(sd e)``, with nothing else known of it."""
    return stats.lognorm(sd, scale=w * np.exp(sd**2))


CASES = {
    "poisson": (noise.poisson(2.5), COUNTS, lambda w: stats.gamma(w + 1, scale=1 / 2.5)),
    "binomial": (
        noise.binomial(TRIALS), np.minimum(COUNTS, TRIALS[:, None]),
        lambda w: stats.beta(w + 1, TRIALS[:, None] - w + 1),
    ),
    "multiplicative": (noise.multiplicative(noise.gaussian(sd=[0.3])), POSITIVE, lognormal_in_v),
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request):
    """Rows, their law, and the density of their truths."""
    reading, w, law = CASES[request.param]
    return Observations.from_arrays(w, reading), law(w)


def test_log_prob_is_the_likelihood(case):
    data, law = case
    v = np.stack([law.ppf(share) for share in (0.001, 0.1, 0.5, 0.99)])
    found = data.log_likelihood(v)
    np.testing.assert_allclose(found, law.logpdf(v)[..., 0], rtol=1e-6, atol=1e-6)


def test_moments_and_draws_are_those_of_the_likelihood(case):
    data, law = case
    np.testing.assert_allclose(data.w, law.mean(), rtol=1e-5)
    np.testing.assert_allclose(data.noise.variance(), law.var(), rtol=1e-4)
    assert np.abs(data.noise.mean()).max() < 1e-9 * np.abs(data.w).max()
    share = np.array([0.03, 0.4, 0.98])[:, None, None] * np.ones((1, 5, 1))
    v = data.w - data.noise.from_uniform(share)
    np.testing.assert_allclose(law.cdf(v), share, atol=2e-3)
    with isolated_rng(0):
        drawn = law.cdf(data.w - data.noise.sample(2000))
    assert all(stats.kstest(drawn[:, row, 0], "uniform").pvalue > 1e-3 for row in range(5))


def kl(data, parts=None):
    """Mean log ratio of each likelihood and its Gaussians, folded or not."""
    laws = data.noise.laws
    (weights, means, variances), which = laws.gaussians(parts or 4)
    grids, rows = laws.grids, np.arange(len(laws))
    v, mass = grids.masses(laws.by_row)
    z = (v - grids.mode[:, None]) / grids.width[:, None]
    ends = [((end - grids.mode) / grids.width)[:, None] for end in (grids.low, grids.high)]
    x = images(z, *ends)[..., None]
    c, b, S = (table[which][:, None] for table in (weights, means, variances))
    with np.errstate(invalid="ignore"):
        each = np.log(c) + stats.norm.logpdf(x, b, np.sqrt(S))
    each = logsumexp(np.where(np.isfinite(x), each, -np.inf), axis=3)
    each -= np.log(grids.width)[:, None]
    exact = laws.log_prob(rows[:, None].repeat(v.shape[1], 1), v)
    exact = np.where(mass > 0, exact, 0.0)
    return [
        (mass * (exact - np.maximum(log_p, -700.0))).sum(1)
        for log_p in (logsumexp(each, axis=0), each[0])
    ]


def test_a_few_gaussians_are_near_when_folded(case):
    folded, _ = kl(case[0])
    assert (folded > -1e-4).all()
    assert folded.max() < 0.006
    assert kl(case[0], parts=1)[0].max() > 0.02  # one would not do


@pytest.mark.parametrize(("reading", "least"), [(noise.poisson(), 0.1), (noise.binomial(3), 0.1)])
def test_what_gaussians_have_beyond_an_end_counts(reading, least):
    folded, not_folded = kl(Observations.from_arrays([[0.0], [1.0]], reading))
    assert folded.max() < 0.006
    assert not_folded.max() > least


def test_mirrored_rows_split_the_likelihood_between_truth_and_image():
    data = Observations.from_arrays(COUNTS, noise.poisson())
    signs = np.array([[1.0], [-1.0], [1.0], [-1.0], [1.0]])
    mirrored = data.noise.mirrored(signs)
    v = np.linspace(0.01, 60.0, 400)[:, None, None]
    both = [mirrored.log_prob(signs * (data.w - each)) for each in (v, -v)]
    np.testing.assert_allclose(
        np.logaddexp(*both), data.noise.log_prob(data.w - v), rtol=1e-9, atol=1e-9
    )
    with isolated_rng(0):  # its draws are those of its density
        drawn = data.w - signs * mirrored.sample(4000)
    below = np.linspace(-60.0, 0.0, 6001)[:, None, None]
    expected = np.exp(mirrored.log_prob(signs * (data.w - below))).sum(0) * 0.01
    share = (drawn < 0).mean(0)[:, 0]
    assert (np.abs(share - expected) < 4 * 0.5 / np.sqrt(4000)).all()
    assert share[0] > 0.1  # no counts at all: much lies beyond zero
    assert (drawn[:, 4] > 0).all()


def test_slopes_are_those_of_the_log_likelihood():
    data = Observations.from_arrays(COUNTS, noise.poisson())
    law = data.noise.divide(np.array([2.0]))
    residual = torch.full((1, 5, 1), -0.3, dtype=torch.float64, requires_grad=True)
    law.log_prob(residual).sum().backward()
    v = data.w + 0.6
    expected = -2.0 * (COUNTS / v - 1.0)
    np.testing.assert_allclose(residual.grad[0], expected, rtol=1e-5, atol=1e-7)


def test_measuring_anew_gives_counts_of_the_truth():
    v = np.full((4000, 1), 3.0)
    data = Observations.from_arrays(np.zeros((4000, 1)), noise.poisson(2.0))
    with isolated_rng(0):
        plain = data.remeasure(v)
    counts = plain.noise.laws.w[plain.noise.which[:, 0]]
    assert abs(counts.mean() - 6.0) < 4 * np.sqrt(6.0 / 4000)
    np.testing.assert_allclose(plain.w[:, 0], (counts + 1) / 2, rtol=1e-5)
    moved = Observations(  # in other units
        (data.w - 1.5) / 4.0, data.noise.divide(np.array([4.0]))
    )
    with isolated_rng(0):
        same = moved.remeasure((v - 1.5) / 4.0)
    np.testing.assert_allclose(same.w * 4.0 + 1.5, plain.w, rtol=1e-9)


def test_rows_exposures_and_missing_values():
    w = np.array([[3.0, np.nan], [np.nan, 4.0], [0.0, 9.0]])
    data = Observations.from_arrays(w, noise.poisson([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    np.testing.assert_allclose(data.w, [[4.0, 0.0], [0.0, 5 / 4], [1 / 5, 10 / 6]], rtol=1e-5)
    v = np.full((1, 3, 2), 2.0)
    gamma = [stats.gamma(4, scale=1), stats.gamma(5, scale=1 / 4)]
    found = data[[1, 0]].log_likelihood(v[:, :2])[0]
    np.testing.assert_allclose(found, [gamma[1].logpdf(2.0), gamma[0].logpdf(2.0)], rtol=1e-5)
    per_row = Observations.from_arrays([[3.0], [3.0]], noise.poisson([1.0, 2.0]))
    np.testing.assert_allclose(per_row.w, [[4.0], [2.0]], rtol=1e-5)
    assert len(pickle.loads(pickle.dumps(data.noise))) == 3


def test_equal_shapes_share_their_gaussians():
    exposure = np.linspace(0.5, 2.0, 300)
    laws = Observations.from_arrays(np.full((300, 1), 2.0), noise.poisson(exposure)).noise.laws
    assert len(laws) == 300
    assert len(laws.gaussians(4)[0][0]) < 5


@pytest.mark.parametrize(
    ("law", "w"),
    [
        (noise.laplace([0.2]), [[2.0], [5.0]]),
        (noise.uniform([0.2]), [[2.0], [5.0]]),
        (noise.split_normal([[0.2], [0.1]], [[0.1], [0.3]]), [[2.0], [5.0]]),
    ],
)
def test_any_law_may_multiply(law, w):
    data = Observations.from_arrays(w, noise.multiplicative(law))
    v = np.array([[[2.1], [4.9]], [[1.9], [5.2]]])
    found = data.log_likelihood(v)
    bound = law.bind(2)
    error = np.log(w) - np.log(v)
    apart = found - bound.log_prob(error)
    np.testing.assert_allclose(apart[0], apart[1], rtol=1e-4)  # a number of each row


@pytest.mark.parametrize("unit", [1e-15, 1e15])
@pytest.mark.parametrize("kind", ["counts", "limits"])
def test_single_precision_holds_units_or_refuses_them(kind, unit):
    flags = np.sign(COUNTS - 3).clip(0)
    read = noise.poisson(1 / unit) if kind == "counts" else noise.limited([0.5 * unit], flags)
    w = COUNTS if kind == "counts" else COUNTS * unit
    law = Observations.from_arrays(w, read).noise.divide(np.array([unit]))
    single, residual = law.to(dtype=torch.float32), torch.full((1, 5, 1), 0.1)
    exact = law.log_prob(residual.double().numpy())
    np.testing.assert_allclose(single.log_prob(residual), exact, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(single.features(), law.features(), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"for single precision; got 1e[+-]45"):
        law.divide(np.array([unit**2])).to(dtype=torch.float32)


# -- bad input ----------------------------------------------------------------------------------


def flat(w, v):
    return 0.0 * v


def simulate(v, rng):
    return v


READINGS = {
    "counts, whole numbers of.*got -1 in w at row 1, column 0": ([[2], [-1]], noise.poisson()),
    "counts, whole numbers.*got 1.5 in w at row 0": ([[1.5]], noise.poisson()),
    "numbers above zero; got 0 in exposure at row 1": ([[2], [3]], noise.poisson([1.0, 0.0])),
    "exposure as one number, 2 as many as w has rows": ([[2], [3]], noise.poisson([1, 2, 3])),
    "no more successes in w than trials n; got 5 of 4 at row 1": ([[2], [5]], noise.binomial(4)),
    "whole numbers of trials, 1 or more; got 0 in n": ([[2], [5]], noise.binomial([4, 0])),
    "Expected n as one number, 2 as many as": ([[2], [3]], noise.binomial([4, 4, 4])),
    "values above 0 in w.*got 0 at row 1": ([[2], [0]], noise.multiplicative(0.1)),
    "Fit numpy.log": ([[2], [1]], noise.multiplicative(noise.student_t([0.2], 3.0))),
    "falls off nowhere, for 2 in row 0, column 0": ([[2]], noise.likelihood(flat, simulate)),
    "zero for every truth, for 2 in row 0": (
        [[2]], noise.likelihood(lambda w, v: np.full(v.shape, -np.inf), simulate),
    ),
    "got nan for w = 2 .row 0, column 0": (
        [[2]], noise.likelihood(lambda w, v: v * np.nan, simulate),
    ),
    "a number for each value of v, which here has shape .*got shape": (
        [[2]], noise.likelihood(lambda w, v: v.sum(-1), simulate),
    ),
    "log_prob to return numbers; got 'no'": ([[2]], noise.likelihood(lambda w, v: "no", simulate)),
}  # fmt: skip


@pytest.mark.parametrize("message", READINGS)
def test_bad_rows(message):
    w, reading = READINGS[message]
    with pytest.raises((ValueError, TypeError), match=message):
        Observations.from_arrays(np.array(w, dtype=float), reading)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(noise.likelihood, 3, simulate), "a function as log_prob; got 3"),
        (partial(noise.likelihood, flat, None), "a function as simulate; got None"),
        (partial(noise.likelihood, flat, simulate, ends=(1, 0)), "low below high"),
        (partial(noise.likelihood, flat, simulate, ends=3), "a pair"),
    ],
)
def test_bad_likelihoods(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_a_projection_of_counts_is_refused():
    with pytest.raises(ValueError, match="no projection with noise whose truth has ends"):
        Observations.from_arrays([[1.0]], noise.poisson(), projection=[[1.0, 1.0]])
