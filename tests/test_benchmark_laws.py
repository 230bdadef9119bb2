"""Laws of the benchmarks: densities that integrate to one and belong to their draws."""

import numpy as np
import pytest
from scipy.special import digamma, gammaln
from scipy.stats import gamma as gamma_law

from benchmarks import laws
from benchmarks.records import gamma

pytestmark = pytest.mark.docs

DRAWS = 200_000


def ring_cells():
    """Midpoints of cells that cover the ring, and their area; the width is 40 cells."""
    x = np.arange(-3.2, 3.2, 0.004) + 0.002
    return np.stack(np.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2), 0.004**2


def explog_cells():
    """Cells whose edges lie on ``c = a / 2``: those of c are half as long, with centres between."""
    h = 0.1
    a = (np.arange(140) + 0.5) * h
    c = np.arange(1, 260) * h / 2
    edges = np.exp(np.linspace(-3.6, 3.6, 61))
    b, width = np.sqrt(edges[1:] * edges[:-1]), np.diff(edges)
    points = np.stack(np.meshgrid(a, b, c, indexing="ij"), -1).reshape(-1, 3)
    volume = h * h / 2 * np.broadcast_to(width[None, :, None], (140, 60, 259)).ravel()
    return points, volume


CASES = {
    "ring": (laws.ring, laws.ring_log_p, ring_cells, 1e-4),
    "explog": (laws.explog, laws.explog_log_p, explog_cells, 5e-3),
}
FEATURES = {
    "ring": lambda v: np.stack([v[:, 0] > 1, np.hypot(*v.T), v[:, 0] * v[:, 1]]),
    "explog": lambda v: np.stack(
        [v[:, 0], np.log(v[:, 1]) ** 2, v[:, 2], v[:, 0] * v[:, 2], np.exp(-v[:, 2])]
    ),
}


def far_from_expected(name, v):
    """Standard errors between the draws' means of some features and those of the density."""
    _, log_p, cells, tolerance = CASES[name]
    points, volume = cells()
    expected = (FEATURES[name](points) * np.exp(log_p(points)) * volume).sum(1)
    found = FEATURES[name](v)
    error = found.std(1) / np.sqrt(len(v)) + tolerance * np.abs(expected)  # of the cells
    return np.abs(found.mean(1) - expected) / error


@pytest.mark.parametrize("name", CASES)
def test_density_integrates_to_one(name):
    _, log_p, cells, tolerance = CASES[name]
    points, volume = cells()
    assert (np.exp(log_p(points)) * volume).sum() == pytest.approx(1, abs=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_draws_follow_the_density(name):
    v = CASES[name][0](DRAWS, np.random.default_rng(0))
    assert far_from_expected(name, v).max() < 4


@pytest.mark.parametrize("name", CASES)
def test_other_draws_are_noticed(name):
    v = 1.03 * CASES[name][0](DRAWS, np.random.default_rng(0))
    assert far_from_expected(name, v).max() > 4


def test_slab_and_clumps():
    rng = np.random.default_rng(2)
    v = laws.sparse(DRAWS, rng)
    near = (np.abs(v - 0.2) < 0.02).mean() / 0.04
    assert near == pytest.approx(laws.slab_density(0.2), rel=4 / np.sqrt(0.006 * DRAWS))
    assert (v == 0).mean() == pytest.approx(0.85, abs=4 * np.sqrt(0.85 * 0.15 / DRAWS))
    x = np.arange(-6, 10, 0.05) + 0.025
    grid = np.stack(np.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2)
    p = np.exp(laws.clumps_log_p(grid)) * 0.05**2
    assert p.sum() == pytest.approx(1, abs=1e-6)
    draws = laws.clumps(DRAWS, rng)
    np.testing.assert_allclose(draws.mean(0), p @ grid, atol=4 * 2.3 / np.sqrt(DRAWS))
    np.testing.assert_allclose(np.cov(draws.T), [[5, 4], [4, 4.25]], atol=0.05)


def test_gamma_rows_and_divergence():
    """``KL(Gamma(k) || Gamma(m)) = (k - m) psi(k) - log G(k) + log G(m)``."""
    w = gamma.rows_of(5, 10_000, 100)
    assert w.mean() == pytest.approx(15, abs=4 * np.sqrt(6 / 10_000))
    assert w.var() == pytest.approx(6, rel=0.1)
    grid = gamma.grid_of(w)
    assert len(grid) == 10_000
    np.testing.assert_allclose(grid[[0, -1], 0], [w.min() - 13, w.max() - 7])
    with np.errstate(divide="ignore"):
        other = gamma_law.logpdf(grid[:, 0], 6)
    exact = (5 - 6) * digamma(5) - gammaln(5) + gammaln(6)
    assert gamma.divergence(5, grid, other) == pytest.approx(exact, abs=1e-3)
    assert gamma.divergence(5, grid, gamma_law.logpdf(grid[:, 0], 5)) == 0
    assert gamma.geometric_mean([0.01, 0.04]) == pytest.approx(0.02)
