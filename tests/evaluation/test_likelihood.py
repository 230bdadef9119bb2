import numpy as np
import pytest
import torch

from deconflow.densities import MixtureDensity
from deconflow.evaluation import estimate_log_likelihood
from deconflow.mixtures import GaussianMixture
from deconflow.noise import gaussian
from deconflow.observations import Observations
from deconflow.posteriors import RowsWithProposals
from deconflow.xd import lay_out, log_p

TRUTH = GaussianMixture(
    np.array([0.4, 0.6]),
    np.array([[-1.0, 0.0], [1.0, 1.0]]),
    np.array([np.diag([0.3, 1.0]), [[1.0, 0.5], [0.5, 0.6]]]),
)
OTHER = GaussianMixture(TRUTH.weights[::-1].copy(), TRUTH.means + 0.3, 1.3 * TRUTH.covariances)


def rows_of(kind):
    rng = np.random.default_rng(0)
    w = TRUTH.sample(300, 0) + 0.5 * rng.normal(size=(300, 2))
    if kind == "missing":
        w[::2, 1] = np.nan
    R = rng.normal(size=(300, 2, 2)) if kind == "projection" else None
    return Observations.from_arrays(w, gaussian(sd=[0.5, 0.5]), projection=R)


def density():
    parts = (torch.from_numpy(x) for x in (TRUTH.weights, TRUTH.means, TRUTH.covariances))
    return MixtureDensity(*parts)


def estimate(data, draws=256):
    return estimate_log_likelihood(
        density(), RowsWithProposals.of(data, OTHER, torch.float64), draws
    )


@pytest.mark.parametrize("kind", ["plain", "missing", "projection"])
def test_the_closed_form_is_met_within_its_errors(kind):
    data = rows_of(kind)
    found, exact = estimate(data), log_p(TRUTH, lay_out(data))
    apart = (found.log_p - exact) / found.error
    # Errors from eight repeats are t-distributed with 7 degrees of freedom: sd 1.18.
    assert 0.7 < apart.std() < 1.8
    assert abs(apart.mean()) < 0.4
    assert np.abs(found.log_p - exact).max() < 0.1
    assert not found.bias.any()  # it was taken off
    assert float(np.median(found.error)) < 0.01


def test_the_mixture_itself_has_no_error():
    data = rows_of("plain")
    rows = RowsWithProposals.of(data, TRUTH, torch.float64)
    found = estimate_log_likelihood(density(), rows, 64)
    np.testing.assert_allclose(found.log_p, log_p(TRUTH, lay_out(data)), atol=1e-6)
