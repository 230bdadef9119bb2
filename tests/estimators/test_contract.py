"""One contract: what every estimator answers, held against brute force on its own density."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kstest
from short_fits import let_flows_win, shorten
from signing import sign
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import deconflow
from deconflow import (
    XDGMM,
    BayesianXDGMM,
    Deconvolver,
    DeconvolvingKDE,
    FlowDeconvolver,
    Observations,
    UntrustedFitWarning,
)
from deconflow.estimators import ESTIMATORS
from deconflow.noise import gaussian, laplace

NAMES = ["x", "y"]
SD = np.array([0.3, 0.2])
MEAN, COVARIANCE = np.array([1.0, -2.0]), np.array([[1.0, 0.6], [0.6, 0.8]])
RNG = np.random.default_rng(0)
V = RNG.multivariate_normal(MEAN, COVARIANCE, size=1200)
W = V + SD * RNG.normal(size=V.shape)
GRID = np.linspace(-9, 8, 2401)
#: For many slices: sums of smooth densities are as good on it.
COARSE = GRID[::4]


def quick_auto(flows_win):
    """A Deconvolver of mixtures, or of one short flow that has nearly all the weight."""
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch, steps=120, n_flows=1, rows=5000)
        if flows_win:
            let_flows_win(patch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UntrustedFitWarning)  # of a flow that is so short
            return Deconvolver(n_members=1, n_jobs=1, random_state=0).fit(table(W), noise=SD)


def table(values):
    return pd.DataFrame(values, columns=NAMES)


MODELS = {
    "XDGMM": lambda: XDGMM(2, random_state=0).fit(table(W), noise=SD),
    "average of XDGMM": lambda: XDGMM("auto", random_state=0).fit(table(W), noise=SD),
    "BayesianXDGMM": lambda: BayesianXDGMM(4, n_sweeps=60, n_snapshots=5, random_state=0).fit(
        table(W), noise=SD
    ),
    "Deconvolver, mixtures": lambda: quick_auto(False),
    "Deconvolver, flows": lambda: quick_auto(True),
    "FlowDeconvolver": lambda: FlowDeconvolver(
        epochs=15, batch_size=64, hidden=32, random_state=0
    ).fit(table(W), noise=SD),
    "DeconvolvingKDE": lambda: DeconvolvingKDE().fit(table(W), noise=SD),
}
EXACT = list(MODELS)[:4]
every_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(scope="module")
def fitted():
    """Models by name, each fitted once."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = MODELS[name]()
        return made[name]

    return get


def tolerance(name):
    """Of exact answers on a fine grid, and of those from a thousand draws: five errors.

    The Gaussians of a log-spline are narrower than others: there the grid is good for 1e-5.
    """
    return 1e-5 if name in EXACT else 0.16


def slice_at(model, column, value, grid=GRID):
    """The joint density along a line: unnormalised ``p(other given column = value)``."""
    points = np.empty((len(grid), 2))
    points[:, column], points[:, 1 - column] = value, grid
    return np.exp(model.score_samples(table(points)))


# -- condition and marginal ---------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("column", [0, 1])
def test_condition_is_a_slice_of_the_joint_density(name, column, fitted):
    model = fitted(name)
    values = MEAN[column] + np.array([[-1.0], [0.0], [0.8]])
    found = model.condition(values, [column])
    p = np.stack([slice_at(model, column, value) for value in values[:, 0]])
    p /= p.sum(1, keepdims=True)
    mean = p @ GRID
    sd = np.sqrt(p @ GRID**2 - mean**2)
    assert (np.abs(found.mean[:, 0] - mean) < tolerance(name) * sd).all()
    np.testing.assert_allclose(found.sd[:, 0], sd, rtol=tolerance(name))
    assert (np.abs(found.mean[:, 0] - np.roll(mean, 1)) > 0.5 * sd).all()  # the twin
    assert found.names == [NAMES[1 - column]]


@every_model
def test_condition_with_noise_is_the_posterior_with_the_rest_unknown(name, fitted):
    """Noise of the given value widens the answer: sums over the truth by brute force."""
    model, value, sd = fitted(name), 1.8, 0.7
    found = model.condition([[value]], ["x"], noise=[sd])
    x = np.linspace(value - 5 * sd, value + 5 * sd, 101)
    kernel = np.exp(-0.5 * np.square((x - value) / sd))
    p = kernel @ np.stack([slice_at(model, 0, each, COARSE) for each in x])
    p /= p.sum()
    mean = p @ COARSE
    wanted = np.sqrt(p @ COARSE**2 - mean**2)
    assert abs(found.mean[0, 0] - mean) < max(tolerance(name), 1e-5) * wanted
    np.testing.assert_allclose(found.sd[0], wanted, rtol=max(tolerance(name), 1e-4))
    assert found.sd[0, 0] > 1.05 * model.condition([[value]], ["x"]).sd[0, 0]


@pytest.mark.parametrize("name", ["Deconvolver, flows", "XDGMM"])
def test_conditions_know_other_laws(name, fitted):
    """A Laplace law of the given value, by brute force."""
    model, value = fitted(name), 1.8
    found = model.condition([[value]], ["x"], noise=laplace([0.5]))
    x = np.linspace(-4, 6, 201)
    slices = np.stack([slice_at(model, 0, each, COARSE) for each in x])
    p = np.exp(-np.abs(x - value) / 0.5) @ slices
    assert found.mean[0, 0] == pytest.approx((p @ COARSE) / p.sum(), abs=0.1)


def test_a_value_that_a_row_does_not_know_is_left_out():
    """In three columns, two of them given: NaN is as good as a column that is not given."""
    rng = np.random.default_rng(0)
    w = rng.multivariate_normal(np.zeros(3), 0.5 * np.eye(3) + 0.5, size=600)
    sd = [0.1, 0.2, 0.3]
    model = XDGMM(2, random_state=0).fit(w, noise=sd)
    values = np.array([[1.0, np.nan], [-1.0, np.nan], [np.nan, 0.7], [0.5, 0.5]])
    found = model.condition(values, [0, 2], noise=[0.1, 0.1])
    for rows, given in (([0, 1], [0]), ([2], [2])):
        known = values[rows][:, [[0, 2].index(d) for d in given]]
        alone = model.condition(known, given, noise=[0.1]).marginal("v1")
        np.testing.assert_allclose(found.mean[rows], alone.mean, atol=1e-9)
        np.testing.assert_allclose(found.sd[rows], alone.sd, rtol=1e-9)
    np.testing.assert_allclose(found.mean[:2, 0], [0.5, -0.5], atol=0.25)


@every_model
@pytest.mark.parametrize("column", [0, 1])
def test_a_marginal_integrates_to_one_and_is_that_of_samples(name, column, fitted):
    model = fitted(name)
    margin = model.density_.marginal(NAMES[column])
    x = np.linspace(-9, 8, 801)
    p = np.exp(margin.log_prob(x[:, None]))
    assert np.trapezoid(p, x) == pytest.approx(1.0, abs=1e-3 if name in EXACT else 0.02)
    joint = [np.trapezoid(slice_at(model, column, value), GRID) for value in x[300:500:20]]
    np.testing.assert_allclose(p[300:500:20], joint, rtol=1e-4 if name in EXACT else 0.1, atol=1e-4)
    below = np.cumsum(p) * (x[1] - x[0])
    draws = model.sample(2000, random_state=0)
    assert kstest(draws[:, column], lambda v: np.interp(v, x, below)).pvalue > 1e-3
    assert kstest(draws[:, 1 - column], lambda v: np.interp(v, x, below)).pvalue < 1e-6
    assert margin.sample(5, 0).shape == (5, 1)
    assert margin.names == [NAMES[column]]
    np.testing.assert_array_equal(model.density_.marginal([column]).log_prob(x[:5, None]),
                                  margin.log_prob(x[:5, None]))  # fmt: skip


BAD_COLUMNS = {
    "unknown name": ("z", "among x, y, or numbers between 0 and 1; got 'z'"),
    "unknown number": (2, "between 0 and 1; got 2"),
    "negative": (-1, "between 0 and 1; got -1"),
    "twice": (["x", 0], "each of the columns once"),
    "none": ([], "one or more columns"),
    "a flag": (True, "got True"),
    "all": (NAMES, "some columns, but not all, to condition on; got all"),
}


@pytest.mark.parametrize(("columns", "message"), BAD_COLUMNS.values(), ids=BAD_COLUMNS)
@pytest.mark.parametrize("name", ["XDGMM", "DeconvolvingKDE"])
def test_bad_columns(name, columns, message, fitted):
    with pytest.raises(ValueError, match=message):
        fitted(name).condition([[1.0]], columns)


# -- posteriors ---------------------------------------------------------------------------------


@every_model
def test_a_posterior_is_a_sequence_of_rows(name, fitted):
    whole = fitted(name).posterior(table(W[:30]), noise=SD)
    assert whole.mean.shape == whole.sd.shape == (30, 2)
    assert whole.covariance.shape == whole.correlation.shape == (30, 2, 2)
    backwards, none = slice(None, None, -1), np.zeros(30, bool)
    for index in (3, -1, slice(2, 9, 3), backwards, [5, 1], np.arange(30) % 2 == 0, [], none):
        some = whole[index]
        wanted = np.atleast_1d(np.arange(30)[index])
        for what in ("mean", "covariance", "effective_sample_size"):
            np.testing.assert_allclose(getattr(some, what), getattr(whole, what)[wanted])
        np.testing.assert_allclose(some.quantile(0.3), whole.quantile(0.3)[wanted])
        assert len(some) == len(some.sample(4)) == len(some.to_frame(0.5)) == len(wanted)
    np.testing.assert_allclose(np.concatenate([row.mean for row in whole]), whole.mean)
    with pytest.raises(IndexError):
        whole[30]


@every_model
def test_a_posterior_knows_moments_quantiles_and_draws(name, fitted):
    answer = fitted(name).posterior(table(W[:30]), noise=SD, n_samples=2000, n_proposals=4000)
    drawn = answer.sample(2000, random_state=0)
    assert drawn.shape == answer.samples.shape == answer[:30].samples.shape == (30, 2000, 2)
    scores = (drawn.mean(1) - answer.mean) / answer.sd * 2000**0.5
    assert np.sqrt(np.mean(scores**2)) < 3  # one, and what weighted draws lose
    np.testing.assert_allclose(drawn.std(1), answer.sd, rtol=0.2)
    low, high = answer.interval(0.8)
    inside = ((drawn > low[:, None]) & (drawn < high[:, None])).mean((0, 1))
    np.testing.assert_allclose(inside, 0.8, atol=0.03)
    np.testing.assert_allclose(answer.quantile([0.1, 0.9]), [low, high])
    size = answer.sd[:, :, None] * answer.sd[:, None]
    np.testing.assert_allclose(answer.correlation, answer.covariance / size)
    infinite = np.isinf(answer.effective_sample_size)
    assert infinite.all() if name in EXACT else not infinite.any()
    assert (answer.effective_sample_size >= 1).all()
    few = fitted(name).condition([[1.0]], [0], n_samples=7)
    assert few.samples.shape == few.marginal("y").samples.shape == (1, 7, 1)


@every_model
def test_a_posterior_has_names_and_becomes_a_table(name, fitted):
    answer = fitted(name).posterior(table(W[:30]), noise=SD)
    frame = answer.to_frame(q=[0.05, 0.5])
    columns = [f"{c}_{what}" for what in ("mean", "sd", "q5", "q50") for c in NAMES]
    assert list(frame.columns) == columns + ["effective_sample_size"] * (name not in EXACT)
    np.testing.assert_array_equal(frame["y_mean"], answer.mean[:, 1])
    np.testing.assert_array_equal(frame["x_q5"], answer.quantile(0.05)[:, 0])
    turned = answer.marginal(["y", "x"])
    np.testing.assert_allclose(turned.mean, answer.mean[:, ::-1], rtol=1e-12)
    np.testing.assert_allclose(turned.covariance, answer.covariance[:, ::-1, ::-1], rtol=1e-10)
    only = answer.marginal("y")
    assert only.names == ["y"]
    np.testing.assert_allclose(only.quantile(0.9)[:, 0], answer.quantile(0.9)[:, 1])


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, [0.5, 2.0], np.nan, []])
def test_bad_quantiles(q, fitted):
    answer = fitted("XDGMM").posterior(table(W[:3]), noise=SD)
    with pytest.raises(ValueError, match="q between 0 and 1; got"):
        answer.quantile(q)


# -- slips --------------------------------------------------------------------------------------


UNFITTED = {name: make() for name, make in ESTIMATORS.items()}
SLIPS = {
    "a noise": lambda n: gaussian(sd=np.full((n, 1), 0.3)),
    "a shared noise": lambda n: gaussian(sd=[0.3]),
    "a law of torch": lambda n: torch.distributions.Normal(torch.zeros(1), torch.ones(1)),
    "a number": lambda n: 0.3,
    "a whole number": lambda n: 1,
    "sds": lambda n: np.full((n, 1), 0.3),
    "shared sd": lambda n: [0.3],
    "shared sd of one": lambda n: [1.0],
    "a table": lambda n: pd.DataFrame({"x": np.full(n, 0.3)}),
}


@pytest.mark.parametrize("slip", SLIPS)
@pytest.mark.parametrize("name", UNFITTED)
def test_noise_without_its_name_is_refused_at_once(name, slip):
    w = np.random.default_rng(0).normal(size=(2000, 1))
    noise = SLIPS[slip](2000)
    with pytest.raises(TypeError, match=r"noise by its name, as in fit\(w, noise=...\); got it as"):
        clone(UNFITTED[name]).fit(w, noise)


@pytest.mark.parametrize("name", ["XDGMM", "DeconvolvingKDE"])
def test_labels_are_no_noise(name):
    """The negative twin: scikit-learn passes labels to any estimator, which ignores them."""
    w = W[:100]
    plain = clone(UNFITTED[name]).fit(w, noise=0.1).score_samples(w)
    for labels in (np.arange(100) % 3, np.arange(100) % 2 * 1.0, list("ab" * 50)):
        with pytest.warns(UserWarning, match="noise was not given"):
            labelled = clone(UNFITTED[name]).fit(w, labels)
        exact = clone(UNFITTED[name]).fit(w, labels, noise=0.1)
        np.testing.assert_array_equal(exact.score_samples(w), plain)
        assert not np.array_equal(labelled.score_samples(w), plain)


# -- groups -------------------------------------------------------------------------------------

GROUPED = pd.DataFrame({"x": W[:120, 0]}, index=np.arange(120) + 7)
LABELS = {
    "numbers": np.arange(120) // 4,
    "text": [f"star {i // 4}" for i in range(120)],
    "pairs": [(i // 8, i % 8 // 4) for i in range(120)],
    "a series": pd.Series(np.arange(120) // 4, index=GROUPED.index),
    "a category": pd.Series(np.arange(120) // 4, index=GROUPED.index).astype("category"),
    "a tensor": torch.arange(120) // 4,
}


@pytest.mark.parametrize("groups", LABELS.values(), ids=LABELS)
def test_groups_are_labels_of_any_kind(groups):
    found = Observations.from_arrays(GROUPED, 0.3, groups=groups)
    assert found.groups.tolist() == LABELS["numbers"].tolist()


def test_groups_change_folds():
    """The negative twin: other groups are other folds; and each on its own are none."""
    choose = XDGMM("auto", random_state=0)
    plain, alone, by_four = (
        clone(choose).fit(GROUPED, noise=0.3, groups=groups).score_samples(GROUPED)
        for groups in (None, np.arange(120), LABELS["numbers"])
    )
    np.testing.assert_array_equal(plain, alone)
    assert not np.array_equal(plain, by_four)


QUERIES = {
    "score_samples": lambda m: m.score_samples([[0.0]]),
    "score_observations": lambda m: m.score_observations([[0.0]], noise=0.1),
    "p_values": lambda m: m.p_values([[0.0]], noise=0.1),
    "log_marginal": lambda m: m.log_marginal([[0.0]], noise=0.1),
    "score": lambda m: m.score([[0.0]], noise=0.1),
    "sample": lambda m: m.sample(3),
    "posterior": lambda m: m.posterior([[0.0]], noise=0.1),
    "posterior_in_chunks": lambda m: m.posterior_in_chunks([[0.0]], noise=0.1),
    "condition": lambda m: m.condition([[0.0]], [0]),
    "regress": lambda m: m.regress(0, on=1),
    "save": lambda m: m.save("nowhere"),
}
OWN = {
    "mixture_": lambda: XDGMM().mixture_,
    "predict": lambda: XDGMM().predict([[0.0]], noise=0.1),
    "convolve": lambda: XDGMM().mixture_.convolve([0.1]),
    "bic": lambda: XDGMM().bic([[0.0]], noise=0.1),
    "summary": lambda: Deconvolver().summary(),
    "candidates_": lambda: Deconvolver().candidates_,
}


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("name", UNFITTED)
def test_questions_before_a_fit(name, query):
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        QUERIES[query](clone(UNFITTED[name]))


@pytest.mark.parametrize("ask", OWN.values(), ids=OWN)
def test_questions_of_one_estimator_before_a_fit(ask):
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        ask()


# -- files --------------------------------------------------------------------------------------


def test_an_unknown_class_is_refused(fitted, tmp_path):
    fitted("XDGMM").save(tmp_path / "model")
    file = tmp_path / "model" / "model.json"
    file.write_text(file.read_text().replace('"XDGMM"', '"os.system"'))
    sign(tmp_path / "model")
    with pytest.raises(
        ValueError, match=r"a model of Deconvolver, .*XDGMM, .*got 'os\.system'\. Load"
    ):
        deconflow.load(tmp_path / "model")


# -- where rows are far -------------------------------------------------------------------------
