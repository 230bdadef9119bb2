"""Standardising: plain formulas, and units that change densities by their Jacobian only."""

import numpy as np
import pytest

from deconflow import Observations
from deconflow.noise import laplace, split_normal, student_t
from deconflow.standardising import SMALLEST_SHARE, Standardiser

N, M = 200, 3
RNG = np.random.default_rng(0)
UNITS = np.array([1e-3, 1.0, 1e5])
SHIFT = np.array([5.0, -1.0, 3e5])
W = SHIFT + UNITS * RNG.normal(size=(N, M)) * [1.0, 2.0, 3.0]
SD = UNITS * RNG.uniform(0.1, 0.8, size=(N, M))
WEIGHTS = RNG.uniform(0.0, 2.0, size=N)
MISSING = RNG.random((N, M)) < 0.3
MISSING[np.arange(N), np.arange(N) % M] = False
HOLES = np.where(MISSING, np.nan, W)
PROJECTION = RNG.normal(size=(N, M, 2))
ROOT = RNG.normal(size=(N, M, M)) * UNITS[:, None] * 0.3
NOISE = {
    "shared sd": SD[0],
    "per-row sd": SD,
    "per-row covariance": ROOT @ ROOT.transpose(0, 2, 1) + np.stack([np.diag(s**2) for s in SD]),
    "laplace": laplace(SD),
    "shared student": student_t(SD[0], 4.0),
    "split normal": split_normal(SD, 2 * SD),
}
CASES = {
    "plain": {"w": W},
    "missing": {"w": HOLES},
    "weights": {"w": W, "weights": WEIGHTS},
    "missing, weights": {"w": HOLES, "weights": WEIGHTS},
    "projection": {"w": W / UNITS, "projection": PROJECTION},
    "projection, missing": {"w": HOLES / UNITS, "projection": PROJECTION},
    "projection, missing, weights": {
        "w": HOLES / UNITS,
        "projection": PROJECTION,
        "weights": WEIGHTS,
    },
}
all_noises = pytest.mark.parametrize("noise", NOISE)
all_cases = pytest.mark.parametrize("case", CASES)
without_projection = pytest.mark.parametrize("case", [c for c in CASES if "projection" not in c])


def observe(case, noise="per-row sd"):
    arrays = dict(CASES[case])
    return Observations.from_arrays(arrays.pop("w"), NOISE[noise], **arrays)


def close(answer, expected, rtol=1e-9):
    np.testing.assert_allclose(np.asarray(answer), np.asarray(expected), rtol=rtol)


@without_projection
@all_noises
def test_fit_solves_its_equations(case, noise):
    data = observe(case, noise)
    w = CASES[case]["w"] - data.noise.mean()
    a = np.where(np.isnan(w), 0.0, CASES[case].get("weights", np.ones(N))[:, None])
    variance = np.broadcast_to(data.noise.variance(), (N, M))
    fitted = Standardiser.fit(data)
    precision = a / (fitted.scale**2 + variance)
    filled = np.nan_to_num(w)
    mean = (precision * filled).sum(0) / precision.sum(0)
    precision2 = precision**2 / np.where(a > 0, a, 1.0)
    square = (filled - mean) ** 2
    total = (precision2 * square).sum(0) / precision2.sum(0)
    deconvolved = (precision2 * (square - variance)).sum(0) / precision2.sum(0)
    close(fitted.location, mean, rtol=1e-6)
    close(fitted.scale, np.sqrt(np.maximum(deconvolved, SMALLEST_SHARE * total)), rtol=1e-6)
    assert fitted.measured_scale.tolist() == fitted.scale.tolist()


@pytest.mark.parametrize("size", [1e3, 1e6, 1e10])
def test_a_row_that_says_nothing_changes_nothing(size):
    w = np.random.default_rng(3).normal(size=(500, 2))
    sd = np.full((500, 2), 0.1)
    alone = Standardiser.fit(Observations.from_arrays(w, sd))
    noisy = np.concatenate([w, [[size, -size]]])
    both = Standardiser.fit(Observations.from_arrays(noisy, np.concatenate([sd, [[size, size]]])))
    close(both.scale, alone.scale, rtol=0.01)
    far = Standardiser.fit(Observations.from_arrays(noisy, np.concatenate([sd, sd[:1]])))
    close(far.scale, alone.scale, rtol=0.15)  # one row at 10 standard deviations: (1 + .2) ** .5


def test_the_mean_of_the_noise_is_taken_out():
    v = 7 + np.random.default_rng(1).normal(size=(50_000, 1))
    noise = split_normal(np.full((1,), 0.2), np.full((1,), 3.0)).bind(len(v))
    data = Observations.from_arrays(v + noise.sample(1)[0], noise)
    fitted = Standardiser.fit(data)
    assert fitted.location[0] == pytest.approx(7, abs=0.05)
    assert fitted.scale[0] == pytest.approx(1, abs=0.06)
    assert abs(float(data.w.mean()) - 7) > 1  # negative twins: what was measured is another
    assert float(data.w.std()) > 1.5


@all_cases
@all_noises
def test_standardised_densities_differ_by_the_jacobian_only(case, noise):
    data = observe(case, noise)
    fitted = Standardiser.fit(data)
    ready = fitted.observations(data)
    z = np.array(np.random.default_rng(2).normal(size=(3, N, data.latent_dim)))
    v = fitted.from_standard(z)
    volume = fitted.log_observed_volume(data)
    assert volume.shape in {(N,), (1,)}
    np.testing.assert_allclose(
        ready.log_likelihood(z) - volume, data.log_likelihood(v), rtol=1e-7, atol=1e-7
    )
    np.testing.assert_allclose(fitted.to_standard(v), z, rtol=1e-7, atol=1e-7)
    if data.observed is not None:
        assert (ready.w[~data.observed] == 0).all()
    assert ready.weights is data.weights


@without_projection
@all_noises
def test_a_change_of_units_shifts_all_log_densities_alike(case, noise):
    data = observe(case, noise)
    a, b = np.array([1e3, 1e-2, 7.0]), np.array([1.0, -20.0, 0.3])
    arrays = dict(CASES[case])
    w = arrays.pop("w") * a + b
    law = NOISE[noise]
    if isinstance(law, np.ndarray):
        law = law * (a[:, None] * a if law.ndim == 3 else a)
    else:
        law = law.divide(np.array(1 / a))
    other = Observations.from_arrays(w, law, **arrays)
    one, two = Standardiser.fit(data), Standardiser.fit(other)
    close(two.location, a * one.location + b, rtol=1e-8)
    close(two.scale, a * one.scale, rtol=1e-6)
    np.testing.assert_allclose(
        two.observations(other).features(), one.observations(data).features(), rtol=1e-6, atol=1e-6
    )
    z = np.zeros((1, N, M))
    np.testing.assert_allclose(
        two.observations(other).log_likelihood(z),
        one.observations(data).log_likelihood(z),
        rtol=1e-5,
        atol=1e-5,
    )


# -- projections --------------------------------------------------------------------------------


def projected(seed=0, n=20_000, units=(1.0, 1.0), missing=False):
    rng = np.random.default_rng(seed)
    truth = np.array([2.0, -3.0]), np.array([1.0, 4.0])
    v = truth[0] + truth[1] * rng.normal(size=(n, 2))
    R = rng.normal(size=(n, 3, 2))
    sd = rng.uniform(0.1, 1.0, size=(n, 3))
    w = np.einsum("nmd,nd->nm", R, v) + sd * rng.normal(size=sd.shape)
    if missing:
        holes = rng.random(w.shape) < 0.3
        holes[np.arange(n), np.arange(n) % 3] = False
        w[holes] = np.nan
    return Observations.from_arrays(w, sd, projection=R / units), truth


@pytest.mark.parametrize("missing", [False, True])
def test_projections_recover_location_and_scale(missing):
    data, (location, scale) = projected(missing=missing)
    fitted = Standardiser.fit(data)
    close(fitted.location, location, rtol=0.05)
    close(fitted.scale, scale, rtol=0.1)
    assert fitted.measured_scale.shape == (3,)


# -- edges --------------------------------------------------------------------------------------

UNSEEN = {
    "missing everywhere": {"w": [[1.0, np.nan], [2.0, np.nan], [0.5, np.nan]]},
    "seen without weight": {
        "w": [[1.0, np.nan], [2.0, np.nan], [0.5, 3.0]],
        "weights": [1.0, 1.0, 0.0],
    },
    "not in the projection": {"w": [[1.0], [2.0], [3.0]], "projection": [[1.0, 0.0]]},
}


@pytest.mark.parametrize("name", UNSEEN)
def test_an_unseen_column_is_refused(name):
    arrays = dict(UNSEEN[name])
    data = Observations.from_arrays(arrays.pop("w"), 0.1, **arrays)
    with pytest.raises(ValueError, match=r"measured in at least one row.*dimension 1\. Drop it"):
        Standardiser.fit(data)
