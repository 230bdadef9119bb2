"""Classes of noisy measurements: scikit-learn's contract, calibration, and every form of noise."""

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from deconflow import XDGMM, DeconvolvedClassifier, DeconvolvingKDE, FlowDeconvolver
from deconflow.noise import gaussian, laplace

MEANS = {"galaxy": [-0.7, 0.0], "star": [0.7, 0.6]}
SPREAD = 0.5


def simulated(n, seed=0):
    """Two Gaussian classes, one of three rows the second, with errors that differ by row."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.uniform(size=n) < 1 / 3, "star", "galaxy")
    v = np.array([MEANS[label] for label in y]) + SPREAD * rng.normal(size=(n, 2))
    sd = rng.choice([0.1, 0.5, 2.5], size=(n, 2))
    return v + sd * rng.normal(size=(n, 2)), y, sd


def by_formula(w, sd):
    """Probability of a star, from the classes as they are."""
    variance = SPREAD**2 + sd**2
    log_p = {label: -0.5 * (np.square(w - mean) / variance).sum(1) for label, mean in MEANS.items()}
    return 1 / (1 + 2 * np.exp(log_p["galaxy"] - log_p["star"]))


W, Y, SD = simulated(3000)
NEW, TRUE, NEW_SD = simulated(4000, seed=1)


def classifier(**settings):
    return DeconvolvedClassifier(XDGMM(1, random_state=0), **settings)


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(W, Y, noise=SD)


@pytest.mark.filterwarnings("ignore:noise was not given")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [classifier()],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": "a class of one row of weight 4 is too few"
    },
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


# -- probabilities ------------------------------------------------------------------------------


def miscalibration(p, is_star):
    """Largest surplus of stars in a tenth of the probabilities, in standard errors."""
    bins = np.minimum((10 * p).astype(int), 9)
    off, variance = (np.bincount(bins, x, 10) for x in (is_star - p, p * (1 - p)))
    return np.abs(off / np.sqrt(np.maximum(variance, 1e-9))).max()


def test_probabilities_are_calibrated_and_those_without_noise_are_not(fitted):
    p = fitted.predict_proba(NEW, noise=NEW_SD)
    np.testing.assert_allclose(p.sum(1), 1.0)
    assert list(fitted.classes_) == ["galaxy", "star"]
    np.testing.assert_allclose(fitted.class_prior_, [2 / 3, 1 / 3], atol=0.03)
    best = by_formula(NEW, NEW_SD)
    assert np.abs(p[:, 1] - best).mean() < 0.02
    assert miscalibration(p[:, 1], TRUE == "star") < 4
    blind = classifier().fit(W, Y, noise=0.0).predict_proba(NEW, noise=0.0)
    assert miscalibration(blind[:, 1], TRUE == "star") > 8  # the twin
    losses = [log_loss(TRUE, each) for each in (np.column_stack([1 - best, best]), p, blind)]
    assert losses[1] - losses[0] < 0.003
    assert losses[2] - losses[1] > 0.05


def test_predictions_follow_from_probabilities(fitted):
    p = fitted.predict_proba(NEW, noise=NEW_SD)
    predicted = fitted.predict(NEW, NEW_SD)
    np.testing.assert_array_equal(predicted, np.where(p[:, 1] > p[:, 0], "star", "galaxy"))
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(NEW, noise=NEW_SD)), p)
    right = fitted.score(NEW, TRUE, noise=NEW_SD)
    assert right == (predicted == TRUE).mean() > 0.8
    assert fitted.score(NEW, TRUE, noise=NEW_SD, sample_weight=predicted == TRUE) == 1.0


def test_far_rows_keep_a_class(fitted):
    far = fitted.predict_log_proba([[60.0, 60.0]], noise=[[0.1, 0.1]])
    assert np.isfinite(far).all()
    assert fitted.predict([[60.0, 60.0]], noise=[[0.1, 0.1]]) == ["star"]


def test_a_class_out_of_reach_has_no_probability():
    """Its density is zero in double precision, where the other's is not."""
    y, scale = np.repeat([0, 1], 50), np.repeat([1e-6, 1e151], 50)
    w = scale[:, None] * np.random.default_rng(0).normal(size=(100, 1))
    model = classifier().fit(w, y, noise=0.0)
    p = model.predict_proba([[0.0], [1e151], [1e-6], [-1e150]], noise=0.0)
    np.testing.assert_allclose(p, [[1, 0], [0, 1], [1, 0], [0, 1]], atol=1e-100)
    near = classifier().fit(w / scale[:, None], y, noise=0.0)
    with pytest.raises(ValueError, match="got row 1 of w, whose density is zero in every class"):
        near.predict([[0.0], [1e152]], noise=0.0)


# -- every form of rows and noise ---------------------------------------------------------------

SHARED = np.array([0.4, 0.3])
FORMS = {
    "rows": SD,
    "list": SD.tolist(),
    "covariances": SD[:, :, None] ** 2 * np.eye(2),
    "noise": gaussian(sd=SD),
    "laplace": laplace(SD),
    "tensor": torch.from_numpy(SD),
    "frame": pd.DataFrame(SD, columns=["e_x", "e_y"]),
    "shared": SHARED,
    "shared covariance": np.diag(SHARED**2),
    "shared noise": gaussian(sd=SHARED),
    "law": torch.distributions.MultivariateNormal(torch.zeros(2), torch.diag(torch.ones(2))),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_class_gets_the_noise_of_its_rows(form):
    noise, w = FORMS[form], pd.DataFrame(W, columns=["x", "y"])
    model = classifier().fit(w, Y, noise=noise)
    stars = Y == "star"
    shared = "shared" in form or form == "law"
    own = noise if shared or form == "frame" else noise[stars] if form != "list" else SD[stars]
    if form == "frame":
        alone = XDGMM(1, random_state=0).fit(w[stars], noise=noise[stars])
    else:
        alone = XDGMM(1, random_state=0).fit(W[stars], noise=own)
    np.testing.assert_allclose(model.estimators_[1].covariances_, alone.covariances_, rtol=1e-6)
    if not shared:  # the twin: noise of other rows
        other = XDGMM(1, random_state=0).fit(W[stars], noise=SD[: stars.sum()])
        assert not np.allclose(other.covariances_, alone.covariances_, rtol=1e-2)
    assert list(model.feature_names_in_) == model.estimators_[0].density_.names == ["x", "y"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = model.predict_proba(w, noise=noise)
        model.estimators_[0].posterior(w, noise=noise)
    assert p.shape == (3000, 2)


def test_classes_of_as_few_rows_as_columns():
    """Standard deviations of two rows of two values could be taken for a covariance."""
    w = np.array([[0.0, 0.0], [1.0, 0.5], [5.0, 5.0], [6.0, 5.5]])
    model = classifier().fit(w, [0, 0, 1, 1], noise=np.full((4, 2), 0.3))
    np.testing.assert_array_equal(model.predict(w, noise=np.full((4, 2), 0.3)), [0, 0, 1, 1])


def test_missing_values():
    rng = np.random.default_rng(2)
    w, sd, new = W.copy(), SD.copy(), NEW.copy()
    holes = rng.uniform(size=len(w)) < 0.3
    w[holes, 1], sd[holes, 1], new[:2000, 1] = np.nan, np.nan, np.nan
    model = classifier().fit(w, Y, noise=sd)
    p = model.predict_proba(new, noise=NEW_SD)
    assert miscalibration(p[:, 1], TRUE == "star") < 4
    seen = np.where(np.isnan(new), 1e6, NEW_SD)  # a value of no use is as good as none
    assert np.abs(p[:, 1] - by_formula(np.nan_to_num(new), seen)).mean() < 0.02
    kde = DeconvolvedClassifier(DeconvolvingKDE())
    with pytest.raises(ValueError, match=r"class galaxy .*complete rows in w with DeconvolvingKDE"):
        kde.fit(w[:300], Y[:300], noise=0.3)
    kde.fit(W[:300], Y[:300], noise=0.3)
    with pytest.raises(ValueError, match="complete rows in w with DeconvolvingKDE"):
        kde.predict(new, noise=0.3)


def test_projections():
    rng = np.random.default_rng(3)
    R = np.where(rng.uniform(size=(3000, 1, 1)) < 0.5, [[[1.0, 0.0]]], [[[0.0, 1.0]]])
    seen = np.einsum("nmd,nd->nm", R, W), np.einsum("nmd,nd->nm", R, SD)
    model = classifier().fit(seen[0], Y, noise=seen[1], projection=R)
    right = model.score(seen[0], Y, noise=seen[1], projection=R)
    assert model.estimators_[1].n_latent_ == 2
    assert right > 0.7
    one = [[0.7]], [0.1]
    p = [model.predict_proba(*one, projection=each)[0, 1] for each in ([[[1, 0]]], [[[0, 1]]])]
    assert p[0] > p[1] + 0.1


def test_weights_are_those_of_rows():
    weights = np.where(Y == "star", 2.0, 1.0) * (np.arange(3000) % 3 != 0)
    model = classifier().fit(W, Y, noise=SD, sample_weight=weights)
    stars = weights[Y == "star"].sum() / weights.sum()
    np.testing.assert_allclose(model.class_prior_, [1 - stars, stars])
    keep = (weights > 0) & (Y == "star")
    alone = XDGMM(1, random_state=0).fit(W[keep], noise=SD[keep])
    np.testing.assert_allclose(model.estimators_[1].means_, alone.means_, rtol=1e-6)


def test_priors():
    by_name = classifier(priors={"star": 0.9, "galaxy": 0.1}).fit(W, Y, noise=SD)
    by_order = classifier(priors=[0.1, 0.9]).fit(W, Y, noise=SD)
    np.testing.assert_allclose(by_name.class_prior_, [0.1, 0.9])
    found = [each.predict_log_proba(NEW, NEW_SD) for each in (by_name, by_order)]
    np.testing.assert_allclose(*found)
    shares = classifier().fit(W, Y, noise=SD)
    odds = np.diff(found[0]) - np.diff(shares.predict_log_proba(NEW, NEW_SD))
    wanted = np.log(9) - np.diff(np.log(shares.class_prior_))
    np.testing.assert_allclose(odds, np.broadcast_to(wanted, odds.shape))


@pytest.mark.parametrize("kind", [int, float, str, bool, object, "category"])
def test_labels_of_any_type(kind):
    y = pd.Series(np.where(Y == "star", 1, 0)).astype(kind)
    predicted = classifier().fit(W, y, noise=SD).predict(W[:50], noise=SD[:50])
    assert {*predicted.tolist()} == {*np.unique(np.asarray(y)).tolist()}
    assert (predicted == np.asarray(y)[:50]).mean() > 0.6


def test_three_classes_and_draws():
    """Of an estimator whose log p(w) is made of draws."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=600)
    w = 4.0 * y[:, None] + rng.normal(size=(600, 1)) * 1.1
    flow = FlowDeconvolver(epochs=3, hidden=8, random_state=0)
    model = DeconvolvedClassifier(flow).fit(w, y, noise=0.3)
    assert model.predict_proba(w, noise=0.3).shape == (600, 3)
    assert model.score(w, y, noise=0.3) > 0.9


def test_search_passes_the_noise_on():
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(classifier(), {"estimator__n_components": [1, 2]}, cv=3)
        search.fit(W[:600], Y[:600], noise=SD[:600])
        assert search.score(NEW, TRUE, noise=NEW_SD) > 0.75
    assert search.best_score_ > 0.75


# -- what is refused ----------------------------------------------------------------------------

FEW = np.where(np.arange(3000) == 7, "rare", Y)
BAD = {
    "one class": (
        lambda: classifier().fit(W, ["a"] * 3000, noise=SD),
        r"2 classes; got 1 class, a",
    ),
    "few rows": (lambda: classifier().fit(W, FEW, noise=SD), r"2 rows .* got 1 in class rare"),
    "no weight": (
        lambda: classifier().fit(W, Y, noise=SD, sample_weight=1.0 * (Y == "star")),
        r"2 rows of positive weight in each class; got 0 in class galaxy",
    ),
    "too few for the estimator": (
        lambda: DeconvolvedClassifier(DeconvolvingKDE()).fit(
            [[2.0], [2.0], [2.0], [1.0], [0.0]], [0, 0, 0, 1, 1], noise=0.1
        ),
        r"class 0 that can be fitted; got 3 rows that cannot.* one value in column 0",
    ),
    "length": (lambda: classifier().fit(W, Y[1:], noise=SD), r"y with 3000 labels.*got 2999"),
    "no labels": (
        lambda: classifier().fit(W, None, noise=SD),
        r"label for each row as y; got none",
    ),
    "numbers": (lambda: classifier().fit(W, SD[:, 0] * W[:, 0], noise=SD), r"as y; got others"),
    "missing label": (lambda: classifier().fit(W, [np.nan, *[1.0] * 2999], noise=SD), r"as y; got"),
    "no label": (lambda: classifier().fit(W, ["b", None, *["a"] * 2998], noise=SD), r"as y; got"),
    "mixed": (
        lambda: classifier().fit(W, np.array(["b", 1, *["a"] * 2998], object), noise=SD),
        r"as y; got others",
    ),
    "table of labels": (lambda: classifier().fit(W, SD, noise=SD), r"as y; got others"),
    "index": (
        lambda: classifier().fit(
            pd.DataFrame(W, columns=["x", "y"]), pd.Series(Y, range(1, 3001)), noise=SD
        ),
        r"y with the index of w",
    ),
    "estimator": (lambda: DeconvolvedClassifier(3).fit(W, Y, noise=SD), r"estimator as one.*got 3"),
    "priors": (lambda: classifier(priors=[1.0]).fit(W, Y, noise=SD), r"priors .*got \[1\.0\]"),
    "sum": (lambda: classifier(priors=[1.0, 1.0]).fit(W, Y, noise=SD), r"sum to 1"),
    "unknown class": (
        lambda: classifier(priors={"star": 0.5, "quasar": 0.5}).fit(W, Y, noise=SD),
        r"priors for the classes galaxy, star; got them for star, quasar",
    ),
    "noise of other rows": (lambda: classifier().fit(W, Y, noise=SD[1:]), r"Expected noise"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_bad_questions(fitted):
    with pytest.raises(ValueError, match="Expected noise, because the model was fitted with noise"):
        fitted.predict(W)
    with pytest.raises(ValueError, match="3 features"):
        fitted.predict(np.ones((2, 3)), noise=0.1)
    with pytest.raises(NotFittedError):
        classifier().predict(W, noise=SD)
    with pytest.raises(ValueError, match="y with 3000 labels"):
        fitted.score(W, Y[:5], noise=SD)


def test_a_fit_that_fails_changes_nothing(fitted):
    model = clone(fitted).fit(W, Y, noise=SD)
    before = model.predict_proba(NEW, noise=NEW_SD)
    with pytest.raises(ValueError, match="1 class"):
        model.fit(W[:, :1], ["a"] * 3000, noise=0.1)
    np.testing.assert_array_equal(model.predict_proba(NEW, noise=NEW_SD), before)
