from dataclasses import replace

import numpy as np
import pytest
import torch

from deconflow import Certificate, GaussianMixture, Observations
from deconflow.densities import MixtureDensity
from deconflow.evaluation import certify, estimate_log_likelihood, pareto_k
from deconflow.noise import gaussian
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


# -- pareto ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0.3, 0.7, 1.2])
def test_the_shape_of_pareto_weights_is_found(k):
    """Weights u^-k have a Pareto tail of shape k; medians over 200 columns of 2,000 draws."""
    u = torch.rand(2000, 200, dtype=torch.float64)
    found = pareto_k(-k * u.log())
    # The estimate is drawn towards one half by ten draws' worth of prior, of 134 in the tail.
    wanted = (134 * k + 5) / 144
    assert float(found.median()) == pytest.approx(wanted, abs=0.05)


def test_bounded_weights_have_a_light_tail():
    assert float(pareto_k(torch.rand(2000, 50, dtype=torch.float64)).max()) < 0.5


def test_few_draws_are_refused():
    with pytest.raises(ValueError, match="at least 25 draws"):
        pareto_k(torch.zeros(20, 3))


# -- certificate ----------------------------------------------------------------------------------


GOOD = Certificate(-3.0, 0.01, 0.1, 0.01, (0.4, 0.6), (0.3, 0.6), (0.1, 0.0), 0.01, 0.001)


def mixture_at(place):
    return GaussianMixture(np.ones(1), np.full((1, 2), place), 0.2 * np.eye(2)[None])


def certificate(proposing, seed=0):
    truth = mixture_at(0.0)
    rng = np.random.default_rng(seed)
    w = truth.sample(200, 0) + rng.normal(size=(200, 2))
    data = Observations.from_arrays(w, [1.0, 1.0])
    parts = (torch.from_numpy(x) for x in (truth.weights, truth.means, truth.covariances))
    held_out = Certificate(-2.0, 0.01)
    return certify(MixtureDensity(*parts), proposing, data, held_out, draws=128, refresh_rate=None)


def test_good_proposals_are_trusted():
    found = certificate(mixture_at(0.0))
    assert found.trusted
    assert found.efficiency[1] > 0.7
    assert 0 < found.gap < 0.01
    assert found.held_out == pytest.approx(-2.0, abs=0.03)
    assert "No reason for doubt" in found.in_words()


def test_bad_proposals_are_not():
    """The negative twin: a mixture that proposes far from where the density is."""
    narrow = GaussianMixture(np.ones(1), np.full((1, 2), 6.0), 1e-3 * np.eye(2)[None])
    found = certificate(narrow)
    assert not found.trusted
    assert "CAUTION" in found.in_words()
    assert found.efficiency[1] < 0.2


BAD = {
    "sample size": {"efficiency": (0.001, 0.01)},
    "heavy tail": {"pareto_k": (0.5, 0.3), "efficiency": (0.05, 0.3)},
    "differ by": {"gap": 0.5},
    "moved at under": {"refresh_rate": (0.01, 0.3)},
}


@pytest.mark.parametrize(("words", "change"), BAD.items(), ids=BAD)
def test_every_fault_is_said_in_words(words, change):
    assert GOOD.trusted
    (warning,) = replace(GOOD, **change).warnings
    assert words in warning
