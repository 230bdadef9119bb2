"""Fits to counts, shares and values with errors that multiply: what is learned of the truth."""

import numpy as np
import pytest

from deconflow import XDGMM, BayesianXDGMM, Deconvolver, FlowDeconvolver, noise
from deconflow.estimators import ESTIMATORS
from deconflow.trust.check import LIKELIHOOD

N = 2000


@pytest.fixture(scope="module")
def counts():
    """Counts of rates with a gamma law, mean 3 and standard deviation 1.73."""
    rng = np.random.default_rng(0)
    return rng.poisson(rng.gamma(3.0, size=(N, 1))).astype(float)


@pytest.fixture(scope="module")
def model(counts):
    """A fit to these."""
    return XDGMM(2, random_state=0).fit(counts, noise=noise.poisson())


def mean_and_sd(model):
    v = model.sample(50_000, random_state=0)
    return float(v.mean()), float(v.std())


def moments(w):
    """Mean and standard deviation of the rate: a count's variance is that of the rate and mean."""
    return w.mean(), np.sqrt(w.var() - w.mean())


FITS = {
    "xd": (XDGMM("auto", random_state=0), N),
    "bayes": (BayesianXDGMM(n_components=8, n_chains=2, n_sweeps=60, random_state=0), 800),
    "deconvolver": (Deconvolver(quick=True, n_jobs=1, random_state=0), 400),
    "flow": (
        FlowDeconvolver(
            n_layers=1, hidden=16, epochs=60, batch_size=400,
            learning_rate=5e-3, n_draws=5, random_state=0,
        ),
        N,
    ),
}  # fmt: skip
SLOW = ("deconvolver", "flow")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in FITS]
)
def test_a_rate_has_its_mean_and_spread(name, counts):
    estimator, rows = FITS[name]
    w = counts[:rows]
    found = mean_and_sd(estimator.fit(w, noise=noise.poisson()))
    # Of the same rows by moments, which are unbiased: far closer than chance, 0.08 for N = 2000.
    np.testing.assert_allclose(found, moments(w), atol=0.15)
    assert estimator.known_ == ["The true v0 is at least 0."]
    assert estimator.sample(1000, random_state=0).min() >= 0


def test_counts_with_their_roots_as_errors_are_biased(counts):
    model = XDGMM(2, bounds=(0, None), random_state=0)
    model.fit(counts, noise=np.sqrt(np.maximum(counts, 1.0)))
    assert mean_and_sd(model)[0] < moments(counts)[0] - 0.5


def test_shares_of_trials():
    rng = np.random.default_rng(1)
    n, v = rng.integers(1, 12, size=N), rng.beta(2.0, 5.0, size=N)
    w = rng.binomial(n, v).astype(float)[:, None]
    model = XDGMM(2, random_state=0).fit(w, noise=noise.binomial(n))
    found = mean_and_sd(model)
    # Errors of a mean and a spread that are known from so few trials each.
    np.testing.assert_allclose(found, [2 / 7, np.sqrt(10 / 49 / 8)], atol=0.02)
    raw = (w[:, 0] / n).std()
    assert raw > found[1] + 0.05
    assert model.known_ == ["The true v0 is between 0 and 1."]
    mean = model.posterior([[0.0], [4.0]], noise=noise.binomial(8)).mean[:, 0]
    np.testing.assert_allclose(mean, [2 / 15, 6 / 15], atol=0.04)


def test_errors_that_multiply_are_those_that_add_to_logarithms():
    rng = np.random.default_rng(2)
    w = np.exp(rng.normal(1.0, 0.5, size=(N, 1)) + 0.3 * rng.normal(size=(N, 1)))
    plain = XDGMM(1, random_state=0).fit(np.log(w), noise=[0.3])
    v = np.exp(plain.sample(3000, random_state=0))
    exact = plain.score_samples(np.log(v)) - np.log(v[:, 0])
    model = XDGMM(3, random_state=0).fit(w, noise=noise.multiplicative([0.3]))
    # Nats; three Gaussians in v do not have all of the tail that one in log v has.
    assert abs((exact - model.score_samples(v)).mean()) < 0.12
    np.testing.assert_allclose(mean_and_sd(model), [v.mean(), v.std()], atol=0.1)
    wrong = XDGMM(3, bounds=(0, None), random_state=0).fit(w, noise=0.3 * w)
    assert (exact - wrong.score_samples(v)).mean() > 0.5  # the same errors, as if they were added


def log_prob(w, v, gain):
    return -0.5 * np.square((w - gain * v) / 0.5)


def simulate(v, rng, gain):
    return gain * v + 0.5 * rng.normal(size=v.shape)


def test_any_likelihood_is_as_good_as_its_ready_made_twin():
    rng = np.random.default_rng(3)
    w = 2.0 * rng.normal(4.0, 1.0, size=(800, 1)) + 0.5 * rng.normal(size=(800, 1))
    reading = noise.likelihood(log_prob, simulate, gain=2.0)
    model = XDGMM(1, random_state=0).fit(w, noise=reading)
    twin = XDGMM(1, random_state=0).fit(w / 2.0, noise=[0.25])
    np.testing.assert_allclose(mean_and_sd(model), mean_and_sd(twin), atol=2e-3)
    assert model.known_ == []
    bounded = XDGMM(1, bounds=(4.0, None), random_state=0).fit(np.abs(w - 8) + 8, noise=reading)
    v = np.linspace(4.0, 9.0, 20_001)
    p = np.exp(bounded.score_samples(v[:, None]) + log_prob(8.5, v, 2.0))
    mean = bounded.posterior([[8.5]], noise=reading).mean[0, 0]
    assert abs(mean - (p * v).sum() / p.sum()) < 0.01  # what is folded is the likelihood


def test_two_columns_with_missing_values():
    rng = np.random.default_rng(4)
    v = rng.gamma(3.0, size=(1500, 1)) * np.array([1.0, 2.0]) + rng.gamma(1.0, size=(1500, 2))
    w = rng.poisson(v).astype(float)
    w[::5, 0] = np.nan
    model = XDGMM(2, random_state=0).fit(w, noise=noise.poisson())
    drawn = model.sample(50_000, random_state=0)
    np.testing.assert_allclose(drawn.mean(0), v.mean(0), atol=0.2)
    assert abs(np.corrcoef(drawn.T)[0, 1] - np.corrcoef(v.T)[0, 1]) < 0.1
    assert np.isfinite(model.posterior(w[:5], noise=noise.poisson()).mean).all()
    low, high = model.condition([[0.0], [9.0]], [0], noise=noise.poisson()).mean[:, 0]
    assert high > low + 2


def test_checks_compare_counts_with_simulated_counts(counts, model):
    certificate = model.certify(counts, noise=noise.poisson())
    found = {each.check: each for each in certificate.findings}
    assert found["columns"].p > 0.01
    assert found["factor"].reason == found["copies"].reason == LIKELIHOOD
    p = model.p_values(counts, noise=noise.poisson())
    assert abs((p <= 0.1).mean() - 0.1) < 0.04  # counts repeat: at most so many


# -- bounds of the truth in every estimator, against brute force ----------------------------------


SD = 0.4
TINY = {
    "XDGMM": {"n_components": 2, "random_state": 0},
    "BayesianXDGMM": {"n_chains": 2, "n_sweeps": 20, "random_state": 0, "n_jobs": 1},
    "FlowDeconvolver": {
        "epochs": 2, "hidden": 8, "n_layers": 1,
        "n_draws": 2, "random_state": 0,
    },
    "Deconvolver": {"quick": True, "random_state": 0, "n_jobs": 1},
}  # fmt: skip
GRID = np.linspace(0, 15, 6001)


def exponential(n=400, seed=0, dim=1):
    rng = np.random.default_rng(seed)
    v = rng.exponential(size=(n, dim))
    return v, v + SD * rng.normal(size=v.shape)


BOUNDED = [name for name, cls in ESTIMATORS.items() if "bounds" in cls().get_params()]


@pytest.fixture(scope="module")
def one():
    _, w = exponential()
    return XDGMM(2, bounds=(0, None), random_state=0).fit(w, noise=SD)


@pytest.fixture(scope="module")
def two():
    _, w = exponential(dim=2)
    model = XDGMM(2, bounds=[(0, None), (0, 12)], random_state=0)
    return model.fit(w, noise=SD)


@pytest.mark.parametrize("name", BOUNDED)
def test_nothing_lies_outside(name):
    _, w = exponential(150)
    model = ESTIMATORS[name](bounds=(0, None), **TINY.get(name, {})).fit(w, noise=SD)
    assert model.known_ == ["The true v0 is at least 0."]
    assert model.sample(500, random_state=0).min() >= 0
    assert np.isneginf(model.score_samples([[-0.01], [-3.0]])).all()
    assert np.isfinite(model.score_samples([[0.0], [0.5]])).all()
    posterior = model.posterior(w[:20], SD, n_samples=20, n_proposals=100)
    assert posterior.samples.min() >= 0
    assert posterior.mean.min() >= 0
    assert posterior.quantile(0.01).min() >= 0
    assert 0 <= model.posterior([[-1.0]], SD).mean[0, 0] < 0.6
    mass = np.trapezoid(np.exp(model.score_samples(GRID[:, None])), GRID)
    assert mass == pytest.approx(1, abs=0.05)  # flows of two epochs have tails beyond the grid


def test_the_excess_at_an_edge_is_less_than_half():
    truth, w = exponential(1500, seed=3)
    excess = {
        bounds: (-truth[:, 0] - model.score_samples(truth)).mean()
        for bounds in (None, (0, None))
        for model in [XDGMM("auto", bounds=bounds, random_state=0).fit(w, noise=SD)]
    }
    assert excess[0, None] < 0.5 * excess[None]


def test_exact_rows_at_the_end(one):
    w = np.array([[0.0], [1e-12], [0.7]])
    np.testing.assert_allclose(one.score_observations(w, 0.0), one.score_samples(w), atol=1e-6)
    np.testing.assert_allclose(one.posterior(w, 0.0).mean, w, atol=1e-9)
    two_sided = XDGMM(1, bounds=(0, 1), random_state=0).fit([[0.0], [1.0], [0.3], [0.6]], noise=0.0)
    ends = np.array([[0.0], [1.0]])
    expected = two_sided.score_samples(ends)
    np.testing.assert_allclose(two_sided.score_observations(ends, 0.0), expected, atol=1e-6)


def test_rows_far_beyond_have_draws_at_the_end(one):
    far = one.posterior([[-100.0], [-1e6]], SD)
    assert (far.samples >= 0).all()
    assert (far.samples.std(1) > 0).all()
    np.testing.assert_allclose(far.samples.mean(1), far.mean, rtol=0.5)


def test_two_columns(two):
    draws = two.sample(2000, random_state=0)
    assert draws.min() >= 0
    assert draws[:, 1].max() <= 12
    edges = np.linspace(0, 12, 151)
    middles = 0.5 * (edges[1:] + edges[:-1])
    points = np.stack(np.meshgrid(middles, middles, indexing="ij"), -1).reshape(-1, 2)
    density = np.exp(two.score_samples(points))
    cell = (edges[1] - edges[0]) ** 2
    assert density.sum() * cell == pytest.approx(1, abs=5e-3)
    w = np.array([[-0.3, 0.4]])
    joint = density * np.exp(-0.5 * np.square((w - points) / SD).sum(1)) / (2 * np.pi * SD**2)
    found = two.posterior(w, SD, n_proposals=4000)
    np.testing.assert_allclose(found.mean[0], joint @ points / joint.sum(), atol=0.02)
    log_p = two.score_observations(w, SD)[0]
    assert log_p == pytest.approx(np.log(joint.sum() * cell), abs=0.02)
    one = two.density_.marginal([0])
    assert np.isneginf(one.log_prob([[-0.1]])).all()
    expected = density.reshape(150, 150).sum(1) * (edges[1] - edges[0])
    np.testing.assert_allclose(np.exp(one.log_prob(middles[:, None])), expected, atol=5e-3)
    assert two.condition([[1.0]], [0]).samples.min() >= 0


def test_what_was_fitted_counts_not_what_was_set_since():
    _, w = exponential(60)
    model = XDGMM(1, random_state=0).fit(w, noise=SD)
    assert model.set_params(bounds=(0, None)).known_ == []
    before = model.fit(w, noise=SD).score_samples(w[:3])
    with pytest.raises(ValueError, match="hold most of the truth"):
        model.set_params(bounds=(50, None)).fit(w, noise=SD)
    np.testing.assert_array_equal(model.score_samples(w[:3]), before)
