"""One contract for all noises, and each ready-made law against an independent density."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch.distributions import (
    Beta,
    Gumbel,
    HalfCauchy,
    Independent,
    MultivariateNormal,
    Normal,
    StudentT,
    Uniform,
)

from deconflow import XDGMM
from deconflow.noise import (
    from_law,
    gaussian,
    gaussian_mixture,
    laplace,
    same_for_all,
    split_normal,
    student_t,
    uniform,
)
from deconflow.randomness import isolated_rng

N, K = 6, 3
RNG = np.random.default_rng(0)


def gumbel(scale):
    return Gumbel(0.0 * scale, scale)


def rows(dim, low=0.3, high=2.0, seed=0):
    return np.random.default_rng(seed).uniform(low, high, size=(N, dim))


def mixture_parameters(dim, parts=2):
    rng = np.random.default_rng(4)
    weights = rng.dirichlet(np.ones(parts), size=N)
    means = rng.normal(size=(N, parts, dim))
    root = rng.normal(size=(N, parts, dim, dim))
    return weights, means, root @ root.swapaxes(-1, -2) + 0.3 * np.eye(dim)


def covariances(dim):
    return mixture_parameters(dim)[2][:, 0]


PER_ROW = {
    "gaussian sd": lambda d: gaussian(sd=rows(d)),
    "gaussian covariance": lambda d: gaussian(covariance=covariances(d)),
    "student": lambda d: student_t(rows(d), 5.0),
    "student, df by row": lambda d: student_t(rows(d), rows(d, 5.0, 9.0)),
    "cauchy": lambda d: student_t(rows(d), 1.0),
    "laplace": lambda d: laplace(rows(d)),
    "uniform": lambda d: uniform(rows(d)),
    "split normal": lambda d: split_normal(rows(d), rows(d, seed=1)),
    "mixture": lambda d: gaussian_mixture(*mixture_parameters(d)),
    "gumbel": lambda d: from_law(gumbel, scale=rows(d)),
}
SHARED = {
    "gaussian sd": lambda d: gaussian(sd=rows(d)[0]),
    "gaussian covariance": lambda d: gaussian(covariance=covariances(d)[0]),
    "student": lambda d: student_t(rows(d)[0], 5.0),
    "cauchy": lambda d: student_t(rows(d)[0], 1.0),
    "laplace": lambda d: laplace(rows(d)[0]),
    "uniform": lambda d: uniform(rows(d)[0]),
    "split normal": lambda d: split_normal(rows(d)[0], rows(d, seed=1)[0]),
    "mixture": lambda d: gaussian_mixture(*(x[0] for x in mixture_parameters(d))),
    "gumbel": lambda d: from_law(gumbel, shared=True, scale=rows(d)[:1]),
}
NOISES = {f"{name}, row by row": make for name, make in PER_ROW.items()} | {
    f"{name}, shared": make for name, make in SHARED.items()
}
all_noises = pytest.mark.parametrize("name", NOISES)
one_and_two = pytest.mark.parametrize("dim", [1, 2])


def make(name, dim=2):
    return NOISES[name](dim).bind(N)


def drawn_residuals(noise, k=K):
    with isolated_rng(1):
        return noise.sample(k)


# -- the contract -------------------------------------------------------------------------------


@all_noises
@one_and_two
def test_shapes_and_finiteness(name, dim):
    noise = make(name, dim)
    lead = 1 if noise.shared else N
    r = drawn_residuals(noise)
    assert (len(noise), noise.dim, noise.shape) == (N, dim, (N, dim))
    assert r.shape == (K, N, dim)
    assert noise.log_prob(r).shape == (K, N)
    assert noise.log_prob(r[0]).shape == (N,)
    np.testing.assert_allclose(noise.log_prob(r)[0], noise.log_prob(r[0]))
    assert noise.mean().shape in {(lead, dim), (1, dim)}
    assert noise.covariance().shape == noise.cholesky().shape == (lead, dim, dim)
    assert noise.variance().shape == (lead, dim)
    assert noise.features().shape[0] == lead
    answers = (noise.log_prob(r), noise.mean(), noise.covariance(), noise.features())
    assert all(np.isfinite(x).all() for x in answers)
    np.testing.assert_allclose(noise.variance(), np.diagonal(noise.covariance(), axis1=1, axis2=2))
    assert all(x.dtype == np.float64 for x in (*answers, r))


def worst_moments(noise, inflate=1.0):
    """Largest deviation of the sample's moments from the stated ones, in standard errors."""
    n = 10_000
    with isolated_rng(3):
        x = noise.sample(n)
    offset = x - noise.mean()
    covariance = inflate * noise.covariance()
    products = offset[..., None] * offset[..., None, :] - covariance
    first = offset.mean(0) / (x.std(0) / n**0.5)
    second = products.mean(0) / (products.std(0) / n**0.5)
    return np.abs(first).max(), np.abs(second).max()


@pytest.mark.parametrize("name", [n for n in NOISES if "cauchy" not in n])
@one_and_two
def test_samples_have_the_stated_mean_and_covariance(name, dim):
    noise = make(name, dim)
    first, second = worst_moments(noise)
    assert first < 4.5
    assert second < 4.5
    assert worst_moments(noise, inflate=1.3)[1] > 4.5  # negative twin


INDICES = {
    "slice": slice(1, 5, 2),
    "empty slice": slice(2, 2),
    "last": slice(-1, None),
    "tensor": torch.tensor([4, 0, 0]),
    "numpy": np.array([4, 0, 0]),
    "int32": np.array([4, 0], dtype=np.int32),
    "reversed": np.arange(N)[::-1],
    "list": [5, -1, 2],
    "empty list": [],
    "bool tensor": torch.arange(N) % 2 == 0,
    "bool numpy": np.arange(N) > 3,
    "bool list": [True, False, False, True, False, False],
    "scikit-learn": (np.array([3, 1]), ...),
    "scikit-learn, mask": (np.arange(N) == 2, ...),
}


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("cauchy", [False, True], ids=["with variance", "without variance"])
def test_rows_by_index(index, cauchy):
    for name in NOISES:
        if ("cauchy" in name) == cauchy:
            check_rows(make(name), INDICES[index])


def check_rows(noise, rows_taken):
    plain = rows_taken[0] if isinstance(rows_taken, tuple) else rows_taken
    plain = np.array(plain, dtype=int) if isinstance(plain, list) and not plain else plain
    positions = np.arange(N)[plain].copy()
    part = noise[rows_taken]
    assert len(part) == len(positions)
    assert part.shared == noise.shared
    if len(positions) == 0:
        return
    r = drawn_residuals(noise)
    np.testing.assert_allclose(part.log_prob(r[:, positions]), noise.log_prob(r)[:, positions])
    assert part.sample(2).shape == (2, len(positions), 2)

    def of_rows(x):
        return np.broadcast_to(x, (N, *x.shape[1:]))[positions]

    here = (1,) if noise.shared else (len(positions),)
    assert part.covariance().shape[:1] == here
    np.testing.assert_allclose(
        np.broadcast_to(part.covariance(), (len(positions), 2, 2)), of_rows(noise.covariance())
    )
    features = part.features()
    np.testing.assert_allclose(
        np.broadcast_to(features, (len(positions), features.shape[1])), of_rows(noise.features())
    )


@pytest.mark.parametrize("name", [n for n in NOISES if "mixture" not in n])
def test_rows_by_index_carry_what_is_observed(name):
    noise = make(name).restrict(RNG.random((N, 2)) < 0.5)
    r = drawn_residuals(make(name))
    for taken in (slice(2, 5), torch.tensor([5, 0]), [1, 1, 3], torch.arange(N) < 2):
        np.testing.assert_allclose(noise[taken].log_prob(r[:, taken]), noise.log_prob(r)[:, taken])


@all_noises
def test_one_row_by_a_plain_number(name):
    noise = make(name)
    assert len(noise[1]) == len(noise[-N]) == 1
    for beyond in (N, 99, -N - 1, [0, N], np.array([99])):
        with pytest.raises(IndexError, match=f"rows between 0 and {N - 1}; got"):
            noise[beyond]
    with pytest.raises(IndexError, match=f"flag for each of {N} rows"):
        noise[np.ones(N + 1, dtype=bool)]


@all_noises
def test_a_noise_is_no_sequence(name):
    for noise in (NOISES[name](2), make(name)):
        with pytest.raises(TypeError, match="not iterable"):
            iter(noise)
        for walk in (np.ndim, np.asarray, lambda n: np.asarray(n, dtype=float)):
            with pytest.raises(TypeError, match=r"pass it as noise=\.\.\."):
                walk(noise)


def test_a_noise_in_place_of_y_is_refused_at_once():
    w = RNG.normal(size=(2000, 2))
    for law in (laplace(np.ones((2000, 2))), laplace([1.0, 1.0]), gaussian(sd=np.ones((2000, 2)))):
        with pytest.raises(TypeError, match="noise="):
            XDGMM(1).fit(w, law)


def test_a_bounded_law_without_a_mean_has_a_density():
    noise = same_for_all(HalfCauchy(torch.ones(1, dtype=torch.float64))).bind(2)
    r = torch.tensor([[-1.0], [1.0]], dtype=torch.float64, requires_grad=True)
    log_p = noise.log_prob(r)
    assert log_p[0] == -np.inf
    log_p[1].backward()
    assert r.grad.isfinite().all()


def test_values_wrapped_as_one_event_are_independent():
    wrapped = same_for_all(Independent(Normal(torch.zeros(2), torch.tensor([1.0, 2.0])), 1)).bind(N)
    plain = same_for_all(Normal(torch.zeros(2), torch.tensor([1.0, 2.0]))).bind(N)
    r = np.random.default_rng(0).normal(size=(K, N, 2))
    np.testing.assert_allclose(wrapped.log_prob(r), plain.log_prob(r))
    observed = np.array([[True, False]] * N)
    np.testing.assert_allclose(
        wrapped.restrict(observed).log_prob(r), plain.restrict(observed).log_prob(r)
    )


# -- every law's other two forms ----------------------------------------------------------------


def mixture_log_prob(joint, r):
    """Log density of residuals ``(K, N, D)`` under each row's mixture."""
    dim = r.shape[-1]
    covariances = joint.covariances
    covariances = covariances[..., None] * np.eye(dim) if covariances.ndim == 3 else covariances
    means = np.zeros((1, 1, dim)) if joint.means is None else joint.means
    offset = torch.from_numpy(r[:, :, None] - means)
    parts = MultivariateNormal(torch.zeros(dim).double(), torch.from_numpy(covariances))
    return np.logaddexp.reduce(parts.log_prob(offset).numpy() + np.log(joint.weights), -1)


@all_noises
@one_and_two
def test_every_law_is_a_mixture_of_gaussians(name, dim):
    noise = make(name, dim)
    joint = noise.as_mixture().take()
    np.testing.assert_allclose(joint.weights.sum(1), 1.0)
    r = drawn_residuals(noise, 3000)
    # no mixture has a Cauchy law's tails
    seen = (np.abs(r) < 100 * np.sqrt(noise.variance())).all(-1)

    def loss(joint):
        return float((noise.log_prob(r) - mixture_log_prob(joint, r))[seen].mean())

    assert -0.01 < loss(joint) < 0.03 * dim
    narrow = noise.divide(np.full((dim,), 2.0)).as_mixture().take()
    assert loss(narrow) > 0.1  # negative twin
    means = np.zeros((1, 1, dim)) if joint.means is None else joint.means
    mean = (joint.weights[..., None] * means).sum(1)
    np.testing.assert_allclose(mean, np.broadcast_to(noise.mean(), mean.shape), atol=0.05)
    if "cauchy" not in name:
        variances = joint.covariances
        variances = variances if variances.ndim == 3 else np.einsum("njaa->nja", variances)
        total = (joint.weights[..., None] * (variances + means**2)).sum(1) - mean**2
        np.testing.assert_allclose(total, noise.variance(), rtol=0.1)


@pytest.mark.parametrize("name", [name for name in NOISES if "gumbel" not in name])
@one_and_two
def test_every_law_of_the_catalogue_has_a_characteristic_function(name, dim):
    noise = make(name, dim)
    t = np.random.default_rng(0).normal(size=(5, dim))
    draws = drawn_residuals(noise, 20_000)
    waves = np.exp(1j * np.einsum("knd,td->knt", draws, t)).mean(0)
    bar = 5 / np.sqrt(20_000)
    np.testing.assert_allclose(*np.broadcast_arrays(noise.characteristic(t), waves), atol=bar)
    double = noise.divide(np.full((dim,), 0.5)).characteristic(t)
    assert np.abs(double - waves).max() > bar  # negative twin


@pytest.mark.parametrize("name", PER_ROW)
def test_slices_are_views(name):
    def tensors(noise):
        arrays = vars(noise)
        arrays = (*arrays.values(), *arrays.get("parameters", {}).values())
        return [x for x in arrays if isinstance(x, np.ndarray) and x.ndim > 1]

    noise = make(f"{name}, row by row")
    for whole, part in zip(tensors(noise), tensors(noise[1:4]), strict=True):
        assert np.shares_memory(part, whole)


@all_noises
@one_and_two
def test_divide_changes_the_density_by_its_jacobian_only(name, dim):
    noise = make(name, dim)
    scale = np.array([0.02, 30.0])[:dim]
    divided = noise.divide(scale)
    r = drawn_residuals(noise)
    np.testing.assert_allclose(divided.log_prob(r / scale), noise.log_prob(r) + np.log(scale).sum())
    np.testing.assert_allclose(divided.mean(), noise.mean() / scale)
    np.testing.assert_allclose(divided.covariance(), noise.covariance() / np.outer(scale, scale))
    with isolated_rng(7):
        expected = noise.sample(2) / scale
    with isolated_rng(7):
        np.testing.assert_allclose(divided.sample(2), expected)
    np.testing.assert_allclose(divided.divide(1 / scale).log_prob(r), noise.log_prob(r))


@all_noises
def test_float32_is_float64_rounded(name):
    noise = make(name)
    scale = np.array([0.5, 4.0])
    r = drawn_residuals(noise) / scale
    single = noise.divide(scale).to(dtype=torch.float32)
    answer = single.log_prob(torch.tensor(r, dtype=torch.float32))
    np.testing.assert_allclose(answer, noise.divide(scale).log_prob(r), rtol=1e-4, atol=1e-3)
    things = (answer, single.sample(2), single.mean(), single.covariance(), single.features())
    assert {x.dtype for x in things} == {torch.float32}
    back = single.in_numpy()
    assert all(x.dtype == np.float64 for x in (back.mean(), back.variance(), back.log_prob(r)))


@all_noises
def test_tensors_have_the_density_of_arrays_and_its_slope(name):
    noise, r = make(name), drawn_residuals(make(name)) * 0.9
    tensor = torch.tensor(r, requires_grad=True)
    log_p = noise.to().log_prob(tensor)
    np.testing.assert_allclose(log_p.detach(), noise.log_prob(r), rtol=1e-12, atol=1e-12)
    log_p.sum().backward()
    step = 1e-6 * np.array([1.0, 0.0])
    slope = (noise.log_prob(r + step) - noise.log_prob(r - step)) / 2e-6
    np.testing.assert_allclose(tensor.grad[..., 0], slope, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [n for n in NOISES if "mixture" not in n and "cov" not in n])
def test_missing_values_are_left_out(name):
    noise = make(name)
    observed = RNG.random((N, 2)) < 0.5
    r = drawn_residuals(noise)
    only_first = noise.restrict(np.array([[True, False]] * N)).log_prob(r)
    only_second = noise.restrict(np.array([[False, True]] * N)).log_prob(r)
    expected = observed[:, 0] * only_first + observed[:, 1] * only_second
    part = noise.restrict(observed)
    for values in (r, np.where(observed, r, 1e6)):
        np.testing.assert_allclose(part.log_prob(values), expected)
    np.testing.assert_allclose(only_first + only_second, noise.log_prob(r))
    scale = np.array([0.1, 20.0])
    jacobian = (observed * np.log(scale)).sum(-1)
    np.testing.assert_allclose(part.divide(scale).log_prob(r / scale), expected + jacobian)


@pytest.mark.parametrize("name", sorted(set(SHARED) & set(PER_ROW)))
def test_shared_equals_the_same_law_for_every_row(name):
    shared = make(f"{name}, shared")
    first = make(f"{name}, row by row")[[0] * N]
    r = drawn_residuals(shared)
    np.testing.assert_allclose(shared.log_prob(r), first.log_prob(r))
    if name != "cauchy":  # its width is estimated from draws
        np.testing.assert_allclose(
            np.broadcast_to(shared.covariance(), (N, 2, 2)), first.covariance()
        )
        np.testing.assert_allclose(
            np.broadcast_to(shared.mean(), (N, 2)), np.broadcast_to(first.mean(), (N, 2))
        )


@all_noises
@one_and_two
def test_floor_hardly_touches_a_wide_law(name, dim):
    noise = make(name, dim)
    r = drawn_residuals(noise)
    floored = noise.floor(1e-3).log_prob(r)
    np.testing.assert_allclose(floored, noise.log_prob(r), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", SHARED)
def test_noise_without_rows_says_so(name):
    noise = SHARED[name](2)
    assert noise.n_rows is None
    for call in (len, lambda law: law[1:3]):
        with pytest.raises(TypeError, match="any number of rows"):
            call(noise)
    assert len(noise[[0, 5, 9]]) == 3


# -- each law against an independent density ----------------------------------------------------


def scipy_mixture(r, weights, means, covariance):
    parts = [
        np.log(a) + stats.multivariate_normal(m, S).logpdf(r)
        for a, m, S in zip(weights, means, covariance, strict=True)
    ]
    return np.logaddexp.reduce(parts)


ORACLES = {
    "student": lambda r: stats.t(5.0, scale=rows(2)).logpdf(r).sum(-1),
    "student, df by row": lambda r: stats.t(rows(2, 5.0, 9.0), scale=rows(2)).logpdf(r).sum(-1),
    "cauchy": lambda r: stats.cauchy(scale=rows(2)).logpdf(r).sum(-1),
    "laplace": lambda r: stats.laplace(scale=rows(2)).logpdf(r).sum(-1),
    "uniform": lambda r: stats.uniform(-rows(2), 2 * rows(2)).logpdf(r).sum(-1),
    "gumbel": lambda r: stats.gumbel_r(scale=rows(2)).logpdf(r).sum(-1),
    "gaussian sd": lambda r: stats.norm(scale=rows(2)).logpdf(r).sum(-1),
    "mixture": lambda r: np.stack(
        [
            [scipy_mixture(r[k, i], *(x[i] for x in mixture_parameters(2))) for i in range(N)]
            for k in range(len(r))
        ]
    ),
}


@pytest.mark.parametrize("name", ORACLES)
def test_log_prob_is_that_of_scipy(name):
    r = np.random.default_rng(5).normal(size=(K, N, 2)) * 0.2
    answer = make(f"{name}, row by row").log_prob(np.array(r))
    np.testing.assert_allclose(answer, ORACLES[name](r), rtol=1e-9)


def split_normal_density(x, below, above):
    scale = np.where(x < 0, below, above)
    return np.sqrt(2 / np.pi) / (below + above) * np.exp(-0.5 * (x / scale) ** 2)


@pytest.mark.parametrize(("below", "above"), [(1.0, 1.0), (0.2, 3.0), (5.0, 0.1)])
def test_split_normal_integrates_to_one_with_its_moments(below, above):
    noise = split_normal([above], [below]).bind(1)

    def moment(power):
        def f(x):
            return x**power * np.exp(noise.log_prob(np.array([[x]]))[0])

        return integrate.quad(f, -12 * below, 0)[0] + integrate.quad(f, 0, 12 * above)[0]

    assert moment(0) == pytest.approx(1, abs=1e-8)
    assert moment(1) == pytest.approx(noise.mean()[0, 0], abs=1e-8)
    assert moment(2) - moment(1) ** 2 == pytest.approx(noise.variance()[0, 0], rel=1e-7)
    x = np.linspace(-3, 3, 31)
    found = np.exp(noise.log_prob(x[:, None, None]))[:, 0]
    np.testing.assert_allclose(found, split_normal_density(x, below, above), rtol=1e-10)


def test_split_normal_noise_is_wide_where_the_truth_may_be():
    lower, upper = 0.1, 3.0  # the measurement 0 with +3 and -0.1: the truth lies above it
    noise = split_normal([lower], [upper]).bind(1)
    w = 0.0

    def log_p(v):
        return noise.log_prob(np.array([[w - v]]))[0]

    assert log_p(upper) == pytest.approx(log_p(0.0) - 0.5)
    assert log_p(-lower) == pytest.approx(log_p(0.0) - 0.5)
    assert log_p(2.0) > log_p(-2.0) + 10
    with isolated_rng(0):
        v = w - noise.sample(20_000)
    share_above = (v > 0).mean()
    assert float(share_above) == pytest.approx(upper / (lower + upper), abs=0.01)
    assert float(v.mean()) == pytest.approx(np.sqrt(2 / np.pi) * (upper - lower), abs=0.05)


NEARLY = {
    "equal error bars": (split_normal(rows(2), rows(2)), gaussian(sd=rows(2)), 1e-9),
    "a mixture of one": (
        gaussian_mixture(np.ones((N, 1)), np.zeros((N, 1, 2)), covariances(2)[:, None]),
        gaussian(covariance=covariances(2)),
        1e-9,
    ),
    "many degrees of freedom": (student_t(rows(2), 1e8), gaussian(sd=rows(2)), 1e-4),
}


@pytest.mark.parametrize("name", NEARLY)
def test_some_laws_are_gaussian(name):
    law, normal, bar = NEARLY[name]
    r = np.array(np.random.default_rng(0).normal(size=(K, N, 2)))
    np.testing.assert_allclose(law.log_prob(r), normal.log_prob(r), rtol=bar, atol=bar)
    np.testing.assert_allclose(law.covariance(), normal.covariance(), rtol=bar, atol=bar)


# -- laws without a variance --------------------------------------------------------------------


@pytest.mark.parametrize("df", [0.5, 1.0, 2.0])
def test_laws_without_variance_answer_with_their_central_width(df):
    scale = np.array([0.1, 10.0])
    noise = student_t(scale, df).bind(4)
    assert (noise.mean() == 0).all()
    width = stats.t(df).ppf(0.84) * scale
    np.testing.assert_allclose(noise.variance()[0] ** 0.5, width, rtol=0.3)
    assert (noise.covariance()[0].diagonal() > 0).all()
    assert noise.covariance()[0, 0, 1] == 0
    assert np.isfinite(noise.cholesky()).all()


def test_only_the_values_without_variance_are_replaced():
    scale, df = np.ones((3, 2)), np.array([[5.0, 1.0], [5.0, 5.0], [1.0, 5.0]])
    variance = student_t(scale, df).variance()
    np.testing.assert_allclose(variance[df == 5], 5 / 3)
    np.testing.assert_allclose(variance[df == 1], stats.t(1).ppf(0.84) ** 2, rtol=0.6)


# -- bounds -------------------------------------------------------------------------------------


def beta(a):
    return Beta(a, a)


BOUNDED = {
    "uniform": (lambda: uniform(rows(2)), -rows(2), rows(2)),
    "shared uniform": (lambda: uniform(rows(2)[0]).bind(N), -rows(2)[:1], rows(2)[:1]),
    "beta": (lambda: from_law(beta, a=rows(2)), np.zeros((N, 2)), np.ones((N, 2))),
    "torch uniform": (
        lambda: same_for_all(Uniform(torch.tensor([-1.0, -2.0]), torch.tensor([3.0, 4.0]))).bind(N),
        np.array([[-1.0, -2.0]]),
        np.array([[3.0, 4.0]]),
    ),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_bounds_hold_every_sample_and_follow_the_units(name):
    make_noise, low, high = BOUNDED[name]
    noise = make_noise()
    scale = np.array([0.5, 10.0])
    for law, unit in ((noise, np.ones(2)), (noise.divide(scale), scale)):
        to_support, divisor, start = law.support_map()
        assert (start == 0).all()
        far = torch.full((N, 2), 30.0, dtype=torch.float64)
        for z, end in ((-far, low), (far, high)):
            reached = to_support(z) / divisor
            np.testing.assert_allclose(reached, np.broadcast_to(end / unit, (N, 2)), atol=1e-6)
        drawn = law.sample(200)
        assert ((drawn >= low / unit) & (drawn <= high / unit)).all()


def test_outside_its_bounds_uniform_noise_has_no_density():
    noise = uniform([[1.0, 1.0], [3.0, 3.0]])
    r = np.full((2, 2), 2.0)
    assert noise.log_prob(r).tolist() == [-np.inf, pytest.approx(-2 * np.log(6))]


@pytest.mark.parametrize("name", [n for n in NOISES if "uniform" not in n])
def test_other_laws_live_on_the_whole_line(name):
    assert make(name).support_map() is None


# -- from_law -----------------------------------------------------------------------------------


def student(scale, df):
    return StudentT(df, 0.0, scale)


def test_a_law_takes_any_number_of_parameters_of_any_width():
    noise = from_law(student, scale=rows(2), df=np.full((N, 1), 4.0))
    np.testing.assert_allclose(
        noise.log_prob(np.zeros((N, 2))),
        stats.t(4.0, scale=rows(2)).logpdf(0).sum(-1),
    )
    assert len(noise[2:5]) == 3
    assert noise[2:5].covariance().shape == (3, 2, 2)


def test_a_parameter_of_one_row_is_refused():
    with pytest.raises(ValueError, match=f"Expected df with {N} rows"):
        from_law(student, scale=rows(2), df=[[3.0]])


def test_a_law_over_whole_rows_refuses_missing_values():
    noise = gaussian_mixture(*mixture_parameters(2))
    with pytest.raises(ValueError, match="independent, because w has missing values"):
        noise.restrict(np.array([[True, False]] * N))


def test_a_law_without_moments_is_refused_in_words():
    def late(rate):
        shift = torch.distributions.AffineTransform(-1 / rate, torch.ones_like(rate))
        return torch.distributions.TransformedDistribution(
            torch.distributions.Exponential(rate), shift
        )

    with pytest.raises(ValueError, match="knows its mean and variance; got a TransformedDist"):
        from_law(late, rate=rows(2)).covariance()


@pytest.mark.parametrize("name", PER_ROW)
def test_uniform_numbers_make_the_law(name):
    """A share of draws lies below the value that this share makes."""
    noise, draws = PER_ROW[name](1), 20_000
    shares = np.array([0.001, 0.1, 0.3, 0.5, 0.8, 0.999])
    shares = np.broadcast_to(shares[:, None, None], (len(shares), N, 1))
    made = noise.from_uniform(shares)
    if name in ("gumbel", "mixture"):
        assert made is None
        return
    with isolated_rng(0):
        drawn = noise.sample(draws)
    below = (drawn[None] <= made[:, None]).mean(1)
    assert (np.abs(below - shares) < 4.5 * np.sqrt(0.25 / draws)).all()
    np.testing.assert_allclose(noise.divide(np.array([2.0])).from_uniform(shares), made / 2)


def test_uniform_numbers_make_correlated_noise():
    noise = gaussian(covariance=covariances(3))
    made = noise.from_uniform(np.random.default_rng(0).uniform(size=(50_000, N, 3)))
    for row in range(N):
        np.testing.assert_allclose(np.cov(made[:, row].T), noise.covariance()[row], atol=0.1)
