"""The one Gaussian mixture: closed forms against numpy and scipy, and a batch against its rows."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import softmax
from scipy.stats import kstest, multivariate_normal, norm

from deconflow import GaussianMixture
from deconflow.mixtures import CutMixture, cut_normal, log_between, mix

N, K, D = 5, 3, 2


def random_mixture(batch=(), components=K, dim=D, seed=0):
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.2, 1, (*batch, components))
    factor = rng.normal(size=(*batch, components, dim, dim))
    covariances = 0.3 * factor @ np.swapaxes(factor, -1, -2) + 0.1 * np.eye(dim)
    means = 2 * rng.normal(size=(*batch, components, dim))
    return GaussianMixture(weights / weights.sum(-1, keepdims=True), means, covariances)


def parts_of(mixture):
    return list(zip(mixture.weights, mixture.means, mixture.covariances, strict=True))


ONE, MANY = random_mixture(), random_mixture((N,))
V = np.random.default_rng(1).normal(size=(7, D))
ALONE = {"single": (), "one axis": (N,), "two axes": (2, N)}


@pytest.mark.parametrize("batch", ALONE.values(), ids=ALONE)
@pytest.mark.parametrize("dim", [1, 3])
def test_every_row_is_scipys(batch, dim):
    """Density, moments and joint of each mixture of a batch, one by one."""
    mixture = random_mixture(batch, dim=dim)
    v = np.random.default_rng(1).normal(size=(4, *batch, dim))
    for index in np.ndindex(*batch):
        own = mixture[index] if batch else mixture
        points = v[(slice(None), *index)]
        joint = np.stack([p * multivariate_normal(m, V).pdf(points) for p, m, V in parts_of(own)])
        at = (slice(None), *index)
        np.testing.assert_allclose(mixture.log_prob(v)[at], np.log(joint.sum(0)), rtol=1e-10)
        np.testing.assert_allclose(mixture.log_joint(v)[at], np.log(joint).T, rtol=1e-10)
        mean = sum(p * m for p, m, _ in parts_of(own))
        covariance = sum(p * (V + np.outer(m - mean, m - mean)) for p, m, V in parts_of(own))
        np.testing.assert_allclose(mixture.mean[index], mean, rtol=1e-12)
        np.testing.assert_allclose(mixture.covariance[index], covariance, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(mixture.sd[index], np.sqrt(np.diag(covariance)), rtol=1e-12)
    assert (mixture.batch_shape, mixture.n_components, mixture.dim) == (batch, K, dim)


BY_ROW = {
    "log_prob": lambda m, row: m.log_prob(V[:, None] if row is None else V),
    "log_joint": lambda m, row: m.log_joint(V[:, None] if row is None else V),
    "mean": lambda m, row: m.mean,
    "covariance": lambda m, row: m.covariance,
    "quantile": lambda m, row: m.quantile(0.2),
    "marginal": lambda m, row: m.marginal([1]).mean,
    "reordered": lambda m, row: m.marginal([1, 0]).covariance,
    "heaviest": lambda m, row: m.heaviest(2).covariance,
    "in_units": lambda m, row: m.in_units([1.0, -2.0], [3.0, 0.5]).covariance,
    "pdf": lambda m, row: m.pdf(1, np.full(m.batch_shape, 0.3)),
    "cdf": lambda m, row: m.cdf(1, np.full(m.batch_shape, 0.3)),
    "mix": lambda m, row: mix([m, m.in_units([1.0, 1.0], [2.0, 2.0])], [0.2, 0.8]).covariance,
}


@pytest.mark.parametrize("name", BY_ROW)
def test_a_batch_is_its_rows(name):
    whole = BY_ROW[name](MANY, None)
    rows = [BY_ROW[name](MANY[i], i) for i in range(N)]
    axis = 1 if name.startswith("log_") else 0
    np.testing.assert_allclose(whole, np.stack(rows, axis), rtol=1e-12, atol=1e-14)


def test_a_marginal_integrates_the_rest_out():
    mixture = random_mixture(dim=3)
    x = np.linspace(-30, 30, 20_001)
    grid = np.column_stack([np.full_like(x, 0.3), x, np.full_like(x, -1.0)])
    total = np.exp(mixture.log_prob(grid)).sum() * (x[1] - x[0])
    marginal = mixture.marginal([2, 0]).log_prob(np.array([[-1.0, 0.3]]))
    assert np.log(total) == pytest.approx(marginal[0], rel=1e-8)


@pytest.mark.parametrize("d", range(D))
def test_one_dimension_has_density_distribution_and_quantiles(d):
    def pdf(x):
        return sum(p * norm.pdf(x, m[d], np.sqrt(V[d, d])) for p, m, V in parts_of(ONE))

    x = np.linspace(-4, 4, 9)
    np.testing.assert_allclose(ONE.pdf(d, x), pdf(x), rtol=1e-12)
    below = [quad(pdf, -40, end, points=[-4, 0])[0] for end in x]
    np.testing.assert_allclose(ONE.cdf(d, x), below, atol=1e-7)
    for share in (1e-6, 0.05, 0.5, 0.999):
        assert ONE.cdf(d, ONE.quantile(share)[d]) == pytest.approx(share, rel=1e-9)


def test_components_without_weight_do_not_move_a_quantile():
    far = GaussianMixture(np.array([1.0, 0.0]), np.array([[0.0], [1e9]]), np.ones((2, 1, 1)))
    np.testing.assert_allclose(far.quantile(0.9), norm.ppf([0.9]), rtol=1e-12)


@pytest.mark.parametrize("rows", [None, 0, N - 1])
def test_draws_follow_the_density(rows):
    """Each dimension by a test of Kolmogorov; the twin has the other dimension's draws."""
    own = ONE if rows is None else MANY[rows]
    drawn = ONE.sample(4000, 0) if rows is None else MANY.sample(4000, 0)[rows]
    assert drawn.shape == (4000, D)
    for d in range(D):
        assert kstest(drawn[:, d], lambda x, d=d: own.cdf(d, x)).pvalue > 1e-3
        assert kstest(drawn[:, 1 - d], lambda x, d=d: own.cdf(d, x)).pvalue < 1e-6
    errors = (np.cov(drawn.T) - own.covariance)[0, 1] / np.prod(own.sd) * 4000**0.5
    assert abs(errors) < 8  # correlations of draws have an error of about 1 / sqrt(n) or two
    np.testing.assert_array_equal(ONE.sample(5, 3), ONE.sample(5, 3))


def test_draws_of_a_singular_row_stay_on_its_line():
    """A value that is known exactly has no spread."""
    exact = GaussianMixture(np.ones((1, 1)), np.ones((1, 1, 2)), np.array([[[[0, 0], [0, 4.0]]]]))
    drawn = exact.sample(2000, 0)[0]
    np.testing.assert_array_equal(drawn[:, 0], 1.0)
    assert drawn[:, 1].std() == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize("most", [1, 2, K, K + 4])
def test_the_heaviest_are_kept(most):
    kept = MANY.heaviest(most)
    assert kept.n_components == min(most, K)
    np.testing.assert_allclose(kept.weights.sum(-1), 1.0)
    for i in range(N):
        order = np.argsort(-MANY.weights[i])[:most]
        wanted = set(map(tuple, MANY.means[i, order]))
        assert set(map(tuple, kept.means[i])) == wanted
        assert kept.weights[i].max() == pytest.approx(
            MANY.weights[i].max() / MANY.weights[i, order].sum()
        )


@pytest.mark.parametrize("shares", [None, [0.3, 0.7]])
def test_an_average_is_the_mean_of_densities(shares):
    other = random_mixture(components=4, seed=5)
    weights = [0.5, 0.5] if shares is None else shares
    mean = sum(a * np.exp(m.log_prob(V)) for a, m in zip(weights, (ONE, other), strict=True))
    np.testing.assert_allclose(mix([ONE, other], shares).log_prob(V), np.log(mean))
    assert mix([ONE, other]).n_components == K + 4


def test_units_change_the_density_by_the_jacobian_only():
    location, scale = np.array([5.0, -7.0]), np.array([100.0, 1e-3])
    moved = ONE.in_units(location, scale).log_prob(location + scale * V)
    np.testing.assert_allclose(moved, ONE.log_prob(V) - np.log(scale).sum(), rtol=1e-9)


# -- gaussians cut to a box, against integrals by brute force and draws that are rejected ---------


INF = np.inf


def some_mixture(rng, rows=3, components=2, dim=2):
    weights = rng.dirichlet(np.ones(components), size=rows)
    roots = rng.normal(size=(rows, components, dim, dim))
    covariances = roots @ roots.swapaxes(-1, -2) + 0.2 * np.eye(dim)
    return GaussianMixture(weights, rng.normal(size=(rows, components, dim)), covariances)


def on_a_mesh(mixture, lower, upper, count=400):
    """Mass, mean and covariance of the first row within a box, by the midpoint rule."""
    low, high = np.maximum(lower, -12), np.minimum(upper, 12)
    edges = [np.linspace(a, b, count + 1) for a, b in zip(low, high, strict=True)]
    middles = [0.5 * (edge[1:] + edge[:-1]) for edge in edges]
    points = np.stack(np.meshgrid(*middles, indexing="ij"), -1).reshape(-1, len(lower))
    cell = np.prod([edge[1] - edge[0] for edge in edges])
    density = sum(
        w * stats.multivariate_normal(m, C).pdf(points)
        for w, m, C in zip(
            mixture.weights[0], mixture.means[0], mixture.covariances[0], strict=True
        )
    )
    mass = density.sum() * cell
    share = density / density.sum()
    mean = share @ points
    apart = points - mean
    return mass, mean, np.einsum("n,ni,nj->ij", share, apart, apart)


BOXES = {
    "one end": ([0.0, -INF], [INF, INF]),
    "second column": ([-INF, -INF], [INF, 0.5]),
    "two ends": ([-0.3, -INF], [0.8, INF]),
    "both columns": ([0.0, -0.5], [INF, 1.0]),
}


@pytest.mark.parametrize("box", BOXES)
def test_mass_moments_and_draws_of_a_box(box, rng):
    """A closed form where one column is bounded; draws with weights where two are."""
    lower, upper = map(np.array, BOXES[box])
    mixture = some_mixture(rng)
    cut = CutMixture(mixture, lower, upper)
    draws, log_weights = cut.sample(20_000, np.random.RandomState(0))
    weights = softmax(log_weights, axis=1)
    assert (draws >= lower).all()
    assert (draws <= upper).all()
    found = np.einsum("ns,nsd->nd", weights, draws)
    one = box != "both columns"
    mean, covariance = cut.moments() if one else (found, None)
    for row in range(3):
        mass, m, C = on_a_mesh(mixture[[row]], lower, upper)
        # the mesh has steps of 0.06 and ends at 12: two figures more than these; 64 quasi-random
        # points hold the mass of a box of two sides to some thousandths
        assert np.exp(cut.log_mass[row]) == pytest.approx(mass, rel=2e-3 if one else 1e-2)
        np.testing.assert_allclose(mean[row], m, atol=3e-3 if one else 2e-2)
        if one:
            np.testing.assert_allclose(covariance[row], C, atol=1e-2)
    if one:
        assert np.ptp(log_weights) < 1e-9
        error = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2) / 20_000)
        assert (np.abs(found - mean) < 4 * error).all()  # four standard errors
        uncut = np.einsum("nk,nkd->nd", mixture.weights, mixture.means)
        assert np.abs(uncut - mean).max() > 0.2  # the twin
    else:
        assert np.abs(draws.mean(1) - found).max() > 1e-3


@pytest.mark.parametrize("ends", [(3, INF), (8, 9), (29, INF), (31, INF), (35, 35.02), (-40, -38)])
def test_tails(ends):
    """Against scipy, whose moments of far tails are good to some digits."""
    low, high = (np.full(40_001, float(end)) for end in ends)
    y = cut_normal(low, high, (np.arange(40_001) + 0.5) / 40_001)
    assert ((y >= low) & (y <= high)).all()
    law = stats.truncnorm(*ends)
    assert y.mean() == pytest.approx(law.mean(), abs=0.02 * law.std())
    assert y.std() == pytest.approx(law.std(), rel=0.02)
    tail = log_between(low[:1], high[:1])[0]
    assert tail == pytest.approx(stats.norm.logsf(ends[0]) if ends[1] == INF else tail)
    assert np.isfinite(tail)


@pytest.mark.parametrize("mean", [-20.0, -100.0, -1e4, -1e7])
def test_moments_and_draws_far_beyond_an_end(mean):
    """What is left of a unit Gaussian is an exponential law of mean 1 / distance."""
    one = GaussianMixture(np.ones((1, 1)), np.full((1, 1, 1), mean), np.ones((1, 1, 1, 1)))
    cut = CutMixture(one, np.zeros(1), np.full(1, INF))
    m, C = cut.moments()
    assert m[0, 0] == pytest.approx(1 / abs(mean), rel=5e-2)
    assert np.sqrt(C[0, 0, 0]) == pytest.approx(1 / abs(mean), rel=5e-2)
    draws, _ = cut.sample(4000, np.random.RandomState(0))
    assert draws.min() >= 0
    assert draws.mean() == pytest.approx(1 / abs(mean), rel=0.1)
    assert np.isfinite(cut.log_mass).all()


def test_values_that_are_known_are_not_cut():
    """At the very end of the box half of a narrow Gaussian would be gone."""
    point = GaussianMixture(np.ones((1, 1)), np.zeros((1, 1, 2)), np.zeros((1, 1, 2, 2)))
    for upper in ([INF, INF], [INF, 2.0]):
        box = np.array([0.0, -1.0 if upper[1] == 2.0 else -INF]), np.array(upper)
        cut = CutMixture(point, *box, np.ones((1, 2), bool))
        assert cut.log_mass[0] == 0
        draws, _ = cut.sample(10, np.random.RandomState(0))
        np.testing.assert_allclose(draws, 0, atol=1e-6)
    assert CutMixture(point, *box).log_mass[0] == pytest.approx(np.log(0.5), abs=0.1)
