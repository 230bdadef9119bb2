"""Observations: checked once, rows as views, missing values and projections as they should be."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch

from deconflow import Observations
from deconflow.noise import gaussian, laplace

N, M, D, K = 8, 3, 2, 4

RNG = np.random.default_rng(0)
W = RNG.normal(size=(N, M))
SD = RNG.uniform(0.3, 2.0, size=(N, M))
ROOT = RNG.normal(size=(N, M, M))
COVARIANCE = ROOT @ ROOT.transpose(0, 2, 1) + 0.2 * np.eye(M)
PROJECTION = RNG.normal(size=(N, M, D))
WEIGHTS = RNG.uniform(0.1, 3.0, size=N)
V = np.array(RNG.normal(size=(K, N, D)))
MISSING = RNG.random((N, M)) < 0.4
MISSING[np.arange(N), np.arange(N) % M] = False
HOLES = np.where(MISSING, np.nan, W)

NOISE = {
    "shared sd": SD[0],
    "per-row sd": SD,
    "shared covariance": COVARIANCE[0],
    "per-row covariance": COVARIANCE,
    "shared law": laplace(SD[0]),
    "per-row law": laplace(SD),
}
CASES = {
    "plain": {"w": W},
    "missing": {"w": HOLES},
    "projection": {"w": W, "projection": PROJECTION},
    "projection and missing": {"w": HOLES, "projection": PROJECTION},
    "weights": {"w": W, "weights": WEIGHTS},
    "all": {"w": HOLES, "projection": PROJECTION, "weights": WEIGHTS},
}
all_noises = pytest.mark.parametrize("noise", NOISE)


def observe(case, noise="per-row sd"):
    arrays = dict(CASES[case])
    return Observations.from_arrays(arrays.pop("w"), NOISE[noise], **arrays)


def truths(data):
    return np.random.default_rng(0).normal(size=(K, N, data.latent_dim))


# -- log likelihood -----------------------------------------------------------------------------


@all_noises
def test_a_projection_is_applied_to_the_truth(noise):
    data = observe("projection", noise)
    expected = W - np.stack([[PROJECTION[i] @ V[k, i] for i in range(N)] for k in range(K)])
    np.testing.assert_allclose(data.residual(V), expected, atol=1e-12)
    np.testing.assert_allclose(
        data.log_likelihood(V), observe("plain", noise).noise.log_prob(np.array(expected))
    )


@pytest.mark.parametrize("noise", ["shared sd", "per-row sd", "per-row covariance"])
def test_missing_with_projection_equals_dropping_those_rows_of_the_projection(noise):
    answer = observe("projection and missing", noise).log_likelihood(V)
    dense = np.broadcast_to(observe("plain", noise).noise.covariance(), (N, M, M))
    for i in range(N):
        seen = ~MISSING[i]
        one = Observations.from_arrays(
            W[i : i + 1, seen],
            gaussian(covariance=dense[i][np.ix_(seen, seen)]),
            projection=PROJECTION[i, seen],
        )
        np.testing.assert_allclose(one.log_likelihood(V[:, i : i + 1])[:, 0], answer[:, i])
    whole = observe("projection", noise).log_likelihood(V)
    assert np.abs(whole - answer)[:, MISSING.any(1)].min() > 1e-6  # negative twin


@all_noises
def test_what_was_not_measured_has_no_influence(noise):
    data = observe("missing", noise)
    v = truths(data)
    there = torch.tensor(v, requires_grad=True)
    data.to().log_likelihood(there).sum().backward()
    assert there.grad.isfinite().all()
    assert (there.grad[:, MISSING] == 0).all()
    moved = np.where(MISSING, v + 100.0, v)
    np.testing.assert_allclose(data.log_likelihood(moved), data.log_likelihood(v))
    assert (data.w[MISSING] == 0).all()
    assert (data.residual(v)[:, MISSING] == 0).all()
    assert (data.log_likelihood(v + 100.0) < data.log_likelihood(v)).all()  # negative twin


# -- rows ---------------------------------------------------------------------------------------

INDICES = {
    "slice": slice(2, 7, 2),
    "tensor": torch.tensor([5, 0, 0]),
    "numpy": np.array([5, 0, 0]),
    "list": [5, 0, -1],
    "bool tensor": torch.arange(N) > 3,
    "bool numpy": np.arange(N) > 3,
}


@pytest.mark.parametrize("index", INDICES)
def test_rows_are_the_rows(index):
    for case, noise in product(CASES, NOISE):
        check_rows(observe(case, noise), INDICES[index])


def check_rows(data, rows):
    part = data[rows]
    positions = np.array(np.arange(N)[rows])
    v = truths(data)
    assert len(part) == len(part.noise) == len(positions)
    np.testing.assert_allclose(
        part.log_likelihood(v[:, positions]), data.log_likelihood(v)[:, positions]
    )
    np.testing.assert_allclose(part.features(), data.features()[positions])
    if data.weights is not None:
        np.testing.assert_allclose(part.weights, data.weights[positions])


def test_complete_data_share_the_users_memory_and_leave_it_untouched():
    w, holes = W.copy(), HOLES.copy()
    data = Observations.from_arrays(w, SD, projection=PROJECTION)
    assert np.shares_memory(data.w, w)
    assert np.shares_memory(data.projection, PROJECTION)
    Observations.from_arrays(holes, SD, projection=PROJECTION)
    np.testing.assert_array_equal(np.isnan(holes), MISSING)
    np.testing.assert_array_equal(w, W)


# -- split --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fraction", [0.01, 0.25, 0.5, 0.8])
def test_split_is_disjoint_and_complete(fraction):
    n = 40
    w = np.arange(2.0 * n).reshape(n, 2)
    first, second = Observations.from_arrays(w, 1 + w, weights=1 + w[:, 0]).split(fraction)
    assert len(second) == max(1, round(fraction * n))
    seen = np.concatenate([first.w[:, 0], second.w[:, 0]])
    np.testing.assert_array_equal(np.sort(seen), w[:, 0])
    for part in (first, second):  # everything belonging to a row goes with it
        np.testing.assert_allclose(part.noise.factor, 1 + part.w)
        np.testing.assert_allclose(part.weights, (1 + part.w[:, 0]) / (1 + w[:, 0]).mean())


# -- weights, features, precision, containers ---------------------------------------------------


CONTAINERS = {
    "list": lambda x: np.asarray(x).tolist(),
    "tensor": torch.tensor,
    "tensor with gradient": lambda x: torch.tensor(x, requires_grad=True),
    "Fortran order": np.asfortranarray,
    "big-endian": lambda x: np.asarray(x, dtype=">f8"),
    "strided": lambda x: np.repeat(x, 2, 0)[::2],
    "reversed": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "pandas": lambda x: pd.DataFrame(x) if x.ndim == 2 else pd.Series(x),
    "masked pandas": lambda x: (pd.DataFrame(x) if x.ndim == 2 else pd.Series(x)).astype("Float64"),
    "objects": lambda x: np.asarray(x).astype(object),
}


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("w", [W, HOLES], ids=["complete", "missing"])
def test_containers_do_not_matter(name, w):
    change = CONTAINERS[name]
    data = Observations.from_arrays(change(w), change(SD), weights=change(WEIGHTS))
    expected = Observations.from_arrays(w.copy(), SD, weights=WEIGHTS)
    np.testing.assert_allclose(data.w, expected.w)
    np.testing.assert_allclose(data.weights, expected.weights)
    np.testing.assert_allclose(data.noise.factor, expected.noise.factor)
    assert (data.observed is None) == (expected.observed is None)
    assert isinstance(data.w, np.ndarray)


def test_noise_of_other_data_brings_no_missing_values_along():
    holes = Observations.from_arrays(HOLES, laplace(SD[0]))
    for n in (N, N + 1):
        with pytest.raises(ValueError, match="noise of whole rows"):
            Observations.from_arrays(np.zeros((n, M)), holes.noise)
