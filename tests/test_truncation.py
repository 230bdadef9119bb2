"""Gaussians cut to a box, against integrals by brute force and draws that are rejected."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax

from deconflow.mixtures import CutMixture, GaussianMixture, cut_normal, log_between

INF = np.inf


def random_mixture(rng, rows=3, components=2, dim=2):
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
    mixture = random_mixture(rng)
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
