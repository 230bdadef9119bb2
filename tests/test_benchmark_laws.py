"""Laws of the benchmarks: densities that integrate to one and belong to their draws."""

import numpy as np
import pytest

from benchmarks import laws

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
