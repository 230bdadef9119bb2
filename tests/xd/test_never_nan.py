"""Whatever the data, the answers are finite (or the error is clear)."""

import numpy as np
import pytest

from deconflow import XDGMM
from deconflow.noise import gaussian

RNG = np.random.default_rng(0)
W = RNG.normal(size=(40, 2))


def outlier(sigma):
    w = W.copy()
    w[0] = sigma
    return w


CASES = {
    "zero noise": (W, 0.0),
    "singular noise for all": (W, gaussian(covariance=[[1.0, 1.0], [1.0, 1.0]])),
    "singular noise by row": (W, np.tile([[1.0, 1.0], [1.0, 1.0]], (40, 1, 1))),
    "noise of 1e10": (W, 1e10),
    "noise of 1e10 in some rows": (W, np.where(np.arange(40)[:, None] % 3 == 0, [1e10, 1e10], 0.1)),
    "noise and values of 1e10 in some rows": (
        np.where(np.arange(40)[:, None] % 3 == 0, 1e10 * W, W),
        np.where(np.arange(40)[:, None] % 3 == 0, [1e10, 1e10], 0.1),
    ),
    "noise of 1e-12": (W, 1e-12),
    "noise of 1e-12 by row": (W, np.full((40, 2), 1e-12)),
    "noise from 1e-12 to 1e10": (W, np.geomspace(1e-12, 1e10, 80).reshape(40, 2)),
    "a row 1e6 sigma away": (outlier(1e6), 1.0),
    "a row 1e6 sigma away without noise": (outlier(1e6), 0.0),
    "a row 1e6 sigma away with tiny noise": (outlier(1.0), 1e-6),
    "duplicate rows": (np.repeat(W[:4], 10, axis=0), 0.0),
    "duplicate rows with noise": (np.repeat(W[:4], 10, axis=0), 0.1),
    "all rows the same": (np.ones((40, 2)), 0.0),
    "all rows zero": (np.zeros((40, 2)), 0.0),
    "one constant column": (W * [1.0, 0.0], 0.0),
    "more components than rows": (W[:3], 0.1),
    "one row": (W[:1], 0.5),
    "one row without noise": (W[:1], 0.0),
    "one dimension": (W[:, :1], 0.3),
    "one dimension without noise": (W[:, :1], 0.0),
    "collinear rows": (W[:, :1] * [1.0, 2.0], 0.0),
    "tiny units": (W * 1e-150, 1e-151),
    "huge units": (W * 1e150, 1e149),
    "far from zero": (W + 1e9, 0.1),
    "a column nearly always missing": (
        np.where((np.arange(40)[:, None] > 1) & [False, True], np.nan, W), 0.1,
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize("method", ["anderson", "em", "minibatch"])
@pytest.mark.parametrize("name", CASES)
def test_answers_are_finite(name, method):
    w, noise = CASES[name]
    how = {"minibatch": {"epochs": 5}} if method == "minibatch" else method
    model = XDGMM(5, method=how, max_iter=100, random_state=0).fit(w, noise=noise)
    answers = [
        model.weights_, model.means_, model.covariances_, model.lower_bounds_,
        model.score_observations(w, noise=noise), model.predict_proba(w, noise=noise),
        model.posterior(w, noise=noise).mean, model.posterior(w, noise=noise).covariance,
        model.score_samples(np.where(np.isnan(w), 0.0, w)), model.sample(10, random_state=0),
    ]  # fmt: skip
    for answer in answers:
        assert np.isfinite(answer).all()
    assert model.weights_.sum() == pytest.approx(1.0)
    np.linalg.cholesky(model.covariances_)
    if method != "minibatch":
        # Components collapse to a condition number of 1e11 here, which leaves five digits.
        assert np.diff(model.lower_bounds_).min(initial=0.0) >= -1e-4


def test_an_empty_component_stays_empty():
    start = {
        "weights": [0.5, 0.5],
        "means": [[0.0, 0.0], [1e8, 1e8]],
        "covariances": np.stack([np.eye(2), 1e-6 * np.eye(2)]),
    }
    model = XDGMM(2, init=start).fit(W, noise=0.1)
    assert model.weights_.tolist() == [1.0, 0.0]
    assert np.isfinite(model.score_samples(W)).all()
    assert np.isfinite(model.posterior(W, noise=0.1).mean).all()
