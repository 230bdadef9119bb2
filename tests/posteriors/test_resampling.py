"""Weighted draws: averages in the precision of the weights."""

import numpy as np
import pytest
import torch

from deconflow.posteriors import WeightedDraws


def test_moments_and_sizes_are_those_of_numpy():
    torch.manual_seed(0)
    v, log_weights = torch.randn(50, 4, 2, dtype=torch.float64), torch.randn(50, 4).double()
    draws = WeightedDraws(v, log_weights)
    for row in range(4):
        p = np.exp(log_weights[:, row].numpy())
        points = v[:, row].numpy()
        np.testing.assert_allclose(draws.mean()[row], np.average(points, axis=0, weights=p))
        np.testing.assert_allclose(
            draws.covariance()[row], np.cov(points.T, aweights=p, ddof=0), rtol=1e-10
        )
        # The logarithm of a count is no float32: that would be off by 6e-8.
        assert float(draws.log_marginal()[row]) == pytest.approx(np.log(p.mean()), abs=1e-12)
        size = p.sum() ** 2 / np.square(p).sum()
        assert float(draws.effective_sample_size()[row]) == pytest.approx(size)
