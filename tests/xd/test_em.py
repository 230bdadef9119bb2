import numpy as np
import pytest
from cases import CASES, make
from scipy.special import logsumexp
from sklearn import mixture as sklearn_mixture
from sklearn.exceptions import ConvergenceWarning

from deconflow import XDGMM, GaussianMixture, Observations
from deconflow.xd import (
    Constraints,
    Stopping,
    em,
    expectation,
    lay_out,
    made_feasible,
    maximisation,
)
from deconflow.xd.kernel.passes import exp_rows, log_rows
from deconflow.xd.many_rows import has_settled

TINY = 1e-12


def observe(case):
    case = dict(case)
    return Observations.from_arrays(case.pop("w"), case.pop("noise"), **case)


def free(rows, n_components):
    return Constraints.free(n_components, TINY * np.eye(rows.dim))


@pytest.mark.parametrize("name", CASES)
def test_two_steps_are_the_papers(name):
    case, reference_rows, mixture = make(name)
    data = observe(case)
    rows = lay_out(data)
    omega = None if data.weights is None else data.weights
    ours = rows.units.mixture_to_standard(mixture)
    for _ in range(2):
        sums = expectation(ours, rows)
        ours = maximisation(ours, sums, free(rows, mixture.n_components))
        mixture, log_p = em_step(mixture, *reference_rows, omega)
        np.testing.assert_allclose(sums.log_p, log_p, rtol=1e-10, atol=1e-10)
    back = rows.units.mixture_from_standard(ours)
    np.testing.assert_allclose(back.weights, mixture.weights, rtol=1e-9)
    np.testing.assert_allclose(back.means, mixture.means, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(back.covariances, mixture.covariances, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_likelihood_never_falls(name, accelerate):
    case, _, mixture = make(name)
    rows = lay_out(observe(case))
    # A floor keeps 61 rows from collapsing; constrained steps must be monotone, too.
    constraints = Constraints.free(mixture.n_components, 0.05 * np.eye(rows.dim))
    start = made_feasible(rows.units.mixture_to_standard(mixture), constraints)
    result = em(start, rows, constraints, Stopping(tol=0.0, max_iter=60, accelerate=accelerate))
    assert np.diff(result.history).min() >= -1e-12 * abs(result.history[-1])
    assert result.history[-1] > result.history[0] + 0.01


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_gradient_is_seen(name):
    """The sums are the gradients of the log-likelihood, here against finite differences."""
    case, _, mixture = make(name)
    rows = lay_out(observe(case))
    start = rows.units.mixture_to_standard(mixture)
    sums = expectation(start, rows)
    rng = np.random.default_rng(1)
    dm = rng.normal(size=start.means.shape)
    dV = rng.normal(size=start.covariances.shape)
    dV = 0.1 * (dV + dV.transpose(0, 2, 1))
    omega = np.ones(rows.n_rows) if rows.weights is None else rows.weights

    def total(h):
        moved = GaussianMixture(start.weights, start.means + h * dm, start.covariances + h * dV)
        return omega @ expectation(moved, rows, moments=False).log_p

    h = 1e-5
    slope = (total(h) - total(-h)) / (2 * h)
    inverse = np.linalg.inv(start.covariances)
    u = np.einsum("kij,kj->ki", inverse, sums.vu)
    g = inverse @ sums.vgv @ inverse
    exact = np.sum(u * dm) + 0.5 * np.sum(g * dV)
    assert slope == pytest.approx(exact, rel=1e-6, abs=1e-6)
    assert slope != pytest.approx(0.5 * exact, rel=1e-6, abs=1e-6)


def test_zero_noise_is_scikit_learns_mixture():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(3000, 2)) + 4 * rng.integers(2, size=(3000, 1))
    rows = lay_out(Observations.from_arrays(w, 0.0))
    start = GaussianMixture(
        np.full(2, 0.5), np.array([[0.0, 0.0], [3.0, 3.0]]), np.stack([np.eye(2)] * 2)
    )
    result = em(
        rows.units.mixture_to_standard(start), rows, free(rows, 2), Stopping(tol=0.0, max_iter=5)
    )
    theirs = sklearn_mixture.GaussianMixture(
        2, weights_init=start.weights, means_init=start.means, precisions_init=start.covariances,
        max_iter=5, tol=0.0, reg_covar=0.0,
    )  # fmt: skip
    with pytest.warns(match="did not converge"):
        theirs.fit(w)
    ours = rows.units.mixture_from_standard(result.mixture)
    np.testing.assert_allclose(ours.means, theirs.means_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.covariances, theirs.covariances_, rtol=1e-7)


def test_threads_do_not_change_the_answer():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(70_000, 2))
    rows = lay_out(Observations.from_arrays(w, rng.uniform(0.1, 0.5, (70_000, 2))))
    mixture = GaussianMixture(np.full(4, 0.25), rng.normal(size=(4, 2)), np.stack([np.eye(2)] * 4))
    one, two = (expectation(mixture, rows, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one.log_p, two.log_p)
    np.testing.assert_array_equal(one.vgv, two.vgv)


@pytest.mark.parametrize(("which", "name"), [*enumerate(["weights", "means", "covariances"])])
def test_fixed_parameters_stay(which, name):
    case, _, mixture = make("full")
    rows = lay_out(observe(case))
    constraints = free(rows, 3)
    constraints.fixed[which, 0] = True
    start = rows.units.mixture_to_standard(mixture)
    for accelerate in (False, True):
        settings = Stopping(tol=0.0, max_iter=20, accelerate=accelerate)
        result = em(start, rows, constraints, settings)
        before, after = getattr(start, name), getattr(result.mixture, name)
        np.testing.assert_array_equal(before[0], after[0])
        assert not np.allclose(before[1:], after[1:])
        assert result.mixture.weights.sum() == pytest.approx(1.0)
        assert np.diff(result.history).min() > -1e-10


# -- minibatch ------------------------------------------------------------------------------------


@pytest.fixture
def rows(rng):
    v = rng.normal(size=(3000, 1)) + rng.choice([-3.0, 3.0], size=(3000, 1))
    return v + 0.5 * rng.normal(size=v.shape)


def fitted(rows, **options):
    start = {"means": [[-0.1], [0.1]]}
    model = XDGMM(2, method={"minibatch": options}, init=start, random_state=0)
    return model.fit(rows, noise=[0.5])


def test_a_fit_that_still_gains_says_so(rows):
    with pytest.warns(ConvergenceWarning, match="Raise epochs"):
        short = fitted(rows, batch_size=100, epochs=2)
    long = fitted(rows, batch_size=100, epochs=40)
    best = XDGMM(2, random_state=0).fit(rows, noise=[0.5]).lower_bound_
    assert long.converged_
    assert not short.converged_
    assert long.score(rows, noise=[0.5]) > best - 0.002
    assert short.score(rows, noise=[0.5]) < best - 0.02


def test_one_bound_per_epoch_whatever_the_last_batch(rows):
    model = fitted(rows, epochs=30, batch_size=2999, learning_rate=0.0)
    assert len(model.lower_bounds_) == 30
    np.testing.assert_allclose(model.lower_bounds_, model.score(rows, noise=[0.5]), rtol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_name_has_the_usual_options(rows):
    fits = [XDGMM(2, method=m, random_state=0) for m in ("minibatch", {"minibatch": {}})]
    one, other = (model.fit(rows[:500], noise=[0.5]) for model in fits)
    np.testing.assert_array_equal(one.means_, other.means_)
    assert one.n_iter_ == 20


@pytest.mark.parametrize(
    ("history", "settled"),
    [
        ([], False),
        ([0.0], False),  # nothing to compare with
        ([0.0, 0.0], True),
        ([0.0, 1.0], False),
        ([0.0, 1.0, 1.3, 1.2, 1.3, 1.2, 1.3, 1.2], True),  # noise around a level
        ([0.0, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6], False),
    ],
)
def test_settled_means_that_quarters_no_longer_rise(history, settled):
    assert has_settled(history, 1e-3) is settled


# -- vector math ----------------------------------------------------------------------------------


def test_exp_is_exact_to_two_units_in_the_last_place():
    x = np.concatenate([np.linspace(-700, 0, 100_000), [-1e-300, 0.0]])
    ours = x.copy()
    exp_rows(ours, np.empty_like(x), len(x))
    np.testing.assert_allclose(ours, np.exp(x), rtol=5e-16)


def test_exp_of_very_negative_numbers_is_tiny_not_nan():
    x = np.array([-1e300, -np.inf, -800.0])
    exp_rows(x, np.empty_like(x), len(x))
    assert (x >= 0).all()
    assert (x < 1e-300).all()


def test_log_is_exact_to_two_units_in_the_last_place():
    x = np.concatenate([np.geomspace(1e-300, 1e300, 100_000), np.linspace(0.5, 2, 10_001)])
    ours = x.copy()
    log_rows(ours, np.empty_like(x), len(x))
    np.testing.assert_allclose(ours, np.log(x), rtol=5e-16, atol=3e-16)


# -- the slow way, straight from the paper --------------------------------------------------------


def log_joint(mixture, w, R, S):
    """``(N, K)`` log of ``pi_k N(w; R m_k, R V_k R' + S)``, for lists of rows of any length."""
    answer = np.empty((len(w), mixture.n_components))
    for i in range(len(w)):
        for k in range(mixture.n_components):
            T = R[i] @ mixture.covariances[k] @ R[i].T + S[i]
            y = w[i] - R[i] @ mixture.means[k]
            quadratic = y @ np.linalg.solve(T, y)
            log_det = np.linalg.slogdet(T)[1]
            answer[i, k] = np.log(mixture.weights[k]) - 0.5 * (
                quadratic + log_det + len(y) * np.log(2 * np.pi)
            )
    return answer


def em_step(mixture, w, R, S, omega=None):
    """One EM step of Bovy et al. (2011), equations 14-17; returns mixture and log-likelihoods."""
    joint = log_joint(mixture, w, R, S)
    log_p = logsumexp(joint, axis=1)
    q = np.exp(joint - log_p[:, None])
    if omega is not None:
        q = q * omega[:, None]
    K, D = mixture.means.shape
    means, covariances = np.empty((K, D)), np.empty((K, D, D))
    for k in range(K):
        m, V = mixture.means[k], mixture.covariances[k]
        b, B = np.empty((len(w), D)), np.empty((len(w), D, D))
        for i in range(len(w)):
            T = R[i] @ V @ R[i].T + S[i]
            gain = V @ R[i].T @ np.linalg.inv(T)
            b[i] = m + gain @ (w[i] - R[i] @ m)
            B[i] = V - gain @ R[i] @ V
        means[k] = q[:, k] @ b / q[:, k].sum()
        offset = b - means[k]
        scatter = np.einsum("n,nij->ij", q[:, k], B) + (q[:, k, None] * offset).T @ offset
        covariances[k] = scatter / q[:, k].sum()
    weights = q.sum(0) / q.sum()
    return GaussianMixture(weights, means, covariances), log_p
