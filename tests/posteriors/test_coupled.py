"""Coupled chains against closed forms; a z of 4.5 is passed by chance once in 150,000."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from reference_posteriors import NoiseKernel

from deconflow import Observations
from deconflow.densities import StandardNormal
from deconflow.posteriors import SignedDraws, couple
from deconflow.posteriors.coupled import couple_choices

W, SD, N = 2.0, 1.5, 20_000
MEAN, VARIANCE = W / (1 + SD**2), SD**2 / (1 + SD**2)


def one_row_many_times(n=N):
    return Observations.from_arrays(np.full((n, 1), W), np.array([SD])).to()


def run(k, **options):
    # Proposals from the noise kernel know nothing of the prior: N(2, 1.5^2) for N(0.62, 0.83^2).
    return couple(StandardNormal(1).double(), NoiseKernel(), one_row_many_times(), k, **options)


def scores(found):
    """z of the first two moments against the posterior's."""
    moments = torch.cat([found.v, found.v.square()], 1)
    rows = found.expectation(moments)
    expected = torch.tensor([MEAN, MEAN**2 + VARIANCE], dtype=torch.float64)
    return (rows.mean(0) - expected) / rows.std(0) * len(rows) ** 0.5


@pytest.mark.parametrize(("burn_in", "steps"), [(0, 0), (0, 3), (2, 2), (2, 6)])
@pytest.mark.parametrize("k", [2, 5])
def test_expectations_have_no_bias(k, burn_in, steps):
    found = run(k, burn_in=burn_in, steps=steps)
    assert (scores(found).abs() < 4.5).all()
    ones = found.expectation(torch.ones_like(found.weights))
    assert torch.allclose(ones, torch.ones_like(ones))  # the weights of a row sum to one


def test_without_the_correction_the_bias_is_seen():
    found = run(2, burn_in=0, steps=3)
    plain = found.weights == 1 / 4  # the time average alone
    kept = SignedDraws(
        found.v[plain], found.weights[plain], found.rows[plain], found.meeting, found.log_marginal
    )
    assert (scores(kept).abs() > 10).any()


def test_maximal_coupling_keeps_both_laws_and_meets_as_often_as_can_be():
    p = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    q = torch.tensor([0.1, 0.6, 0.3], dtype=torch.float64)
    same_state = torch.tensor([False, True, True])
    n = 40_000
    i, j, together = couple_choices(p.expand(n, 3), q.expand(n, 3), same_state.expand(n, 3))
    for law, index in ((p, i), (q, j)):
        frequency = torch.bincount(index, minlength=3) / n
        assert ((frequency - law).abs() < 4.5 * (law * (1 - law) / n).sqrt()).all()
    assert (i == j)[together].all()
    assert abs(float(together.double().mean()) - 0.5) < 4.5 * 0.5 / n**0.5


def test_log_marginal_is_the_bound_of_the_first_draws():
    found = run(50, burn_in=0, steps=0)
    expected = torch.distributions.Normal(0.0, (1 + SD**2) ** 0.5).log_prob(torch.tensor(W))
    assert float(found.log_marginal.mean()) == pytest.approx(float(expected), abs=0.05)


def test_refusals(monkeypatch):
    usual = Observations.from_arrays(np.zeros((3, 1)), np.array([SD])).to()
    broken = replace(usual, w=usual.w + 1e200)
    with pytest.raises(FloatingPointError, match=r"finite weights .*got 3 rows"):
        couple(StandardNormal(1).double(), NoiseKernel(), broken, 2)
    monkeypatch.setattr("deconflow.posteriors.coupled.MOST_STEPS", 2)
    with pytest.raises(RuntimeError, match=r"meet within 2 steps; got .* rows"):
        run(2)
