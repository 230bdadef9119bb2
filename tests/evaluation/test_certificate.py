from dataclasses import replace

import numpy as np
import pytest
import torch

from deconflow.certificate import Certificate
from deconflow.densities import MixtureDensity
from deconflow.evaluation import certify
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations

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
