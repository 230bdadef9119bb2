import numpy as np

from deconflow.xd.kernel.passes import exp_rows, log_rows


def test_exp_is_exact_to_two_units_in_the_last_place():
    x = np.concatenate([np.linspace(-700, 0, 100_000), [-1e-300, 0.0]])
    ours = x.copy()
    exp_rows(ours, np.empty_like(x), len(x))
    np.testing.assert_allclose(ours, np.exp(x), rtol=5e-16)


def test_exp_of_very_negative_numbers_is_tiny_not_nan():
    x = np.array([-1e300, -np.inf, -800.0])
    exp_rows(x, np.empty_like(x), len(x))
    assert (x >= 0).all()
    assert (x < 1e-300).all()


def test_log_is_exact_to_two_units_in_the_last_place():
    x = np.concatenate([np.geomspace(1e-300, 1e300, 100_000), np.linspace(0.5, 2, 10_001)])
    ours = x.copy()
    log_rows(ours, np.empty_like(x), len(x))
    np.testing.assert_allclose(ours, np.log(x), rtol=5e-16, atol=3e-16)
