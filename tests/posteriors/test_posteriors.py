import numpy as np
import pytest
import torch
from reference_posteriors import LinearGaussian, NoiseKernel
from torch.distributions import MultivariateNormal

from deconflow import Observations
from deconflow.densities import Architecture, StandardNormal
from deconflow.noise import laplace, split_normal, student_t, uniform
from deconflow.posteriors import RecognitionFlow, weigh

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
    exact = LinearGaussian()
    v, log_q = exact.sample(data, 20)
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
