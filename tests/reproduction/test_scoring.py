"""Scores of models, good and bad."""

import math

import numpy as np
import pytest

from deconflow import FlowDeconvolver
from deconflow.reproduction.data import BLURRED, TEST_POINT, TOY_NOISE, TRUTH, exact_posterior, toy
from deconflow.reproduction.scoring import noisy_score, posterior_draws, toy_scores


class Truth:
    """An estimator that knows the toy."""

    def score_samples(self, v):
        return TRUTH.log_prob(v)

    def score_observations(self, w, noise, n_samples):
        return BLURRED.log_prob(w)


class Exploded(Truth):
    def __init__(self, message):
        self.message = message

    def score_observations(self, w, noise, n_samples):
        raise ValueError(self.message)


def test_the_truth_scores_as_the_truth():
    scores = toy_scores(Truth(), toy(10, 500), 100)
    assert scores["minus_log_p_v"] == scores["truth_v"]
    assert scores["minus_log_p_w"] == scores["truth_w"]


def test_a_row_out_of_reach_is_infinite_and_other_errors_are_errors():
    row = np.zeros((1, 2))
    far = Exploded("Expected measurements that the model can reach; got row 0.")
    assert noisy_score(far, row, TOY_NOISE, 100) == math.inf
    with pytest.raises(ValueError, match="something else"):
        noisy_score(Exploded("something else"), row, TOY_NOISE, 100)


def test_draws_of_the_posterior_are_those_that_the_paper_shows(rng):
    """Of the ELBO the recognition network's own; of importance weighting, resampled by weight."""
    w = toy(400, 1).train.w
    small = {"hidden": 8, "n_layers": 1, "posterior_layers": 1, "epochs": 1, "random_state": 0}
    mixture = {"flow": "gaussian_mixture", "base_components": 3}
    options = {**small, **mixture, "posterior_family": "exact", "objective": "elbo"}
    model = FlowDeconvolver(**options).fit(w, noise=TOY_NOISE)
    z = (TRUTH.means - model.standardiser_.location.numpy()) / model.standardiser_.scale.numpy()
    model.density_.density.means.data[:] = model.density_.density.means.new_tensor(z)
    draws = posterior_draws(model, TEST_POINT, TOY_NOISE, 4000)
    weighted = model.set_params(objective="iw")
    again = posterior_draws(weighted, TEST_POINT, TOY_NOISE, 4000)
    assert draws.shape == again.shape == (4000, 2)
    assert draws.mean(0) == pytest.approx(again.mean(0), abs=0.15)  # exact: weights are all equal
    assert exact_posterior(TEST_POINT).mean.shape == (1, 2)
