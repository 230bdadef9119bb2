"""Characteristic functions: closed forms against draws."""

import numpy as np
import pytest
import torch
from torch.distributions import Cauchy, Gumbel, Independent, Normal

from deconflow.noise import (
    from_law,
    gaussian,
    gaussian_mixture,
    laplace,
    same_for_all,
    split_normal,
    student_t,
    uniform,
)

FULL = np.array([[0.5, 0.2], [0.2, 0.3]])
TENSOR = torch.tensor([0.4, 0.9], dtype=torch.float64)


def gumbel(scale):
    return Gumbel(0 * scale, scale)


LAWS = {
    "gaussian": gaussian(sd=[0.4, 0.9]),
    "full gaussian": gaussian(covariance=FULL),
    "exact": gaussian(sd=[0.0, 0.0]),
    "laplace": laplace([0.4, 0.9]),
    "student": student_t([0.4, 0.9], df=3.0),
    "student of many degrees": student_t([0.4, 0.9], df=300.0),
    "uniform": uniform([0.4, 0.9]),
    "split normal": split_normal(lower=[0.3, 1.0], upper=[0.8, 0.2]),
    "mixture": gaussian_mixture([0.3, 0.7], [[0.5, -1], [0, 0.2]], [FULL, np.eye(2) * 0.1]),
    "cauchy": same_for_all(Cauchy(torch.zeros(2, dtype=torch.float64), TENSOR)),
    "independent": same_for_all(Independent(Normal(TENSOR, TENSOR), 1)),
}


@pytest.mark.parametrize("name", LAWS)
def test_what_every_characteristic_function_is(name):
    t = np.random.default_rng(0).normal(size=(50, 2)) * 3
    there, back = (LAWS[name].characteristic(s * t)[0] for s in (1, -1))
    np.testing.assert_allclose(there, back.conj(), atol=1e-9)
    assert np.abs(there).max() <= 1 + 1e-9
    assert LAWS[name].characteristic(np.zeros((1, 2)))[0, 0] == pytest.approx(1)


def test_laws_without_a_closed_form_are_refused():
    scale = np.array([[0.5], [2.0]])
    with pytest.raises(ValueError, match=r"closed form.*got a Gumbel"):
        from_law(gumbel, scale=scale).characteristic(np.ones((1, 1)))


def test_student_between_cauchy_and_normal():
    t = np.linspace(0.01, 4, 30)[:, None]
    one, many = (student_t([1.0], df).characteristic(t)[0] for df in (1.0, 1e4))
    np.testing.assert_allclose(one, np.exp(-t[:, 0]), rtol=1e-10)
    np.testing.assert_allclose(many, np.exp(-(t[:, 0] ** 2) / 2), atol=2e-4)


@pytest.mark.parametrize("df", [0.5, 1.0, 3.0, 30.0, 300.0, 3e3, 3e5])
def test_student_is_finite_and_falls(df):
    t = np.r_[0.0, np.geomspace(1e-200, 1e12, 500)]
    phi = student_t([1.0], df).characteristic(t[:, None])[0].real
    assert np.isfinite(phi).all()
    assert phi[0] == 1
    assert (np.diff(phi) <= 1e-12).all()
