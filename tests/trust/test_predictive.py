"""Simulated measurements compared with real ones: a perfect model is seldom doubted."""

import numpy as np
from scipy.stats import kstest

from deconflow import Observations
from deconflow.trust import predictive_ranks, simulate_like, table

DATA_SETS, ROWS, DRAWS = 300, 2000, 19


def perfect(n, seed):
    """The true values: standard normal."""
    return np.random.RandomState(seed).normal(size=(n, 1))


def too_wide(n, seed):
    """The negative twin."""
    return 1.5 * perfect(n, seed)


def p_values(sample, data_sets=DATA_SETS):
    p = []
    for seed in range(data_sets):
        rng = np.random.default_rng(seed + 1000)
        sd = rng.uniform(0.2, 1.0, size=(ROWS, 1))
        w = rng.normal(size=(ROWS, 1)) + sd * rng.normal(size=(ROWS, 1))
        ranks = predictive_ranks(sample, Observations.from_arrays(w, sd), DRAWS, seed)
        p.append(kstest(ranks[:, 0], "uniform").pvalue)
    return np.array(p)


def test_false_alarms_are_as_rare_as_the_p_value_says():
    p = p_values(perfect)
    assert (p < 0.01).sum() <= 8  # 3 are expected, and 15
    assert 6 <= (p < 0.05).sum() <= 26
    assert (p_values(too_wide, 5) < 0.01).all()


def test_rows_in_pieces(monkeypatch):
    """Ranks are uniform whatever is simulated at once, and missing where the value is."""
    monkeypatch.setattr(table, "ROWS_AT_ONCE", 7 * ROWS)
    w = np.random.default_rng(0).normal(size=(ROWS, 2)) * np.sqrt(2.0)
    w[3, 0] = np.nan
    data = Observations.from_arrays(w, 1.0)
    ranks = predictive_ranks(lambda n, seed: perfect(2 * n, seed).reshape(n, 2), data)
    assert np.isnan(ranks[3]).tolist() == [True, False]
    assert kstest(np.delete(ranks[:, 0], 3), "uniform").pvalue > 0.05
    (simulated,) = simulate_like(lambda n, seed: np.zeros((n, 2)), data)
    assert np.isnan(simulated[3]).tolist() == [True, False]
