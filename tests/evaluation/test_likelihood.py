from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chi2, false_discovery_control, kstest, spearmanr
from torch.distributions import Categorical, MixtureSameFamily, Normal

from deconflow import Certificate, DeconvolvingKDE, FlowDeconvolver, GaussianMixture, Observations
from deconflow import noise as laws
from deconflow.densities import MixtureDensity
from deconflow.evaluation import certify, estimate_log_likelihood, pareto_k, unusual_rows
from deconflow.fits.mixture_fit import MixtureFit
from deconflow.noise import gaussian
from deconflow.posteriors import RowsWithProposals
from deconflow.randomness import isolated_rng
from deconflow.xd import lay_out, log_p

TRUTH = GaussianMixture(
    np.array([0.4, 0.6]),
    np.array([[-1.0, 0.0], [1.0, 1.0]]),
    np.array([np.diag([0.3, 1.0]), [[1.0, 0.5], [0.5, 0.6]]]),
)
OTHER = GaussianMixture(TRUTH.weights[::-1].copy(), TRUTH.means + 0.3, 1.3 * TRUTH.covariances)


def rows_of(kind):
    rng = np.random.default_rng(0)
    w = TRUTH.sample(300, 0) + 0.5 * rng.normal(size=(300, 2))
    if kind == "missing":
        w[::2, 1] = np.nan
    R = rng.normal(size=(300, 2, 2)) if kind == "projection" else None
    return Observations.from_arrays(w, gaussian(sd=[0.5, 0.5]), projection=R)


def density():
    parts = (torch.from_numpy(x) for x in (TRUTH.weights, TRUTH.means, TRUTH.covariances))
    return MixtureDensity(*parts)


def estimate(data, draws=256):
    return estimate_log_likelihood(
        density(), RowsWithProposals.of(data, OTHER, torch.float64), draws
    )


@pytest.mark.parametrize("kind", ["plain", "missing", "projection"])
def test_the_closed_form_is_met_within_its_errors(kind):
    data = rows_of(kind)
    found, exact = estimate(data), log_p(TRUTH, lay_out(data))
    apart = (found.log_p - exact) / found.error
    # Errors from eight repeats are t-distributed with 7 degrees of freedom: sd 1.18.
    assert 0.7 < apart.std() < 1.8
    assert abs(apart.mean()) < 0.4
    assert np.abs(found.log_p - exact).max() < 0.1
    assert not found.bias.any()  # it was taken off
    assert float(np.median(found.error)) < 0.01


def test_the_mixture_itself_has_no_error():
    data = rows_of("plain")
    rows = RowsWithProposals.of(data, TRUTH, torch.float64)
    found = estimate_log_likelihood(density(), rows, 64)
    np.testing.assert_allclose(found.log_p, log_p(TRUTH, lay_out(data)), atol=1e-6)


# -- pareto ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0.3, 0.7, 1.2])
def test_the_shape_of_pareto_weights_is_found(k):
    """Weights u^-k have a Pareto tail of shape k; medians over 200 columns of 2,000 draws."""
    u = torch.rand(2000, 200, dtype=torch.float64)
    found = pareto_k(-k * u.log())
    # The estimate is drawn towards one half by ten draws' worth of prior, of 134 in the tail.
    wanted = (134 * k + 5) / 144
    assert float(found.median()) == pytest.approx(wanted, abs=0.05)


def test_bounded_weights_have_a_light_tail():
    assert float(pareto_k(torch.rand(2000, 50, dtype=torch.float64)).max()) < 0.5


def test_few_draws_are_refused():
    with pytest.raises(ValueError, match="at least 25 draws"):
        pareto_k(torch.zeros(20, 3))


# -- certificate ----------------------------------------------------------------------------------


GOOD = Certificate(-3.0, 0.01, 0.1, 0.01, (0.4, 0.6), (0.3, 0.6), (0.1, 0.0), 0.01, 0.001)


def mixture_at(place):
    return GaussianMixture(np.ones(1), np.full((1, 2), place), 0.2 * np.eye(2)[None])


def certificate(proposing, seed=0):
    truth = mixture_at(0.0)
    rng = np.random.default_rng(seed)
    w = truth.sample(200, 0) + rng.normal(size=(200, 2))
    data = Observations.from_arrays(w, [1.0, 1.0])
    parts = (torch.from_numpy(x) for x in (truth.weights, truth.means, truth.covariances))
    held_out = Certificate(-2.0, 0.01)
    return certify(MixtureDensity(*parts), proposing, data, held_out, draws=128, refresh_rate=None)


def test_good_proposals_are_trusted():
    found = certificate(mixture_at(0.0))
    assert found.trusted
    assert found.efficiency[1] > 0.7
    assert 0 < found.gap < 0.01
    assert found.held_out == pytest.approx(-2.0, abs=0.03)
    assert "No reason for doubt" in found.in_words()


def test_bad_proposals_are_not():
    """The negative twin: a mixture that proposes far from where the density is."""
    narrow = GaussianMixture(np.ones(1), np.full((1, 2), 6.0), 1e-3 * np.eye(2)[None])
    found = certificate(narrow)
    assert not found.trusted
    assert "CAUTION" in found.in_words()
    assert found.efficiency[1] < 0.2


BAD = {
    "sample size": {"efficiency": (0.001, 0.01)},
    "heavy tail": {"pareto_k": (0.5, 0.3), "efficiency": (0.05, 0.3)},
    "differ by": {"gap": 0.5},
    "moved at under": {"refresh_rate": (0.01, 0.3)},
}


@pytest.mark.parametrize(("words", "change"), BAD.items(), ids=BAD)
def test_every_fault_is_said_in_words(words, change):
    assert GOOD.trusted
    (warning,) = replace(GOOD, **change).warnings
    assert words in warning


# -- p-values of rows: uniform under a right model, small for what it does not expect -------------


N = 2000
RNG = np.random.RandomState(0)
MIXTURE = GaussianMixture(
    np.array([0.5, 0.3, 0.2]),
    np.array([[-2.0, 0.0], [1.5, 2.0], [2.0, -2.5]]),
    np.array([[[0.6, 0.2], [0.2, 0.3]], [[0.1, 0.0], [0.0, 0.8]], [[0.2, -0.1], [-0.1, 0.1]]]),
)
MODEL = MixtureFit([MIXTURE], ["x", "y"])
SD = RNG.uniform(0.1, 2.0, size=(N, 2))
ROOTS = RNG.normal(size=(N, 2, 2)) * 0.7
#: Of uniform p-values: exceeded once in a thousand data sets, beside the steps of 199 draws.
LARGEST_GAP = 1.95 / np.sqrt(N) + 1 / 200


def narrow_or_wide(scale):
    """A law that no table knows."""
    sizes = scale[..., None] * torch.tensor([0.5, 2.0])
    return MixtureSameFamily(Categorical(torch.ones_like(sizes)), Normal(0 * sizes, sizes))


NOISES = {
    "shared": laws.gaussian(sd=[0.3, 0.6]),
    "diagonal": laws.gaussian(sd=SD),
    "full": laws.gaussian(covariance=ROOTS @ ROOTS.transpose(0, 2, 1)),
    "student_t": laws.student_t(df=3.0, scale=SD),
    "shared student_t": laws.student_t(df=3.0, scale=[0.3, 0.6]),
    "laplace": laws.laplace(SD),
    "uniform": laws.uniform(SD),
    "split_normal": laws.split_normal(lower=SD, upper=SD[::-1].copy()),
    "own": laws.from_law(narrow_or_wide, scale=SD),
}


def measured(noise, seed, model=MODEL, missing=0.0, projection=None):
    """Rows that the model and the noise have made."""
    v = model.sample(N, seed)
    noise = noise.bind(N)
    with isolated_rng(seed + 100):
        blur = noise.sample(1)[0]
    w = (v if projection is None else np.einsum("nmd,nd->nm", projection, v)) + blur
    gone = np.random.RandomState(seed).uniform(size=w.shape) < missing
    w[gone & ~gone.all(1, keepdims=True)] = np.nan
    return Observations.from_arrays(w, noise, projection=projection)


def assert_uniform(p):
    assert kstest(p, "uniform").statistic < LARGEST_GAP
    for threshold in (0.01, 0.05):
        error = np.sqrt(N * threshold)
        assert abs((p <= threshold).sum() - N * threshold) < 4 * error


HOLED = ["shared", "diagonal", "full", "shared student_t", "laplace"]


@pytest.mark.parametrize(
    ("name", "missing"), [*((name, 0.0) for name in NOISES), *((name, 0.3) for name in HOLED)]
)
def test_uniform_under_a_right_model(name, missing):
    p = MODEL.p_values(measured(NOISES[name], seed=1, missing=missing))
    assert p.shape == (N,)
    assert (p > 0).all()
    assert_uniform(p)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shared", "diagonal", "student_t"])
def test_projections(name):
    each = np.random.RandomState(5).normal(size=(N, 2, 2))
    for projection in (np.broadcast_to(each[:1], each.shape), each):
        assert_uniform(MODEL.p_values(measured(NOISES[name], seed=3, projection=projection)))


@pytest.mark.slow
def test_models_without_a_closed_form():
    """Draws are the model's own, whatever mixture stands in for it."""
    data = measured(NOISES["diagonal"], seed=4)
    w, sd = data.w, SD
    flow = FlowDeconvolver(epochs=2, hidden=16, random_state=0).fit(w, noise=sd).density_
    assert_uniform(flow.p_values(measured(NOISES["diagonal"], seed=5, model=flow)))
    assert_uniform(flow.p_values(measured(NOISES["student_t"], seed=5, model=flow, missing=0.3)))
    kde = DeconvolvingKDE(bandwidth=0.5).fit(w, noise=sd).density_
    assert_uniform(kde.p_values(measured(NOISES["diagonal"], seed=6, model=kde)))
    gap = kstest(flow.p_values(data), "uniform").statistic  # the negative twin: hardly trained
    assert gap > 2 * LARGEST_GAP


def test_averages_of_many_mixtures_have_a_stand_in():
    rng = np.random.RandomState(0)
    moved = [MIXTURE.means + rng.normal(size=(3, 2)) for _ in range(40)]
    members = [GaussianMixture(MIXTURE.weights, means, MIXTURE.covariances) for means in moved]
    model = MixtureFit(members, ["x", "y"])
    assert model.statistic.n_components == 12
    assert_uniform(model.p_values(measured(NOISES["diagonal"], seed=7, model=model)))


@pytest.mark.parametrize("shared", [True, False])
def test_one_gaussian_is_the_tail_of_chi_square(shared):
    model = MixtureFit([GaussianMixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)))], ["x"])
    w = np.linspace(0, 4, 100)[:, None]
    sd = np.full(1, 0.5) if shared else np.linspace(0.1, 2.0, 100)[:, None]
    exact = chi2.sf(np.square(w) / (1 + np.square(sd)), 1)[:, 0]
    p = model.p_values(Observations.from_arrays(w, laws.gaussian(sd=sd)), n_draws=20_000)
    error = np.sqrt(exact * (1 - exact) / (99_999 if shared else 20_000))
    assert (np.abs(p - exact) < 4.5 * error + 1e-4).all()


@pytest.mark.slow
def test_draws_go_on_until_small_values_are_known_and_no_longer():
    """Each threshold is reached by as many rows as it says, with any number of draws."""
    model = MixtureFit([GaussianMixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)))], ["x"])
    rng = np.random.RandomState(0)
    sd = rng.uniform(0.1, 2.0, size=(20_000, 1))
    w = rng.normal(size=sd.shape) * np.sqrt(1 + sd**2)
    data = Observations.from_arrays(w, laws.gaussian(sd=sd))
    exact = chi2.sf(w**2 / (1 + sd**2), 1)[:, 0]
    for n_draws in (19, 199):
        p = model.p_values(data, n_draws=n_draws)
        for threshold in (0.001, 0.002, 0.005, 0.01, 0.05, 0.5):
            counted, wanted = (p <= threshold * (1 + 1e-9)).sum(), (exact <= threshold).sum()
            chance = np.sqrt(len(w) * threshold + (len(w) * threshold) ** 2 / (1e5 * threshold))
            assert abs(counted - wanted) < 4 * chance, (n_draws, threshold)
        assert p.min() == 1e-4


def test_errors_that_are_too_small_are_seen():
    data = measured(NOISES["diagonal"], seed=1)
    believed = Observations.from_arrays(data.w, SD / 3)
    counted, wanted = (unusual_rows(MODEL.p_values(rows)) for rows in (believed, data))
    assert wanted.count < 25
    assert counted.count > 200
    assert counted.expected == wanted.expected == 10


def test_large_errors_are_not_unusual():
    """A low density finds the rows with large errors; a p-value does not."""
    data = measured(NOISES["diagonal"], seed=1)
    size = SD.prod(1)
    assert spearmanr(size, MODEL.log_marginal(data).log_p).statistic < -0.4
    assert abs(spearmanr(size, MODEL.p_values(data)).statistic) < 4 / np.sqrt(N)


def test_outliers_have_small_p_values():
    w, sd = MODEL.sample(200, 0), np.full((200, 2), 0.1)
    w += sd * np.random.RandomState(1).normal(size=w.shape)
    w[17], w[18], sd[19] = [6.0, 6.0], [0.0, -1.2], 1e3
    data = Observations.from_arrays(w, sd)
    p = MODEL.p_values(data)
    found = unusual_rows(p)
    assert found.smallest == 1e-4
    assert found.rows.tolist() == [17]
    assert found.q_values[17] < 0.05
    assert p[18] < 0.005  # in the gap between the components
    assert p[19] > 0.01
    assert MODEL.log_marginal(data).log_p[19] < -10
    far = Observations.from_arrays(np.array([[1e100, 0.0], [0.0, 0.0]]), 0.1)
    assert MODEL.p_values(far)[0] == 1e-5


@pytest.mark.parametrize("name", ["diagonal", "full", "student_t", "laplace", "split_normal"])
def test_a_row_gets_the_same_whatever_is_beside_it(name):
    data = measured(NOISES[name], seed=1, missing=0.0 if name == "full" else 0.2)
    whole = MODEL.p_values(data)
    some = np.random.RandomState(0).permutation(N)[:333]
    np.testing.assert_array_equal(MODEL.p_values(data[some]), whole[some])
    np.testing.assert_array_equal(MODEL.p_values(data[some[:1]]), whole[some[:1]])


def test_how_many_are_unusual():
    p = np.concatenate([[1e-4, np.nan, 1e-4, 0.004], np.linspace(0.01, 1, 2000)])
    found = unusual_rows(p)
    assert (found.threshold, found.n_rows, found.count) == (0.005, 2003, 3)
    assert found.rows.tolist() == [0, 2]
    used = ~np.isnan(p)
    np.testing.assert_array_equal(found.q_values[used], false_discovery_control(p[used]))
    assert np.isnan(found.q_values[1])
    assert str(found) == (
        "p-values: 3 of 2003 rows at 0.005 or below (10 expected if the model and the errors are "
        "right); smallest 0.0001, in row 0 (the first is 0) and 1 more"
    )
    assert unusual_rows(p, 0.5).count == (p <= 0.5).sum()
    for rows, threshold in ((1, 0.01), (1000, 0.01), (2000, 0.005), (5000, 0.002), (10**4, 0.001)):
        assert unusual_rows(np.full(rows, 0.5)).threshold == threshold


@pytest.mark.parametrize(
    ("p", "message"),
    [
        ([], r"one or more p-values of shape \(N,\); got shape \(0,\)"),
        ([np.nan], "one or more p-values"),
        ([[0.1]], r"got shape \(1, 1\)"),
        ([0.1, 1.5], "between 0 and 1; got 1.5 in row 1"),
        ([-0.1], "got -0.1 in row 0"),
    ],
)
def test_p_values_that_are_none(p, message):
    with pytest.raises(ValueError, match=message):
        unusual_rows(p)
    with pytest.raises(ValueError, match="n_draws"):
        MODEL.p_values(measured(NOISES["shared"], seed=1), n_draws=0)
