"""Likelihood of rows with open errors: against differences, and against the law written out."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from deconflow import GaussianMixture
from deconflow.errors import learn
from deconflow.errors.likelihood import ErrorRows, Layout, look

COUNTS = [1, 1, 2, 3, 1, 4, 1, 1, 2]
MIXTURE = GaussianMixture(
    np.array([0.3, 0.7]),
    np.array([[-0.5, 0.2], [0.6, 0.1]]),
    np.array([[[1.0, 0.2], [0.2, 0.5]], [[0.3, -0.1], [-0.1, 0.6]]]),
)


def rows(*, missing=True, dim=2):
    rng = np.random.default_rng(0)
    n = sum(COUNTS)
    seen = np.ones((n, dim), bool)
    if missing:
        seen[[0, 3, 9], 0] = seen[[1, 5], 1] = False
    sd = rng.uniform(0.3, 1.0, (n, dim))
    said = np.where(seen, sd**2, 0.0)[:, :, None] * np.eye(dim)
    first = np.r_[0, np.cumsum(COUNTS)[:-1]]
    w = np.where(seen, rng.normal(size=(n, dim)), 0.0)
    return ErrorRows(w, seen, said, rng.integers(0, 3, n), first, np.ones(len(first)))


@pytest.mark.parametrize("correlation", [True, False])
def test_scores_are_the_slopes(monkeypatch, correlation):
    monkeypatch.setattr(learn, "NARROWEST", 0.0)  # it widens whatever takes a step
    data, layout = rows(), Layout(2, True, True, correlation, 3)
    theta = np.r_[0.1, -0.2, 0.05, 0.02, [0.3] * correlation, 0.1, 0.2, -0.1, 0.05]
    scores = look(data, layout, theta, MIXTURE).scores().sum(0)
    found = np.empty_like(scores)
    for j in range(len(scores)):
        step = np.zeros(len(scores))
        step[j] = 1e-6
        ends = [
            look(
                data, layout, theta + s[: layout.size], learn.moved(MIXTURE, s[layout.size :])
            ).log_likelihood
            for s in (step, -step)
        ]
        found[j] = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(found, scores, rtol=1e-5, atol=1e-5)


def test_rows_of_an_object_share_its_truth():
    """Stacked, they are one Gaussian whose blocks beside the diagonal are the truth's."""
    data, layout = rows(missing=False), Layout(2, True, True, True, 3)
    theta = np.array([0.1, -0.2, 0.05, 0.02, 0.3, 0.1, 0.2, -0.1, 0.05])
    values = layout.values(theta)
    one = GaussianMixture(np.ones(1), MIXTURE.means[:1], MIXTURE.covariances[:1])
    found = look(data, layout, theta, one).log_p
    assert values.shifts.sum(0) == pytest.approx(0, abs=1e-12)
    for j, first in enumerate(data.first):
        mine = slice(first, first + COUNTS[j])
        y = data.w[mine] - values.shifts[data.group[mine]]
        variance = np.einsum("nii->ni", data.said[mine]) * values.scale**2 + values.jitter**2
        errors = np.sqrt(variance)
        whole = np.kron(np.ones((COUNTS[j],) * 2), one.covariances[0])
        for r, sd in enumerate(errors):
            here = slice(2 * r, 2 * r + 2)
            whole[here, here] += np.outer(sd, sd) * values.correlation
        law = multivariate_normal(np.tile(one.means[0], COUNTS[j]), whole)
        assert found[j] == pytest.approx(law.logpdf(y.ravel()), abs=1e-8)


def test_missing_values_say_nothing():
    """Whatever stands there, and however large its error is said to be."""
    data, layout = replace(rows(), group=None), Layout(2, True, False, False, 0)
    one = look(data, layout, np.zeros(2), MIXTURE)
    single = GaussianMixture(np.ones(1), np.zeros((1, 2)), np.eye(2)[None])
    alone = look(data, layout, np.zeros(2), single).log_p[0]  # its first column is missing
    expected = multivariate_normal(0, 1 + data.said[0, 1, 1]).logpdf(data.w[0, 1])
    idle = -0.5 * np.log(2 * np.pi * 1e12)
    assert alone - idle == pytest.approx(expected, abs=1e-6)
    assert (one.scores()[0, 0], one.scores()[1, 1]) == (0, 0)


def test_impossible_correlations_are_brought_back():
    layout = Layout(3, False, False, True, 0)
    found = layout.values(layout.feasible(np.array([0.9, 0.9, -0.9]))).correlation
    assert np.linalg.eigvalsh(found)[0] > 0
    kept = np.array([0.5, 0.2, -0.3])
    np.testing.assert_array_equal(layout.feasible(kept), kept)
