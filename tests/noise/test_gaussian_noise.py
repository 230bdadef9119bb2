"""Gaussian noise: every structured form against its dense twin, and against scipy."""

import numpy as np
import pytest
import torch
from scipy import stats

from deconflow.noise import GaussianNoise, gaussian

N, K = 6, 4


def random_covariances(rng, n, dim):
    root = rng.normal(size=(n, dim, dim))
    return root @ root.transpose(0, 2, 1) + 0.1 * np.eye(dim)


def make(kind, dim, seed=0):
    """Return a noise bound to N rows, and its covariances (N, dim, dim) in plain numpy."""
    rng = np.random.default_rng(seed)
    sd = rng.uniform(0.3, 2.0, size=(N, dim))
    full = random_covariances(rng, N, dim)
    diagonals = np.stack([np.diag(row**2) for row in sd])
    noise, dense = {
        "shared sd": (gaussian(sd=sd[0]), np.repeat(diagonals[:1], N, 0)),
        "per-row sd": (gaussian(sd=sd), diagonals),
        "shared covariance": (gaussian(covariance=full[0]), np.repeat(full[:1], N, 0)),
        "per-row covariance": (gaussian(covariance=full), full),
    }[kind]
    return noise.bind(N), dense


KINDS = ["shared sd", "per-row sd", "shared covariance", "per-row covariance"]
all_kinds = pytest.mark.parametrize("kind", KINDS)
all_dims = pytest.mark.parametrize("dim", [1, 2, 4])


def residuals(dim, seed=1):
    return np.random.default_rng(seed).normal(size=(K, N, dim))


def dense_log_prob(r, covariances, observed=None):
    """Naive: one scipy density a row, over the observed values only."""
    observed = np.ones(r.shape[1:], dtype=bool) if observed is None else observed
    columns = []
    for i, seen in enumerate(observed):
        marginal = covariances[i][np.ix_(seen, seen)]
        columns.append(
            np.reshape(stats.multivariate_normal(cov=marginal).logpdf(r[:, i, seen]), len(r))
        )
    return np.stack(columns, 1)


def some_missing(dim, seed=2):
    observed = np.random.default_rng(seed).random((N, dim)) < 0.6
    observed[np.arange(N), np.arange(N) % dim] = True
    return observed


@all_kinds
@all_dims
def test_log_prob_is_the_dense_density(kind, dim):
    noise, dense = make(kind, dim)
    r = residuals(dim)
    expected = dense_log_prob(r, dense)
    np.testing.assert_allclose(noise.log_prob(np.array(r)), expected, rtol=1e-10)
    np.testing.assert_allclose(noise.log_prob(np.array(r[0])), expected[0], rtol=1e-10)
    deep = np.broadcast_to(r, (2, 3, K, N, dim))
    np.testing.assert_allclose(noise.log_prob(deep)[1, 2], expected, rtol=1e-10)


@all_kinds
@all_dims
def test_second_moments_agree_in_every_form(kind, dim):
    noise, dense = make(kind, dim)
    rows = 1 if noise.shared else N
    dense = dense[:rows]
    np.testing.assert_allclose(noise.covariance(), dense, atol=1e-12)
    np.testing.assert_allclose(noise.variance(), np.diagonal(dense, axis1=1, axis2=2), rtol=1e-12)
    factor = noise.cholesky()
    np.testing.assert_allclose(factor, np.linalg.cholesky(dense), atol=1e-12)
    i, j = np.tril_indices(dim)
    np.testing.assert_allclose(noise.features(), factor[:, i, j])
    assert (noise.mean() == 0).all()
    assert noise.mean().shape == (1, dim)


@all_kinds
@pytest.mark.parametrize("dim", [2, 4])
def test_missing_values_leave_the_true_marginal(kind, dim):
    noise, dense = make(kind, dim)
    observed = some_missing(dim)
    assert not observed.all()
    part = noise.restrict(np.array(observed))
    r = residuals(dim)
    expected = dense_log_prob(r, dense, observed)
    np.testing.assert_allclose(part.log_prob(np.array(r)), expected, rtol=1e-10)
    garbage = np.where(observed, r, 1e6)
    np.testing.assert_allclose(part.log_prob(np.array(garbage)), expected, rtol=1e-10)
    full = noise.log_prob(np.array(r))
    assert (np.abs(full - expected) > 1e-3)[:, ~observed.all(1)].all()  # negative twin


def test_divide_keeps_the_idle_values_of_missing_ones_at_one():
    for kind in KINDS:
        noise, _ = make(kind, 3)
        observed = np.array(some_missing(3))
        divided = noise.restrict(observed).divide(np.array([0.1, 10.0, 1000.0]))
        np.testing.assert_allclose(divided.variance()[~observed], 1.0)


def test_diagonal_equals_its_dense_twin_through_every_operation():
    sd = np.random.default_rng(3).uniform(0.2, 3.0, size=(N, 3))
    thin = gaussian(sd=sd)
    dense = gaussian(covariance=np.stack([np.diag(row**2) for row in sd]))
    assert thin.diagonal
    assert not dense.diagonal
    observed = np.array(some_missing(3))
    scale = np.array([0.5, 2.0, 7.0])
    steps = {
        "divide": lambda n: n.divide(scale),
        "restrict": lambda n: n.restrict(observed),
        "restrict, divide": lambda n: n.restrict(observed).divide(scale),
        "rows": lambda n: n[np.array([5, 0, 0])],
        "restrict, rows": lambda n: n.restrict(observed)[1:4],
        "idle floor": lambda n: n.floor(0.1),
    }
    for name, step in steps.items():
        one, two = step(thin), step(dense)
        r = np.array(residuals(3))[:, : len(one)]
        answers = ((n.log_prob(r), n.covariance(), n.features()) for n in (one, two))
        for mine, theirs in zip(*answers, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-12, err_msg=name)


# -- singular and badly scaled covariances ------------------------------------------------------

SINGULAR = {
    "zero": np.zeros((2, 2)),
    "one dimension, zero": np.zeros((1, 1)),
    "rank one": np.outer([1.0, 2.0, -1.0], [1.0, 2.0, -1.0]),
    "first exact": np.diag([0.0, 1.0, 2.0]),
    "last exact": np.diag([3.0, 1.0, 0.0]),
    "zero in front of a rank one": np.block(
        [[np.zeros((1, 1)), np.zeros((1, 2))], [np.zeros((2, 1)), np.ones((2, 2))]]
    ),
    "tiny": 1e-30 * np.ones((3, 3)),
    "huge": 1e30 * np.ones((3, 3)),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_singular_covariances_factor_exactly(name):
    S = SINGULAR[name]
    noise = gaussian(covariance=S)
    L = noise.cholesky()[0]
    assert (np.triu(L, 1) == 0).all()
    assert (np.diagonal(L) >= 0).all()
    np.testing.assert_allclose(L @ L.T, S, atol=1e-12 * np.abs(S).max())
    assert np.isfinite(noise.bind(3).sample(5)).all()


def test_singular_rows_stand_among_regular_ones():
    S = np.stack([np.eye(2), np.ones((2, 2)), np.diag([1.0, 0.0]), 2 * np.eye(2)])
    np.testing.assert_allclose(gaussian(covariance=S).covariance(), S, atol=1e-12)


def test_a_singular_marginal_survives_restriction():
    S = np.block([[np.ones((2, 2)), np.zeros((2, 1))], [np.zeros((1, 2)), np.ones((1, 1))]])
    noise = gaussian(covariance=S).bind(1).restrict(np.array([[True, True, False]]))
    np.testing.assert_allclose(noise.covariance()[0, :2, :2], np.ones((2, 2)), atol=1e-12)
    assert noise.covariance()[0, 2].tolist() == [0.0, 0.0, 1.0]


def test_singular_covariances_factor_exactly_in_mixed_units():
    units = np.array([1e6, 1.0, 1e-6])
    a = np.array([[1.0, 0.5], [0.3, -1.0], [0.7, 0.2]])
    S = a @ a.T * np.outer(units, units)
    L = gaussian(covariance=S).cholesky()[0]
    np.testing.assert_allclose(L @ L.T / np.outer(units, units), a @ a.T, atol=1e-6)


MIXED_UNITS = {
    "negative variance": ([[1e6, 0.0], [0.0, -0.05]], "semi-definite|at least zero"),
    "correlation above one": ([[1e8, 50.0, 0], [50.0, 1e-6, 0], [0, 0, 1]], "semi-definite"),
    "not symmetric": ([[1e8, 5.0], [0.0, 1.0]], "symmetric"),
}


@pytest.mark.parametrize("name", MIXED_UNITS)
def test_units_do_not_hide_a_bad_covariance(name):
    S, message = MIXED_UNITS[name]
    with pytest.raises(ValueError, match=message):
        gaussian(covariance=S)


def test_rounding_is_no_asymmetry_and_no_negative_eigenvalue():
    S = random_covariances(np.random.default_rng(0), 50, 4).astype(np.float32).astype(np.float64)
    S[:, 0, 1] *= 1 + 1e-8
    np.testing.assert_allclose(gaussian(covariance=S).covariance(), S, rtol=1e-6)


# -- floor --------------------------------------------------------------------------------------

FLOORED = {
    "exact sd": gaussian(sd=[0.0, 1.0]),
    "per-row sd": gaussian(sd=[[0.0, 1.0], [2.0, 0.4]]),
    "exact covariance": gaussian(covariance=np.zeros((2, 2))),
    "rank one": gaussian(covariance=np.ones((2, 2))),
    "some rows": gaussian(covariance=np.stack([np.eye(2), np.ones((2, 2)), 1e-8 * np.eye(2)])),
    "thin, though no pivot is small": gaussian(covariance=[[1.0, 100.0], [100.0, 10001.0]]),
    "one dimension": gaussian(covariance=[[[0.0]], [[4.0]]]),
}


@pytest.mark.parametrize("name", FLOORED)
def test_floor_bounds_the_standard_deviation_in_every_direction(name):
    floored = FLOORED[name].bind(FLOORED[name].n_rows or 2).floor(0.5)
    assert (np.linalg.eigvalsh(floored.covariance())[:, 0] > 0.25 * (1 - 1e-9)).all()
    before, after = FLOORED[name].covariance(), floored.covariance()
    assert (np.linalg.eigvalsh(after - before)[:, 0] > -1e-9).all()  # never narrower
    assert np.abs(after - before).max() <= 0.25 * (1 + 1e-9)


@pytest.mark.parametrize("size", [1.0, 1e6, 1e20])
def test_floor_of_huge_singular_noise_is_finite(size):
    floored = gaussian(covariance=size * np.ones((3, 3))).bind(2).floor(1e-3)
    assert np.isfinite(floored.cholesky()).all()
    assert (floored.cholesky().diagonal(axis1=-2, axis2=-1) > 0).all()
    assert np.isfinite(floored.log_prob(np.ones((2, 3)))).all()


def test_floor_keeps_what_is_observed():
    noise = gaussian(covariance=np.zeros((2, 2))).bind(2)
    part = noise.restrict(np.array([[True, False], [True, True]])).floor(1.0)
    expected = stats.norm.logpdf(0.7) * np.array([1, 2])
    r = np.full((2, 2), 0.7)
    np.testing.assert_allclose(part.log_prob(r), expected)


# -- precision, dimension one, memory -----------------------------------------------------------


def test_log_prob_has_the_right_gradient():
    for kind in KINDS:
        noise, dense = make(kind, 3)
        r = torch.tensor(residuals(3), requires_grad=True)
        noise.log_prob(r).sum().backward()
        expected = -np.einsum("nij,knj->kni", np.linalg.inv(dense), residuals(3))
        np.testing.assert_allclose(r.grad, expected, rtol=1e-8)


def test_sd_is_a_copy_of_the_users_array():
    sd = np.ones((3, 2))
    sd[0, 0] = 0.0
    noise = gaussian(sd=sd)
    assert not np.shares_memory(noise.factor, sd)
    noise.floor(0.5)
    noise.restrict(np.array([[True, False]] * 3)).divide(np.array([2.0, 2.0]))
    assert sd[0, 0] == 0.0
    assert (sd.ravel()[1:] == 1.0).all()


def test_what_it_is_called():
    assert repr(gaussian(sd=[1.0])) == "GaussianNoise(rows=any number of, dim=1, shared=True)"
    assert isinstance(gaussian(sd=[1.0]), GaussianNoise)
    assert gaussian(sd=[1.0]).support_map() is None


def test_frequencies_may_be_a_list():
    law = gaussian(sd=[0.5])
    assert law.characteristic([[0.5]]) == law.characteristic(np.array([[0.5]]))
