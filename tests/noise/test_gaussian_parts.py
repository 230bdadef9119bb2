import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Gumbel, MultivariateNormal

from deconflow import XDGMM, noise
from deconflow.noise import gaussian_parts
from deconflow.observations import Observations
from deconflow.xd import fit as xd_fit

X = np.linspace(-40, 40, 40_001)


def density(parts):
    """Density of the first value's mixture on the grid."""
    joint = parts.take()
    sd = np.sqrt(joint.covariances[0].reshape(len(joint.weights[0]), -1)[:, 0])
    means = np.zeros_like(sd) if joint.means is None else joint.means[0, :, 0]
    return (joint.weights[0] * stats.norm.pdf(X[:, None], means, sd)).sum(1)


def divergence(p, q):
    log_p, log_q = (np.log(np.maximum(density, 1e-300)) for density in (p, q))
    return np.sum(p * (log_p - log_q)) * (X[1] - X[0])


LAWS = {
    "student_t": (noise.student_t([0.5], df=3.0), stats.t(3, scale=0.5), 1e-3),
    "heavy student_t": (noise.student_t([0.5], df=1.5), stats.t(1.5, scale=0.5), 1e-2),
    "laplace": (noise.laplace([0.7]), stats.laplace(scale=0.7), 1e-4),
    "uniform": (noise.uniform([2.0]), stats.uniform(-2, 4), 0.015),
    "gumbel": (Gumbel(torch.zeros(1), torch.ones(1)), stats.gumbel_r(), 0.01),
}


@pytest.mark.parametrize("name", LAWS)
def test_one_dimensional_laws_are_close(name):
    law, truth, bar = LAWS[name]
    law = noise.as_noise(law, 1, 1)
    p = truth.pdf(X)
    near = divergence(p, density(law.as_mixture()))
    assert near < bar
    gaussian = stats.norm.pdf(X, truth.median(), np.diff(truth.ppf([0.16, 0.84]))[0] / 2)
    assert divergence(p, gaussian) > 3 * near  # the negative twin


def test_asymmetric_error_bars_by_row():
    lower, upper = np.array([[0.5], [1.0]]), np.array([[1.5], [1.0]])
    law = noise.split_normal(lower=lower, upper=upper)
    parts = law.as_mixture().take()
    means = (parts.weights[..., None] * parts.means).sum(1)
    np.testing.assert_allclose(means, law.mean().numpy(), atol=0.02)
    scale = np.where(X < 0, 1.5, 0.5)  # w + 1.5 - 0.5: the noise is wide on its negative side
    p = np.exp(-0.5 * (X / scale) ** 2) * np.sqrt(2 / np.pi) / 2.0
    assert divergence(p, density(law.as_mixture())) < 1e-3
    assert divergence(p, density(law.as_mixture())[::-1]) > 0.1  # the other way round is wrong


def test_asymmetric_error_bars_of_very_many_rows():
    rng = np.random.default_rng(0)
    lower, upper = rng.uniform(0.2, 1, (2, 12_000, 2))
    v = rng.normal(size=(12_000, 2))
    w = v + noise.split_normal(lower=lower, upper=upper).sample(1)[0].numpy()
    model = XDGMM(1).fit(w, noise=noise.split_normal(lower=lower, upper=upper))
    np.testing.assert_allclose(model.means_[0], 0.0, atol=0.04)
    np.testing.assert_allclose(model.covariances_[0], np.eye(2), atol=0.05)


def test_mixtures_and_normals_are_themselves():
    mixture = noise.gaussian_mixture(
        [0.3, 0.7], [[0.0, 0.0], [1.0, 2.0]], [np.eye(2), 0.5 * np.eye(2)]
    )
    parts = mixture.as_mixture()
    np.testing.assert_allclose(parts.means[0], [[0.0, 0.0], [1.0, 2.0]])
    np.testing.assert_allclose(parts.covariances[0, 1], 0.5 * np.eye(2), atol=1e-12)
    S = torch.tensor([[1.0, 0.3], [0.3, 2.0]], dtype=torch.float64)
    normal = noise.same_for_all(MultivariateNormal(torch.zeros(2, dtype=torch.float64), S))
    np.testing.assert_allclose(normal.as_mixture().covariances[0, 0], S, atol=1e-12)


def test_a_law_over_rows_is_fitted_to_draws():
    wide = MultivariateNormal(torch.zeros(2), torch.eye(2))
    ring = torch.distributions.TransformedDistribution(
        wide, [torch.distributions.transforms.AffineTransform(0.0, 2.0, event_dim=1)]
    )

    class Named(torch.distributions.Distribution):
        """Neither a normal nor a mixture to those who look at its type."""

        arg_constraints = {}

        def __init__(self):
            super().__init__(torch.Size([1]), torch.Size([2]), validate_args=False)

        def sample(self, shape=()):
            return ring.sample((*shape, 1))

        def log_prob(self, value):
            return ring.log_prob(value)

    parts = noise.from_law(Named, shared=True).as_mixture()
    joint = parts.take()
    covariance = np.einsum("j,jab->ab", joint.weights[0], joint.covariances[0]) + np.einsum(
        "j,ja,jb->ab", joint.weights[0], joint.means[0], joint.means[0]
    )
    np.testing.assert_allclose(covariance, 4 * np.eye(2), atol=0.2)


def test_missing_values_under_a_law():
    rng = np.random.default_rng(0)
    v = rng.normal(size=(4000, 2))
    w = v + rng.laplace(size=v.shape) * 0.5
    w[::3, 0] = np.nan
    model = XDGMM(1).fit(w, noise=noise.laplace([0.5, 0.5]))
    np.testing.assert_allclose(model.covariances_[0], np.eye(2), atol=0.1)
    assert np.isfinite(model.score_observations(w, noise=noise.laplace([0.5, 0.5]))).all()
    assert np.isfinite(model.posterior(w[:99], noise=noise.laplace([0.5, 0.5])).mean).all()


def moments(parts):
    """Mean and variance of each value, ``(N or 1, M)``."""
    means = np.zeros(parts.covariances.shape) if parts.means is None else parts.means
    mean = np.einsum("nj,njm->nm", parts.weights, means)
    second = np.einsum("nj,njm->nm", parts.weights, parts.covariances + means**2)
    return mean, second - mean**2


def test_very_many_laws_of_their_own():
    def gumbel(scale):
        return Gumbel(torch.zeros_like(scale), scale)

    scale = np.linspace(0.5, 3, 20_001)[:, None]
    mean, variance = moments(noise.from_law(gumbel, scale=scale).as_mixture().take())
    np.testing.assert_allclose(mean, 0.5772 * scale, rtol=0.02)
    np.testing.assert_allclose(variance, np.pi**2 / 6 * scale**2, rtol=0.05)


@pytest.mark.parametrize("dim", [6, 10])
@pytest.mark.parametrize("law", ["laplace", "student-t"])
def test_many_dimensions_have_no_more_parts(law, dim):
    scale = np.linspace(0.5, 2, dim)
    given = noise.laplace(scale) if law == "laplace" else noise.student_t(scale, 5.0)
    parts = given.as_mixture().take()
    assert parts.n_parts <= gaussian_parts.MOST_PARTS
    wanted = scale**2 * (2 if law == "laplace" else 5 / 3)
    np.testing.assert_allclose(moments(parts)[1][0], wanted, rtol=0.1)


def test_core_of_a_gaussian_is_its_covariance():
    given = noise.gaussian(sd=torch.tensor([1.0, 2.0]))
    np.testing.assert_allclose(given.core_covariance(), [[[1.0, 0.0], [0.0, 4.0]]])


def test_core_of_student_t_is_its_scale_for_any_tail():
    # a t law's precisions have mean 1 / scale^2; its covariance is 3 scale^2 at df 3, infinite at 2
    for df in (1.0, 2.0, 3.0, 10.0):
        core = noise.student_t([0.5, 2.0], df).core_covariance()
        np.testing.assert_allclose(core[0].diagonal(), [0.25, 4.0], rtol=0.15)


def test_core_of_a_zero_mean_mixture_has_its_mean_precision():
    narrow, wide = np.array([[1.0, 0.5], [0.5, 1.0]]), 100 * np.eye(2)
    law = noise.gaussian_mixture([0.75, 0.25], np.zeros((2, 2)), np.stack([narrow, wide]))
    precision = 0.75 * np.linalg.inv(narrow) + 0.25 * np.linalg.inv(wide)
    np.testing.assert_allclose(law.core_covariance()[0], np.linalg.inv(precision), rtol=1e-5)


def test_core_of_other_laws_is_their_covariance():
    law = noise.uniform([1.0, 3.0])
    np.testing.assert_allclose(law.core_covariance()[0].diagonal(), [1 / 3, 3.0], rtol=1e-6)


def test_floor_is_in_units_of_the_core():
    rng = np.random.default_rng(0)
    w = 0.01 * rng.standard_t(3, size=(2000, 1))  # noise alone: the floor is what is left
    model = XDGMM(1, floor=0.2, random_state=0).fit(w, noise=noise.student_t([0.01], 3.0))
    assert model.covariances_[0, 0, 0] == pytest.approx(0.2 * 0.01**2, rel=0.2)


def test_a_law_is_fitted_once_for_all_floors_and_starts(monkeypatch):
    calls = []
    plain = xd_fit.mean_noise
    monkeypatch.setattr(xd_fit, "mean_noise", lambda *a: calls.append(1) or plain(*a))
    w = np.random.default_rng(0).normal(size=(200, 1))
    prepared = xd_fit.PreparedData(Observations.from_arrays(w, noise.laplace([0.1])))
    for floor in (0.1, 0.2):
        settings = xd_fit.FitSettings(2, floor=floor)
        prepared.fit_best(settings, 2, np.random.RandomState(0))
    assert len(calls) == 1
