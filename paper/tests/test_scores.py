"""Scores of models, good and bad."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from deconflow import Observations
from deconflow.estimators import OutOfReachError
from paper.data import BLURRED, TEST_POINT, TOY_NOISE, TRUTH, Rows, Sample, toy
from paper.flows import noisy_score, posterior_draws, rates, toy_scores, untrained, wine_scores

SMALL = {"hidden": 8, "n_layers": 1, "posterior_layers": 1, "n_blocks": 1}


class Model:
    """An estimator that knows the toy, or that fails."""

    def __init__(self, error=None):
        self.error, self.density_ = error, self

    def log_marginal(self, rows, n_draws):
        if self.error:
            raise self.error
        return SimpleNamespace(log_p=BLURRED.log_prob(rows.w))


def test_the_truth_scores_as_the_truth():
    sample = toy(10, 500)
    w = noisy_score(Model(), sample.test.w, sample.noise, 100)
    scores = toy_scores(TRUTH.log_prob(sample.test.v), w, sample)
    assert scores["minus_log_p_v"] == scores["truth_v"]
    assert scores["minus_log_p_w"] == scores["truth_w"]


class Known:
    """A model whose density of a row is the row's first number."""

    density_ = SimpleNamespace(log_prob=lambda v: v[:, 0])


def test_a_wine_is_scored_on_three_kinds_of_rows():
    fitted, held_out = np.array([[1.0], [2.0], [6.0]]), np.array([[2.0], [4.0]])
    sample = Sample(Rows(fitted, fitted), Rows(held_out, held_out), np.ones(1))
    assert wine_scores(Known(), 7.0, sample) == {
        "minus_log_p_v": -3.0, "minus_log_p_w": 7.0, "minus_log_p_v_without_copy": -4.0,
        "minus_log_p_v_fitted": -3.0, "share_without_copy": 0.5,
    }  # fmt: skip


def test_learning_rates_are_told_where_they_change():
    assert rates([1e-3, 1e-3, 8e-4, 8e-4, 8e-4, 6.4e-4]) == {"0": 1e-3, "2": 8e-4, "5": 6.4e-4}
    assert rates([]) == {}


def test_a_row_out_of_reach_is_infinite_and_other_errors_are_errors():
    row = np.zeros((1, 2))
    assert noisy_score(Model(OutOfReachError()), row, TOY_NOISE, 100) == math.inf
    with pytest.raises(ValueError, match="something else"):
        noisy_score(Model(ValueError("something else")), row, TOY_NOISE, 100)


def test_draws_of_the_posterior_are_those_that_the_paper_shows():
    """Of the ELBO the recognition network's own; of importance weighting, resampled by weight."""
    w = toy(400, 1).train.w
    mixture = {"flow": "gaussian_mixture", "base_components": 3}
    settings = {**SMALL, **mixture, "posterior_family": "exact", "objective": "elbo"}
    model = untrained(settings, Observations.from_arrays(w, TOY_NOISE), 0)
    z = (TRUTH.means - model.units.location) / model.units.scale
    model.prior.means.data[:] = model.prior.means.new_tensor(z)
    draws = posterior_draws(model, TEST_POINT, TOY_NOISE, 4000)
    weighted = replace(model, settings=settings | {"objective": "iw"})
    again = posterior_draws(weighted, TEST_POINT, TOY_NOISE, 4000)
    assert draws.shape == again.shape == (4000, 2)
    assert draws.mean(0) == pytest.approx(again.mean(0), abs=0.15)  # exact: weights are all equal


def test_a_model_that_cannot_reach_a_row_says_so():
    rows = Observations.from_arrays(toy(200, 1).train.w, TOY_NOISE)
    model = untrained({**SMALL, "flow": "gaussian_mixture"}, rows, 0)
    assert noisy_score(model, np.full((1, 2), 1e25), TOY_NOISE, 8) == math.inf
