"""Lattices, sums over rows, and densities on grids: each against its plain twin."""

import numpy as np
import pytest

from deconflow import Observations
from deconflow.classical.fourier import EmpiricalCharacteristic, Lattice, enclose
from deconflow.classical.grid import GridDensity
from deconflow.classical.kde import cross_validation, kernel_on
from deconflow.classical.wavelets import analyse, measure, order_of, synthesise
from deconflow.noise import as_noise, gaussian, laplace


def lattice(dim):
    return Lattice(np.full(dim, -4.0), np.linspace(8.0, 10.0, dim), (3, 2, 4)[:dim])


def rows(law, dim, n=40):
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 1.5, n)
    w = rng.normal(size=(n, dim))
    return Observations(w, as_noise(law, n, dim), weights=weights / weights.sum())


def scales(dim, n=40):
    return np.random.default_rng(1).uniform(0.1, 1.0, (n, dim))


def covariances(dim, n=40):
    A = np.random.default_rng(2).normal(size=(n, dim, dim))
    return A @ A.transpose(0, 2, 1)


LAWS = {
    "shared": lambda dim: gaussian(sd=np.full(dim, 0.5)),
    "shared, full": lambda dim: gaussian(covariance=0.2 * np.eye(dim) + 0.1),
    "diagonal": lambda dim: gaussian(sd=scales(dim)),
    "laplace": lambda dim: laplace(scales(dim)),
    "full": lambda dim: gaussian(covariance=covariances(dim)),
}


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("name", LAWS)
def test_sums_over_rows_against_plain_sums(name, dim, monkeypatch):
    monkeypatch.setattr("deconflow.classical.fourier.AT_ONCE", 500)  # many chunks
    data, where = rows(LAWS[name](dim), dim), lattice(dim)
    ecf = EmpiricalCharacteristic(data, where)
    t, a = where.points(), data.weights[:, None]
    phi = np.broadcast_to(data.noise.characteristic(t), (len(a), len(t)))
    waves = np.exp(1j * (data.w - where.low) @ t.T)
    power = np.abs(phi) ** 2
    for found, wanted in [
        (ecf.numerator, a * phi.conj() * waves),
        (ecf.power, a * power),
        (ecf.power_of_squares, a**2 * power),
        (ecf.fourth, a**2 * power**2),
    ]:
        np.testing.assert_allclose(found, wanted.sum(0).reshape(where.shape), atol=1e-12)
    origin = (*where.order[:-1], 0)
    assert ecf.estimate[origin] == pytest.approx(1)


def test_pairs_of_rows_tell_the_square_without_bias():
    rng = np.random.default_rng(0)
    where = Lattice(np.zeros(1), np.array([8.0]), (3,))
    found, naive = [], []
    for _ in range(400):
        w = rng.normal(size=(50, 1)) + 0.5 * rng.normal(size=(50, 1))
        ecf = EmpiricalCharacteristic(
            Observations(w, as_noise([0.5], 50, 1), weights=np.full(50, 0.02)), where
        )
        found.append(ecf.unbiased_square)
        naive.append(np.abs(ecf.estimate) ** 2)
    truth = np.exp(-(where.axes[0] ** 2))
    error = np.std(found, 0) / 20
    assert (np.abs(np.mean(found, 0) - truth) <= 4 * error + 1e-12).all()
    assert np.mean(naive, 0)[-1] - truth[-1] > 4 * error[-1]


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_characteristic_function_gives_its_density(dim):
    where = Lattice(np.full(dim, -6.0), np.full(dim, 12.0), (10,) * dim)
    t = where.points()
    phi = np.exp(-0.5 * (t**2).sum(1) - 1j * t @ where.low + 1j * t @ np.full(dim, 0.5))
    values = where.density(phi.reshape(where.shape))
    step = where.length / values.shape
    x = where.low + step * np.moveaxis(np.indices(values.shape), 0, -1)
    wanted = np.exp(-0.5 * np.square(x - 0.5).sum(-1)) / (2 * np.pi) ** (dim / 2)
    np.testing.assert_allclose(values, wanted, atol=1e-4)
    assert values.sum() * step.prod() == pytest.approx(1, abs=1e-12)
    assert where.total(np.abs(phi.reshape(where.shape)) ** 2) == pytest.approx(
        (values**2).sum() * step.prod()  # Parseval
    )


def test_a_box_is_cut_around_the_median():
    w = np.r_[np.linspace(0, 1, 99), 1000.0][:, None]
    low, length = enclose(w, np.array([0.5]), np.array([10.0]))
    assert low[0] < 0.5 < low[0] + length[0]
    assert length[0] == 10.0
    low, length = enclose(w, np.array([0.5]), np.array([2000.0]))
    assert (low[0], length[0]) == (-0.5, 1001.0)


def test_cross_validation_is_the_error_it_stands_for():
    """Without noise: the integral of f^2 less twice the mean of leave-one-out estimates."""
    w = np.random.default_rng(0).normal(size=(30, 1))
    where = Lattice(np.array([-10.0]), np.array([20.0]), (60,))
    ecf = EmpiricalCharacteristic(
        Observations(w, as_noise(0.0, 30, 1), weights=np.full(30, 1 / 30)), where
    )
    K = kernel_on(where, np.array([0.2]))
    t = where.axes[0]
    twice = np.where(t == 0, 1, 2)
    pair = (np.cos(t * (w - w.T)[:, :, None]) * (K * twice)).sum(-1) / 20
    square = (np.cos(t * (w - w.T)[:, :, None]) * (K**2 * twice)).sum(-1) / 20
    leave_one_out = (pair.sum() - np.trace(pair)) / (30 * 29)
    assert cross_validation(ecf, K, caution=0.0) == pytest.approx(square.mean() - 2 * leave_one_out)


def test_a_grid_density_is_linear_between_points():
    values = np.zeros((4, 5))
    values[1, 2], values[2, 2] = 1.0, 3.0
    grid = GridDensity(np.zeros(2), np.ones(2), values / 4, 0.0, np.zeros(2), np.eye(2))
    found = np.exp(grid.log_prob(np.array([[1.0, 2.0], [1.5, 2.0], [2.0, 2.5]])))
    np.testing.assert_allclose(found, [0.25, 0.5, 0.375])
    assert grid.log_prob(np.array([[9.0, 9.0]])) == -np.inf
    draws = grid.sample(40_000, 0)
    np.testing.assert_allclose(draws.mean(0), [1.75, 2.0], atol=0.02)
    np.testing.assert_allclose(draws.var(0), [1 / 6 + 3 / 16, 1 / 6], atol=0.01)


# -- wavelets -------------------------------------------------------------------------------------


PARTS = [(3, "scaling"), (3, "wavelet"), (4, "wavelet"), (5, "wavelet")]


def test_the_functions_are_orthonormal():
    """Each function's coefficients are one at its own place, and zero elsewhere."""
    order = max(order_of(*part) for part in PARTS)
    for level, kind in PARTS:
        for k in (0, 2**level - 1):
            one = np.eye(2**level)[k]
            phi = synthesise(one, level, kind, order)
            for other, other_kind in PARTS:
                found = analyse(phi[: order_of(other, other_kind) + 1], other, other_kind)
                wanted = one if (other, other_kind) == (level, kind) else 0.0
                np.testing.assert_allclose(found, np.broadcast_to(wanted, found.shape), atol=1e-12)


def test_low_frequencies_are_recovered_exactly():
    rng = np.random.default_rng(0)
    order, most = order_of(5, "wavelet"), 20
    phi = np.zeros(order + 1, complex)
    phi[: most + 1] = rng.normal(size=most + 1) + 1j * rng.normal(size=most + 1)
    phi[0] = 1
    total = sum(
        synthesise(analyse(phi[: order_of(*part) + 1], *part), *part, order) for part in PARTS
    )
    np.testing.assert_allclose(total[: most + 1], phi[: most + 1], atol=1e-12)


@pytest.mark.parametrize("by_row", [False, True])
def test_variances_of_coefficients(by_row):
    """What a fit believes of its error is what fits to fresh data scatter by."""
    rng = np.random.default_rng(0)
    n, low, length = 300, np.array([-5.0]), np.array([10.0])
    scale = np.where(np.arange(n) % 2, 0.2, 0.6)[:, None] if by_row else np.full(1, 0.4)
    found, believed = [], []
    for _ in range(400):
        w = rng.normal(size=(n, 1)) + rng.laplace(0, scale, (n, 1))
        data = Observations(w, as_noise(laplace(scale), n, 1), weights=np.full(n, 1 / n))
        level = measure(data, low, length, 4, "wavelet")
        found.append(level.values)
        believed.append(level.variances)
    middle = slice(5, 11)
    np.testing.assert_allclose(
        np.mean(believed, 0)[middle], np.var(found, 0)[middle], rtol=0.35
    )  # 5 standard errors of a variance from 400 draws
