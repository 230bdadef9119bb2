import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import (
    Cauchy,
    Gamma,
    Gumbel,
    Independent,
    Laplace,
    MultivariateNormal,
    Normal,
    StudentT,
)

from deconflow import XDGMM, noise
from deconflow.noise import law_noise

X = np.linspace(-40, 40, 40_001)


def density(parts):
    """Density of the first value's mixture on the grid."""
    joint = parts.take()
    sd = np.sqrt(joint.covariances[0].reshape(len(joint.weights[0]), -1)[:, 0])
    means = np.zeros_like(sd) if joint.means is None else joint.means[0, :, 0]
    return (joint.weights[0] * stats.norm.pdf(X[:, None], means, sd)).sum(1)


def divergence(p, q, x=X):
    log_p, log_q = (np.log(np.maximum(density, 1e-300)) for density in (p, q))
    return np.sum(p * (log_p - log_q)) * (x[1] - x[0])


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


def test_asymmetric_error_bars_of_very_many_rows():
    rng = np.random.default_rng(0)
    lower, upper = rng.uniform(0.2, 1, (2, 12_000, 2))
    v = rng.normal(size=(12_000, 2))
    w = v + noise.split_normal(lower=lower, upper=upper).sample(1)[0]
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


def gumbel(scale):
    return Gumbel(torch.zeros_like(scale), scale)


def gamma(concentration):
    return Gamma(concentration, torch.ones_like(concentration))


def value_density(mixture, row, x):
    weights, means, variances = (table[0, 0] for table in mixture.by_value(np.array([row])))
    return (weights * stats.norm.pdf(x[:, None], means, np.sqrt(variances))).sum(1)


def test_very_many_laws_share_their_shapes(monkeypatch):
    monkeypatch.setattr(law_noise, "MOST_SHAPES", 20)
    scale = np.linspace(0.1, 3.0, 300)[:, None]
    alike = noise.from_law(gumbel, scale=scale).as_mixture()
    assert len(alike.shapes[0]) == 1
    x = np.linspace(-10, 40, 20_001)
    for row in (0, 150, 299):
        p = stats.gumbel_r(scale=scale[row]).pdf(x)
        assert divergence(p, value_density(alike, row, x), x) < 0.005
        assert divergence(p, value_density(alike, (row + 100) % 300, x), x) > 0.05
    concentration = np.linspace(1.5, 9.0, 300)[:, None]
    varied = noise.from_law(gamma, concentration=concentration).as_mixture()
    assert len(varied.shapes[0]) == 20
    for row in (0, 150, 299):
        p = stats.gamma(concentration[row]).pdf(x)
        assert divergence(p, value_density(varied, row, x), x) < 0.02


def moments(joint):
    """Mean and covariance of the first row's mixture."""
    weights, dim = joint.weights[0], joint.covariances.shape[2]
    means = np.zeros((len(weights), dim)) if joint.means is None else joint.means[0]
    mean = weights @ means
    within = joint.covariances[0]
    within = within[..., None] * np.eye(dim) if within.ndim == 2 else within
    offset = means - mean
    return mean, np.einsum("j,jab->ab", weights, within) + (weights * offset.T) @ offset


WIDE = {
    "student_t": lambda scale: noise.student_t(scale, df=5.0),
    "student_t of different tails": lambda scale: noise.student_t(scale, 2.5 + 3 * scale),
    "laplace": noise.laplace,
    "uniform": noise.uniform,
    "split_normal": lambda scale: noise.split_normal(scale, 1.0),
    "gumbel": lambda scale: noise.from_law(gumbel, scale=np.atleast_2d(scale)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDE)
def test_more_than_five_columns_have_few_parts_of_the_right_moments(name):
    mixture = WIDE[name](np.random.default_rng(0).uniform(0.5, 2.0, (3, 7))).as_mixture()
    assert mixture.n_parts == 256
    for row in range(3):
        joint = mixture.take(np.array([row]))
        assert joint.weights.shape == (1, 256)
        assert joint.weights.sum() == pytest.approx(1.0)
        weights, means, variances = mixture.by_value(np.array([row]))
        means = np.zeros_like(weights) if means is None else means
        centre = (weights * means).sum(-1)
        spread = (weights * (variances + (means - centre[..., None]) ** 2)).sum(-1)
        mean, covariance = moments(joint)
        np.testing.assert_allclose(mean, centre[0], atol=1e-12)
        np.testing.assert_allclose(covariance, np.diag(spread[0]), atol=1e-10)
    few = mixture.take(np.array([0]), np.array([1, 5]))
    assert few.weights.shape == (1, 16)  # all products, where these are few


@pytest.mark.parametrize(("dim", "bar"), [(6, 0.01), (8, 0.06), (12, 0.25)])
def test_the_density_of_student_t_noise_in_many_columns(dim, bar):
    scale = np.linspace(0.5, 2.0, dim)
    law = noise.student_t(scale, df=3.0).bind(4000)
    n = law.sample(1)[0]
    joint = law.as_mixture().take()
    log_p = law.log_prob(n)

    def loss(weights, variances):
        squares = np.square(n) @ (1 / variances).T
        log_parts = np.log(weights) - 0.5 * (np.log(2 * np.pi * variances).sum(1) + squares)
        return np.mean(log_p - np.logaddexp.reduce(log_parts, axis=1))

    assert -0.01 < loss(joint.weights[0], joint.covariances[0]) < bar
    assert loss(np.ones(1), 3 * scale[None] ** 2) > 0.1 * dim  # one Gaussian of the same covariance


def test_chunks_of_rows_are_written_out_alone():
    scale = np.random.default_rng(0).uniform(0.5, 2.0, (50, 3))
    mixture = noise.split_normal(scale, 1.0).as_mixture()
    everything = mixture.take()
    for rows in (slice(10, 20), np.array([7, 7, 0])):
        some = mixture.take(rows)
        np.testing.assert_array_equal(some.weights, everything.weights[rows])
        np.testing.assert_array_equal(some.means, everything.means[rows])
        np.testing.assert_array_equal(some.covariances, everything.covariances[rows])
    assert mixture.n_parts == everything.n_parts == 125


def test_a_law_is_found_by_what_it_is_not_by_its_name():
    made = noise.student_t([[0.5, 2.0]], 3.0)
    torch_law = StudentT(3.0, torch.zeros(2), torch.tensor([0.5, 2.0]))
    law = noise.same_for_all(torch_law)
    for mine, theirs in zip(law.as_mixture().by_value(), made.as_mixture().by_value(), strict=True):
        np.testing.assert_equal(mine, theirs)
    t = np.array([[0.5, -0.2]])
    np.testing.assert_array_equal(law.characteristic(t), made.characteristic(t))


def test_located_laws_are_shifted():
    here, there = (
        noise.same_for_all(Laplace(torch.full((2,), loc), torch.ones(2))) for loc in (0.0, 3.0)
    )
    np.testing.assert_allclose(there.as_mixture().take().means, 3.0)
    weights, _, variances = there.as_mixture().by_value()
    np.testing.assert_array_equal(weights, here.as_mixture().by_value()[0])
    np.testing.assert_array_equal(variances, here.as_mixture().by_value()[2])


def test_core_of_most_laws_is_their_covariance():
    for law in (noise.gaussian(sd=[1.0, 2.0]), noise.uniform([3**0.5, 12**0.5])):
        np.testing.assert_allclose(law.core_covariance(), [np.diag([1.0, 4.0])], rtol=1e-6)


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


def test_floor_is_in_units_of_the_core():
    rng = np.random.default_rng(0)
    w = 0.01 * rng.standard_t(3, size=(2000, 1))  # noise alone: the floor is what is left
    model = XDGMM(1, floor=0.2, random_state=0).fit(w, noise=noise.student_t([0.01], 3.0))
    assert model.covariances_[0, 0, 0] == pytest.approx(0.2 * 0.01**2, rel=0.2)


# -- characteristic functions: closed forms against draws -----------------------------------------


FULL = np.array([[0.5, 0.2], [0.2, 0.3]])
TENSOR = torch.tensor([0.4, 0.9], dtype=torch.float64)


CLOSED = {
    "gaussian": noise.gaussian(sd=[0.4, 0.9]),
    "full gaussian": noise.gaussian(covariance=FULL),
    "exact": noise.gaussian(sd=[0.0, 0.0]),
    "laplace": noise.laplace([0.4, 0.9]),
    "student": noise.student_t([0.4, 0.9], df=3.0),
    "student of many degrees": noise.student_t([0.4, 0.9], df=300.0),
    "uniform": noise.uniform([0.4, 0.9]),
    "split normal": noise.split_normal(lower=[0.3, 1.0], upper=[0.8, 0.2]),
    "mixture": noise.gaussian_mixture([0.3, 0.7], [[0.5, -1], [0, 0.2]], [FULL, np.eye(2) * 0.1]),
    "cauchy": noise.same_for_all(Cauchy(torch.zeros(2, dtype=torch.float64), TENSOR)),
    "independent": noise.same_for_all(Independent(Normal(TENSOR, TENSOR), 1)),
}


@pytest.mark.parametrize("name", CLOSED)
def test_what_every_characteristic_function_is(name):
    t = np.random.default_rng(0).normal(size=(50, 2)) * 3
    there, back = (CLOSED[name].characteristic(s * t)[0] for s in (1, -1))
    np.testing.assert_allclose(there, back.conj(), atol=1e-9)
    assert np.abs(there).max() <= 1 + 1e-9
    assert CLOSED[name].characteristic(np.zeros((1, 2)))[0, 0] == pytest.approx(1)


def test_laws_without_a_closed_form_are_refused():
    scale = np.array([[0.5], [2.0]])
    with pytest.raises(ValueError, match=r"closed form.*got a Gumbel"):
        noise.from_law(gumbel, scale=scale).characteristic(np.ones((1, 1)))


def test_student_between_cauchy_and_normal():
    t = np.linspace(0.01, 4, 30)[:, None]
    one, many = (noise.student_t([1.0], df).characteristic(t)[0] for df in (1.0, 1e4))
    np.testing.assert_allclose(one, np.exp(-t[:, 0]), rtol=1e-10)
    np.testing.assert_allclose(many, np.exp(-(t[:, 0] ** 2) / 2), atol=2e-4)


@pytest.mark.parametrize("df", [0.5, 1.0, 3.0, 30.0, 300.0, 3e3, 3e5])
def test_student_is_finite_and_falls(df):
    t = np.r_[0.0, np.geomspace(1e-200, 1e12, 500)]
    phi = noise.student_t([1.0], df).characteristic(t[:, None])[0].real
    assert np.isfinite(phi).all()
    assert phi[0] == 1
    assert (np.diff(phi) <= 1e-12).all()
