"""Simulated measurements held against real ones: a perfect model is seldom doubted."""

import numpy as np
from scipy.stats import kstest

from deconflow.evaluation import predictive, predictive_ranks, simulate_like
from deconflow.noise import as_noise

DATA_SETS, ROWS, DRAWS = 300, 2000, 19


class Perfect:
    """A model that knows the truth: standard normal."""

    def sample(self, n, random_state):
        return np.random.RandomState(random_state).normal(size=(n, 1))


class TooWide(Perfect):
    """The negative twin."""

    def sample(self, n, random_state):
        return 1.5 * super().sample(n, random_state)


def p_values(model, data_sets=DATA_SETS):
    found = []
    for seed in range(data_sets):
        rng = np.random.default_rng(seed + 1000)
        sd = rng.uniform(0.2, 1.0, size=(ROWS, 1))
        w = rng.normal(size=(ROWS, 1)) + sd * rng.normal(size=(ROWS, 1))
        noise = as_noise(sd, ROWS, 1)
        ranks = predictive_ranks(model, w, noise, n_draws=DRAWS, random_state=seed)
        found.append(kstest(ranks[:, 0], "uniform").pvalue)
    return np.array(found)


def test_false_alarms_are_as_rare_as_the_p_value_says():
    p = p_values(Perfect())
    assert (p < 0.01).sum() <= 8  # 3 are expected, and 15
    assert 6 <= (p < 0.05).sum() <= 26


def test_a_model_that_is_wrong_is_doubted():
    assert (p_values(TooWide(), 5) < 0.01).all()


def test_rows_in_pieces(monkeypatch):
    """Ranks are uniform whatever is simulated at once, and missing where the value is."""
    monkeypatch.setattr(predictive, "ROWS_AT_ONCE", 7 * ROWS)
    w = np.random.default_rng(0).normal(size=(ROWS, 1)) * np.sqrt(2.0)
    w[3] = np.nan
    ranks = predictive_ranks(Perfect(), w, as_noise(1.0, ROWS, 1))
    assert np.isnan(ranks[3, 0])
    seen = ~np.isnan(ranks[:, 0])
    assert kstest(ranks[seen, 0], "uniform").pvalue > 0.05
    assert np.isnan(simulate_like(Perfect(), w, as_noise(1.0, ROWS, 1))[3, 0])
