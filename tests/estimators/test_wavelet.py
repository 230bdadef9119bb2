import classical_toys as toys
import numpy as np
import pytest
from scipy.stats import norm

from deconflow import WaveletDeconvolver, noise


def test_a_spike_on_a_wide_density_gets_wavelets_of_its_own():
    """What thresholding is for: without its wavelets the estimate is worse."""
    rng = np.random.default_rng(0)
    spike = rng.uniform(size=10_000) < 0.03
    v = np.where(spike, rng.normal(1, 0.05, 10_000), rng.normal(0, 2, 10_000))[:, None]
    w = v + rng.laplace(0, 0.1, v.shape)
    law = noise.laplace([0.1])

    def truth(x):
        return 0.03 * norm.pdf(x, 1, 0.05) + 0.97 * norm.pdf(x, 0, 2)

    model = WaveletDeconvolver().fit(w, noise=law)
    assert 0 < model.n_wavelets_ < 10
    linear = WaveletDeconvolver(level=model.level_).fit(w, noise=law)
    assert linear.n_wavelets_ == 0
    assert toys.squared_error(model, truth) < 0.7 * toys.squared_error(linear, truth)


def test_a_given_level_is_not_exceeded():
    w, law = toys.measure(500, 0)
    assert WaveletDeconvolver(level=3).fit(w, noise=law).level_ <= 3
    assert WaveletDeconvolver(level=1).fit(w, noise=law).level_ == 1


def test_a_hidden_density_is_said():
    w, _ = toys.measure(500, 0)
    with pytest.warns(UserWarning, match="The noise hides the density"):
        WaveletDeconvolver().fit(w, noise=[100.0])
