from dataclasses import replace

import numpy as np
import pytest
import torch
from reference_posteriors import LinearGaussian, NoiseKernel
from torch.distributions import MultivariateNormal

from deconflow import Observations
from deconflow.densities import Architecture, StandardNormal
from deconflow.noise import laplace, split_normal, student_t, uniform
from deconflow.posteriors import RecognitionFlow, SignedDraws, couple, weigh
from deconflow.posteriors.coupled import couple_choices

N, D = 6, 3
SMALL = Architecture(layers=2, hidden=16, blocks=1)


def observations(kind, rng):
    """Observations of every kind that a posterior must understand."""
    w = rng.normal(size=(N, D))
    root = rng.normal(size=(N, D, D))
    covariance = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(D)
    sd = rng.uniform(0.2, 1, size=(N, D))
    holes = w.copy()
    holes[[0, 2, 2, 5], [0, 1, 2, 2]] = np.nan
    projection = rng.normal(size=(N, D, 4))
    made = {
        "shared": (w, covariance[0], None),
        "diagonal": (w, sd, None),
        "full": (w, covariance, None),
        "missing": (holes, covariance, None),
        "projected": (w, covariance, projection),
        "both": (holes, covariance, projection),
        "student": (w, student_t(sd, 4.0), None),
        "laplace": (holes, laplace(sd), None),
        "split": (w, split_normal(sd, 2 * sd), None),
        "uniform": (w, uniform(sd), None),
    }[kind]
    return Observations.from_arrays(made[0], made[1], projection=made[2]).to()


GAUSSIAN = ["shared", "diagonal", "full", "missing", "projected", "both"]
every_kind = pytest.mark.parametrize("kind", [*GAUSSIAN, "student", "laplace", "split", "uniform"])


def shaken(posterior, size=0.2):
    with torch.no_grad():
        for parameter in posterior.parameters():
            parameter.add_(size * torch.randn_like(parameter))
    return posterior.double()


def recognition(data, **options):
    return shaken(RecognitionFlow(data.latent_dim, data.features().shape[1], SMALL, **options))


def dense_joint(data, row):
    """Mean and covariance of (v, w_observed) for v ~ N(0, I), and what was observed."""
    R = torch.eye(D, dtype=torch.float64) if data.projection is None else data.projection[row]
    seen = torch.ones(D, dtype=torch.bool) if data.observed is None else data.observed[row]
    S = data.noise.covariance()[0 if data.noise.shared else row]
    return R[seen], S[seen][:, seen], data.w[row][seen]


@pytest.mark.parametrize("kind", GAUSSIAN)
def test_linear_gaussian_is_bayes_rule(kind, rng):
    data = observations(kind, rng)
    v = torch.randn(4, N, data.latent_dim, dtype=torch.float64)
    found = LinearGaussian().log_prob(data, v)
    for row in range(N):
        R, S, w = dense_joint(data, row)
        gain = R.mT @ torch.linalg.inv(R @ R.mT + S)
        covariance = torch.eye(data.latent_dim) - gain @ R
        expected = MultivariateNormal(gain @ w, 0.5 * (covariance + covariance.mT))
        assert torch.allclose(found[:, row], expected.log_prob(v[:, row]), atol=1e-8)


@every_kind
def test_recognition_starts_at_the_linear_gaussian(kind, rng):
    """One that is not anchored does not."""
    data = observations(kind, rng)
    if data.noise.support_map() is not None:
        return
    v, log_q = LinearGaussian().sample(data, 20)
    apart = {}
    for anchored in (True, False):
        fresh = RecognitionFlow(
            data.latent_dim, data.features().shape[1], SMALL, anchored=anchored
        ).double()
        with torch.no_grad():
            apart[anchored] = float((log_q - fresh.log_prob(data, v)).abs().mean())
    assert apart[True] < 1e-6
    assert apart[False] > 0.2


def test_bounded_noise_keeps_the_truth_in_reach(rng):
    data = observations("uniform", rng).to(dtype=torch.float32)
    v, log_q = recognition(data).float().sample(data, 2000)
    assert data.log_likelihood(v).isfinite().all()
    assert log_q.isfinite().all()


def test_resampling_gives_the_exact_posterior(rng):
    # One row whose posterior is a known Gaussian, proposals from the much wider noise kernel.
    data = Observations.from_arrays([[1.5, -0.5]], np.array([1.0, 2.0])).to()
    draws = weigh(StandardNormal(2).double(), NoiseKernel(), data, 200_000)
    mean = torch.tensor([1.5 / 2, -0.5 / 5], dtype=torch.float64)
    variance = torch.tensor([0.5, 0.8], dtype=torch.float64)
    size = float(draws.effective_sample_size())
    error = 5 / np.sqrt(size)
    assert 10_000 < size < 200_000
    assert torch.allclose(draws.mean()[0], mean, atol=error)
    assert torch.allclose(draws.covariance()[0], torch.diag(variance), atol=2 * error)
    again = draws.resample(20_000)[:, 0]
    assert torch.allclose(again.mean(0), mean, atol=5 / np.sqrt(8_000))
    proposals = draws.v[:, 0].mean(0)  # the negative twin: without weights the mean is w
    assert not torch.allclose(proposals, mean, atol=5 / np.sqrt(8_000))


# -- coupled chains against closed forms; a z of 4.5 is passed by chance once in 150,000 ----------


W, SD, MANY = 2.0, 1.5, 20_000
MEAN, VARIANCE = W / (1 + SD**2), SD**2 / (1 + SD**2)


def one_row_many_times(n=MANY):
    return Observations.from_arrays(np.full((n, 1), W), np.array([SD])).to()


def run(k, **options):
    # Proposals from the noise kernel know nothing of the prior: N(2, 1.5^2) for N(0.62, 0.83^2).
    return couple(StandardNormal(1).double(), NoiseKernel(), one_row_many_times(), k, **options)


def scores(found):
    """z of the first two moments against the posterior's."""
    rows = found.expectation(torch.cat([found.v, found.v.square()], 1))
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
