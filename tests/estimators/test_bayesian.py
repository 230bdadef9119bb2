"""BayesianXDGMM: what it finds, what it takes, how it goes on, and when it warns."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from deconflow import XDGMM, BayesianXDGMM, GaussianMixture, noise
from deconflow.xd import sample_chains

SHORT = {"n_chains": 4, "n_sweeps": 120, "random_state": 0}
TRUTH = GaussianMixture(
    np.array([0.6, 0.4]),
    np.array([[-1.0, 0.0], [1.5, 1.0]]),
    np.array([[[0.3, 0.1], [0.1, 0.5]], [[0.2, -0.1], [-0.1, 0.3]]]),
)


def clumps(n, seed=0):
    rng = np.random.default_rng(seed)
    v, sd = TRUTH.sample(n, seed), rng.uniform(0.2, 0.6, size=(n, 2))
    return v, v + sd * rng.normal(size=v.shape), sd


TEST = TRUTH.sample(4000, 99)


def excess(model):
    """Nats by which the model is worse than the truth on clean rows."""
    return float((TRUTH.log_prob(TEST) - model.score_samples(TEST)).mean())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([BayesianXDGMM(2, n_sweeps=6, n_snapshots=2, n_jobs=1, random_state=0)])
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def model():
    _, w, sd = clumps(1500)
    return BayesianXDGMM(**SHORT).fit(w, noise=sd)


def test_the_truth_is_found_and_the_noise_matters(model):
    _, w, _ = clumps(1500)
    assert excess(model) < 0.02  # twelve parameters of 1,500 noisy rows: about .008
    assert excess(BayesianXDGMM(**SHORT).fit(w, noise=0.0)) > 0.05


RNG = np.random.default_rng(1)
LAWS = {
    "full": noise.gaussian(covariance=[[0.2, 0.1], [0.1, 0.3]] * RNG.uniform(0.5, 1, (500, 1, 1))),
    "student_t": noise.student_t(RNG.uniform(0.1, 0.3, (500, 2)), 4.0),
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_other_noise(law):
    w = TRUTH.sample(500, 1) + law.sample(1)[0]
    model = BayesianXDGMM(**SHORT | {"n_sweeps": 60}).fit(w, noise=law)
    assert excess(model) < 0.08  # of 500 rows; one Gaussian has 0.3


def test_missing_values():
    rng = np.random.default_rng(2)
    _, w, sd = clumps(1000, 2)
    holes = np.where(rng.uniform(size=w.shape) < 0.3, np.nan, w)
    holes = np.where(np.isnan(holes).all(1, keepdims=True), w, holes)
    assert excess(BayesianXDGMM(**SHORT).fit(holes, noise=sd)) < 0.05


def test_honest_noise_changes_nothing():
    _, w, sd = clumps(800)
    rng = np.random.default_rng(5)
    bad = np.repeat([30.0, 300.0], 100)[:, None] * np.ones(2)
    more = TRUTH.sample(200, 5) + bad * rng.normal(size=bad.shape)
    plain = BayesianXDGMM(**SHORT).fit(w, noise=sd)
    both = BayesianXDGMM(**SHORT).fit(np.r_[w, more], noise=np.r_[sd, bad])
    assert abs(excess(both) - excess(plain)) < 0.01
    assert (both.n_rows_, plain.n_rows_) == (800, 800)
    said = BayesianXDGMM(**SHORT).fit(np.r_[w, more], noise=np.r_[sd, 0 * bad + 0.3])
    assert excess(said) > 0.05  # the twin: the same rows, called precise


def test_weights_count_rows():
    _, w, sd = clumps(400)
    left, short = w[:, 0] < 0.2, SHORT | {"n_sweeps": 30}
    model = BayesianXDGMM(**short).fit(w, noise=sd, sample_weight=np.where(left, 1.0, 0.0))
    alone = BayesianXDGMM(**short).fit(w[left], noise=sd[left])
    np.testing.assert_allclose(model.score_samples(TEST), alone.score_samples(TEST), rtol=1e-9)
    tilted = BayesianXDGMM(**short).fit(w, noise=sd, sample_weight=np.where(left, 3.0, 1.0))
    plain = BayesianXDGMM(**short).fit(w, noise=sd)
    assert tilted.density_.mixture.mean[0] < plain.density_.mixture.mean[0] - 0.2


def test_the_answer_does_not_depend_on_threads():
    _, w, sd = clumps(300)
    one, two = (
        BayesianXDGMM(4, n_sweeps=20, random_state=3, n_jobs=jobs).fit(w, noise=sd)
        for jobs in (1, 3)
    )
    np.testing.assert_array_equal(one.score_samples(TEST), two.score_samples(TEST))
    other = BayesianXDGMM(4, n_sweeps=20, random_state=4, n_jobs=1).fit(w, noise=sd)
    assert not np.array_equal(one.score_samples(TEST), other.score_samples(TEST))


def test_held_out_scores_are_those_of_fresh_rows(model):
    _, w, sd = clumps(200)
    _, fresh, fresh_sd = clumps(4000, 7)
    assert model.held_out_score_ == pytest.approx(model.score(fresh, noise=fresh_sd), abs=0.07)
    assert 0 < model.chain_spread_ < 0.02
    few = BayesianXDGMM(1, n_sweeps=9, random_state=0).fit(w, noise=sd)
    assert few.chain_spread_ is None
    assert few.held_out_score_ is None


def test_an_interrupted_fit_goes_on(tmp_path, monkeypatch):
    _, w, sd = clumps(200)
    settings = {"n_chains": 4, "n_sweeps": 20, "random_state": 0, "n_jobs": 1}
    whole = BayesianXDGMM(**settings).fit(w, noise=sd)
    kept = BayesianXDGMM(**settings, checkpoint=tmp_path / "chains.npz")
    made = []

    def sample(*arguments, **options):
        made.append(1)
        if len(made) == 2:
            raise KeyboardInterrupt
        return sample_chains(*arguments, **options)

    monkeypatch.setattr("deconflow.engines.bayes.sample_chains", sample)
    with pytest.raises(KeyboardInterrupt):
        kept.fit(w, noise=sd)
    kept.fit(w, noise=sd)
    assert len(made) == 3  # the first fold was not sampled again
    np.testing.assert_array_equal(kept.score_samples(TEST), whole.score_samples(TEST))
    with pytest.raises(ValueError, match="of another fit"):
        kept.fit(w + 1, noise=sd)


def test_chains_that_do_not_agree_are_told():
    rng = np.random.default_rng(0)
    w = np.repeat(rng.normal(size=(25, 6)) * 3, 2, axis=0) + 0.01 * rng.normal(size=(50, 6))
    with pytest.warns(ConvergenceWarning, match=r"Chains differ by .* Raise n_sweeps"):
        BayesianXDGMM(4, n_sweeps=3, random_state=1, floor=0.01).fit(w, noise=np.full(6, 0.02))
    with warnings.catch_warnings(action="error"):
        BayesianXDGMM(**SHORT).fit(clumps(300)[1], noise=clumps(300)[2])


@pytest.mark.parametrize("rows", [1, 2, 5, 20])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_few_rows_in_five_columns(rows):
    rng = np.random.default_rng(rows)
    w = rng.normal(size=(rows, 5))
    model = BayesianXDGMM(2, n_sweeps=30, random_state=0).fit(w, noise=np.full(5, 0.5))
    assert np.isfinite(model.score_samples(rng.normal(size=(50, 5)))).all()


def test_few_rows_do_better_than_as_many_components():
    """Where a mixture of three overfits forty rows, the average does not."""
    _, w, sd = clumps(40, 3)
    bayes = BayesianXDGMM(**SHORT).fit(w, noise=sd)
    assert excess(bayes) < excess(XDGMM(3, random_state=0).fit(w, noise=sd))


def test_bands_come_from_snapshots_and_are_saved(tmp_path, model):
    band = model.density_.band(0)
    first = TRUTH.marginal([0])
    truth = np.exp(first.log_prob(band.points[:, None]))
    covered = ((band.lower <= truth) & (truth <= band.upper)) @ truth / truth.sum()
    assert covered > 0.6  # one data set: points go together
    shifted = np.exp(first.log_prob(band.points[:, None] - 0.5))
    assert ((band.lower <= shifted) & (shifted <= band.upper)) @ shifted / shifted.sum() < 0.5
    model.save(tmp_path / "model")
    loaded = BayesianXDGMM.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.score_samples(TEST), model.score_samples(TEST))
    np.testing.assert_array_equal(loaded.density_.band(0).upper, band.upper)


def test_a_row_of_much_weight_does_not_become_a_point():
    w = np.random.default_rng(0).normal(size=(200, 1))
    w[0] = 15.0
    weights = np.ones(200)
    weights[0] = 20.0
    model = BayesianXDGMM(4, n_sweeps=200, random_state=0, floor=1e-6)
    model.fit(w, noise=0.5, sample_weight=weights)
    assert min(mixture.covariances.min() for mixture in model.mixtures_) > 1e-4
    assert model.density_.mixture.pdf(0, np.array([15.0]))[0] > 0.005


def test_a_column_that_only_noisy_rows_measure_is_not_forgotten():
    rng = np.random.default_rng(0)
    w, sd = rng.normal(size=(400, 3)), np.full((400, 3), 0.1)
    w[20:, 2] = np.nan
    w[:20, :2] = np.nan
    w[:20, 2], sd[:20, 2] = 5 + 20 * rng.normal(size=20), 20.0
    model = BayesianXDGMM(4, n_sweeps=30, random_state=0).fit(w, noise=sd)
    assert model.n_rows_ == 400
    assert abs(model.density_.mixture.mean[2] - 5) < 10
