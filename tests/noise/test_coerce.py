"""Which array is which noise, and who is sent away."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import cross_val_score
from torch.distributions import (
    Categorical,
    Exponential,
    Independent,
    Laplace,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    Uniform,
)

from deconflow import XDGMM, Observations, noise, observe
from deconflow.noise import as_noise, gaussian, laplace
from deconflow.randomness import isolated_rng

N, D = 5, 2
RNG = np.random.default_rng(0)
SD = RNG.uniform(0.2, 2.0, size=(N, D))
ROOT = RNG.normal(size=(N, D, D))
COVARIANCE = ROOT @ ROOT.transpose(0, 2, 1) + np.eye(D)

MEANING = {
    "number": (0.3, np.stack([0.09 * np.eye(D)] * N)),
    "integer": (2, np.stack([4.0 * np.eye(D)] * N)),
    "(D,)": (SD[0], np.stack([np.diag(SD[0] ** 2)] * N)),
    "(N, D)": (SD, np.stack([np.diag(sd**2) for sd in SD])),
    "(D, D)": (COVARIANCE[0], np.stack([COVARIANCE[0]] * N)),
    "(N, D, D)": (COVARIANCE, COVARIANCE),
}
CONTAINER = {
    "array": np.asarray,
    "list": lambda x: np.asarray(x).tolist(),
    "tensor": torch.tensor,
    "float32 tensor": lambda x: torch.tensor(x, dtype=torch.float32),
    "float32 array": lambda x: np.asarray(x, dtype=np.float32),
    "big-endian array": lambda x: np.asarray(x, dtype=">f8"),
    "Fortran order": lambda x: np.asarray(x, dtype=float, order="F"),
}


@pytest.mark.parametrize("container", CONTAINER)
@pytest.mark.parametrize("name", MEANING)
def test_shapes_mean_what_they_say(name, container):
    value, expected = MEANING[name]
    noise = as_noise(CONTAINER[container](value), N, D)
    assert (len(noise), noise.dim, noise.shape) == (N, D, (N, D))
    assert noise.covariance().dtype == np.float64
    np.testing.assert_allclose(
        np.broadcast_to(noise.covariance(), (N, D, D)), expected, rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("name", ["(N, D)", "(N, D, D)"])
def test_read_only_and_reversed_arrays_are_accepted(name):
    value, expected = MEANING[name]
    frozen = value.copy()
    frozen.setflags(write=False)
    np.testing.assert_allclose(as_noise(frozen, N, D).covariance(), expected)
    np.testing.assert_allclose(as_noise(value[::-1], N, D).covariance(), expected[::-1])


def test_pandas_is_accepted():
    frame = pd.DataFrame(SD, columns=["a", "b"])
    np.testing.assert_array_equal(as_noise(frame, N, D).factor, SD)
    np.testing.assert_array_equal(as_noise(frame.iloc[0], N, D).factor[0], SD[0])


def test_one_dimension():
    for value, sd in ((0.3, 0.3), ([0.3], 0.3), (np.full((N, 1), 0.3), 0.3), ([[0.09]], 0.3)):
        np.testing.assert_allclose(as_noise(value, N, 1).variance(), sd**2)
    with pytest.raises(ValueError, match=r"Reshape it to \(N, 1\)"):
        as_noise(np.ones(N), N, 1)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_as_many_rows_as_columns_is_refused_with_the_way_out(dim):
    square = np.eye(dim)
    message = r"could be standard deviations or one covariance.*gaussian\(sd=.*covariance="
    with pytest.raises(ValueError, match=message):
        as_noise(square, dim, dim)
    assert as_noise(gaussian(sd=square + 1), dim, dim).diagonal
    assert not as_noise(gaussian(covariance=square), dim, dim).diagonal
    assert as_noise(np.ones(dim), dim, dim).shared
    assert not as_noise(np.stack([square] * dim), dim, dim).shared


def test_a_noise_passes_through():
    noise = gaussian(sd=SD)
    assert as_noise(noise, N, D) is noise
    assert len(as_noise(gaussian(sd=SD[0]), N, D)) == N
    assert len(as_noise(laplace(SD[0]), N, D)) == N


def test_a_bound_noise_is_not_bound_again_to_another_number_of_rows():
    for bound in (gaussian(sd=SD), gaussian(sd=SD[0]).bind(N), laplace(SD[0]).bind(N)):
        assert len(bound.bind(N)) == N
        with pytest.raises(ValueError, match=f"noise for {N + 2} rows.*got {N} rows"):
            bound.bind(N + 2)


@pytest.mark.parametrize("name", ["(N, D)", "(N, D, D)"])
def test_nan_is_allowed_just_where_the_value_is_missing(name):
    value, expected = MEANING[name]
    observed = np.ones((N, D), dtype=bool)
    observed[3, 1] = False
    holes = value.copy()
    holes[3, 1] = np.nan
    if holes.ndim == 3:
        holes[3, :, 1] = np.nan
    noise = as_noise(holes, N, D, observed)
    np.testing.assert_allclose(noise.covariance()[3, 0, 0], expected[3, 0, 0])
    r = torch.tensor(RNG.normal(size=(N, D)))
    whole = as_noise(value, N, D).restrict(torch.tensor(observed))
    torch.testing.assert_close(noise.log_prob(r), whole.log_prob(r))
    holes[2] = np.nan
    with pytest.raises(ValueError, match="nan at row 2, column 0"):
        as_noise(holes, N, D, observed)


# -- torch distributions ------------------------------------------------------------------------


def float64(*values):
    return torch.tensor(values, dtype=torch.float64)


def two_lumps():
    means = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    parts = Independent(Normal(means, 0.5 * torch.ones_like(means)), 1)
    return MixtureSameFamily(Categorical(float64(0.3, 0.7)), parts)


DISTRIBUTIONS = {
    "normal": lambda: Normal(float64(0.0, 1.0), float64(0.5, 2.0)),
    "laplace": lambda: Laplace(float64(0.0, 0.0), float64(0.5, 2.0)),
    "uniform": lambda: Uniform(float64(-1.0, -2.0), float64(1.0, 3.0)),
    "exponential": lambda: Exponential(float64(1.0, 2.0)),
    "independent": lambda: Independent(Normal(float64(0.0, 0.0), float64(1.0, 2.0)), 1),
    "multivariate": lambda: MultivariateNormal(float64(0, 1), torch.eye(2).double() + 0.5),
    "mixture of independent normals": two_lumps,
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_torch_distribution_holds_for_all_rows(name):
    distribution = DISTRIBUTIONS[name]()
    noise = as_noise(distribution, N, D)
    assert noise.shared
    with isolated_rng(0):
        drawn = noise.sample(4000)
    assert drawn.shape == (4000, N, D)
    expected = distribution.log_prob(torch.from_numpy(drawn[:3]))
    expected = expected if expected.dim() == 2 else expected.sum(-1)
    np.testing.assert_allclose(noise.log_prob(drawn[:3]), expected, rtol=1e-7)
    flat = drawn.reshape(-1, D)
    np.testing.assert_allclose(noise.mean()[0], flat.mean(0), rtol=0, atol=0.1)
    np.testing.assert_allclose(noise.covariance()[0], np.cov(flat.T), rtol=0.06, atol=0.06)


# -- rows of what is read with the measured values: by index, in scikit-learn's folds, of tables ---


MANY = 60
DRAWN = np.random.default_rng(0)
TIMES = DRAWN.uniform(0.5, 3.0, MANY)
COUNTS = DRAWN.poisson(4 * TIMES)[:, None].astype(float) + 1
FLAGS = np.where(COUNTS > 9, 1.0, 0.0)
SOME = np.array([7, 3, 20])

BY_ROW = {
    "poisson": noise.poisson(TIMES),
    "binomial": noise.binomial(np.full((MANY, 1), 99)),
    "multiplicative, array": noise.multiplicative(0.1 * TIMES[:, None]),
    "multiplicative, law": noise.multiplicative(noise.gaussian(sd=0.1 * TIMES[:, None])),
    "limits": noise.limited(0.1 * TIMES[:, None], FLAGS),
    "limits, law": noise.limited(noise.gaussian(sd=0.1 * TIMES[:, None]), FLAGS),
    "limits, one error": noise.limited([0.3], FLAGS),
}


@pytest.mark.parametrize("kind", BY_ROW)
def test_rows_of_a_reading_are_those_of_the_values(kind):
    """The law of some rows is that of the whole table at these rows; at others it is not."""
    reading = BY_ROW[kind]
    whole = Observations.from_arrays(COUNTS, reading)
    v = whole.w + 0.1
    expected = whole.noise.log_prob(whole.residual(v))
    some = Observations.from_arrays(COUNTS[SOME], reading[SOME])
    found = some.noise.log_prob(some.residual(v[SOME]))
    np.testing.assert_allclose(found, expected[SOME], rtol=1e-6)
    assert not np.allclose(found, expected[SOME + 1], rtol=1e-3)
    assert reading.shape == (MANY,)
    with pytest.raises(IndexError, match="Expected rows between 0 and 59; got 60"):
        reading[[60]]


@pytest.mark.parametrize("reading", [noise.poisson(2.0), noise.multiplicative([0.1])])
def test_what_holds_for_every_row_stays(reading):
    assert reading[SOME] is reading


def test_folds_take_their_rows_of_a_reading():
    """Each fold has its own exposures: the same as folds made by hand."""
    rows = observe(COUNTS, BY_ROW["poisson"])
    found = cross_val_score(XDGMM(1), rows, cv=2, error_score="raise")
    first, second = slice(None, MANY // 2), slice(MANY // 2, None)
    model = XDGMM(1).fit(COUNTS[second], noise=noise.poisson(TIMES[second]))
    by_hand = model.score(COUNTS[first], noise=noise.poisson(TIMES[first]))
    assert found[0] == pytest.approx(by_hand, rel=1e-6)


TABLE = pd.DataFrame({"y": TIMES, "x": TIMES})


@pytest.mark.parametrize(
    "make",
    [
        lambda: noise.poisson(TABLE),
        lambda: noise.binomial(TABLE),
        lambda: noise.likelihood(max, max, gain=TABLE),
        lambda: noise.multiplicative(TABLE),
        lambda: noise.limited(0.1, TABLE),
        lambda: noise.limited(TABLE, np.zeros((MANY, 2))),
    ],
)
def test_tables_whose_names_would_be_lost_are_refused(make):
    with pytest.raises(TypeError, match="got a table of y, x, whose names a law does not keep"):
        make()
