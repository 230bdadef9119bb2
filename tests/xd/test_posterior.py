"""The exact posterior of rows: the formula itself, however large mixture and noise law are."""

import numpy as np
import pytest
from cases import CASES, make, start

from deconflow import Observations
from deconflow.noise import laplace, student_t
from deconflow.xd import posterior, posterior_pieces

ROWS = 61


def by_hand(mixture, w, R, S):
    """Weights, means and covariances of one row, from the inverse of each convolution."""
    weights, means, covariances = [], [], []
    for p, m, V in zip(mixture.weights, mixture.means, mixture.covariances, strict=True):
        T = R @ V @ R.T + S
        y = w - R @ m
        gain = V @ R.T @ np.linalg.inv(T)
        weights.append(np.log(p) - 0.5 * (y @ np.linalg.solve(T, y) + np.linalg.slogdet(T)[1]))
        means.append(m + gain @ y)
        covariances.append(V - gain @ R @ V)
    weights = np.exp(np.array(weights) - max(weights))
    return weights / weights.sum(), np.array(means), np.array(covariances)


@pytest.mark.parametrize("name", CASES)
def test_every_row_has_the_textbooks_posterior(name):
    case, rows, mixture = make(name)
    case.pop("weights", None)
    w, noise = case.pop("w"), case.pop("noise")
    found = posterior(mixture, Observations.from_arrays(w, noise, **case))
    for i, row in enumerate(zip(*rows, strict=True)):
        weights, means, covariances = by_hand(mixture, *row)
        np.testing.assert_allclose(found.weights[i], weights, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(found.means[i], means, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(found.covariances[i], covariances, rtol=1e-6, atol=1e-8)


def observations(kind, n=300):
    rng = np.random.default_rng(1)
    w = 3 * rng.normal(size=(n, 2))
    if kind == "missing":
        w[::3, 0] = np.nan
    noise = {"student-t": student_t([0.2, 0.3], 4.0), "laplace": laplace([0.2, 0.3])}
    R = rng.normal(size=(n, 2, 2)) if kind == "projection" else None
    return Observations.from_arrays(w, noise.get(kind, [0.2, 0.3]), projection=R)


@pytest.mark.parametrize("kind", ["plain", "missing", "projection", "laplace"])
@pytest.mark.parametrize("components", [3, 33, 150])
def test_components_that_do_not_matter_are_left_out(kind, components):
    """Pieces hold only what matters to a row, and have the moments of all to the last digits."""
    data = observations(kind)
    mixture = start(np.random.default_rng(0), dim=2, components=components).in_units([0, 0], [2, 2])
    narrow = type(mixture)(mixture.weights, mixture.means, 0.02 * mixture.covariances)
    whole = posterior(narrow, data)
    seen, kept = [], []
    for rows, piece in posterior_pieces(narrow, data):
        np.testing.assert_allclose(piece.weights.sum(-1), 1.0, rtol=1e-12)
        np.testing.assert_allclose(piece.mean, whole.mean[rows], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(piece.covariance, whole.covariance[rows], rtol=1e-10, atol=1e-12)
        seen.extend(rows)
        kept.append(piece.n_components)
    assert sorted(seen) == list(range(len(data)))
    if components == 150 and kind == "plain":
        assert min(kept) < 50  # that something was left out


@pytest.mark.parametrize("most", [1, 4])
def test_the_heaviest_of_each_row_are_kept(most):
    mixture = start(np.random.default_rng(0), dim=2, components=20)
    data = observations("student-t", 40)
    found, whole = posterior(mixture, data, most), posterior(mixture, data)
    assert found.n_components == most
    wanted = np.sort(whole.weights, 1)[:, ::-1][:, :most]
    ours = np.sort(found.weights, 1)[:, ::-1]
    np.testing.assert_allclose(ours, wanted / wanted.sum(1, keepdims=True), rtol=1e-10)
