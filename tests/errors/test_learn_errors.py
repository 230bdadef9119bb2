"""Errors learned from rows: found where these can tell, refused where not, and how surely."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from deconflow import GaussianMixture, Observations, noise
from deconflow.errors import learn, learn_errors
from deconflow.errors.likelihood import ErrorRows, Layout, look


def truth(kind, n, rng, dim=1):
    if kind == "skewed":
        return np.exp(0.7 * rng.normal(size=(n, dim))) / 1.02
    if kind == "bimodal":
        side = np.where(rng.random((n, 1)) < 0.4, -1.0, 0.8)
        return (side + 0.35 * rng.normal(size=(n, dim))) / 0.95
    return rng.normal(size=(n, dim))


def sizes(n, rng, low=0.1, high=1.0, dim=1):
    return np.exp(rng.uniform(np.log(low), np.log(high), (n, dim)))


def learned(w, free, **more):
    data = Observations.from_arrays(w, free.said, **more)
    return learn_errors(free, data, ["x", "y"][: data.dim], np.random.RandomState(0), 1)


def scale_of(w, sd, **more):
    return learned(w, noise.gaussian(sd=sd, scale="fit"), **more)


@pytest.mark.parametrize("kind", ["Gaussian", "skewed", "bimodal"])
def test_errors_understated_by_two(kind):
    """Standard errors are near 2.5 %; a twin whose errors are right is not found to be so."""
    rng = np.random.default_rng(2)
    v, sd = truth(kind, 5000, rng), sizes(5000, rng)
    e = sd * rng.normal(size=sd.shape)
    assert scale_of(v + 2 * e, sd).scale[0] == pytest.approx(2, rel=0.05)
    assert scale_of(v + e, sd).scale[0] == pytest.approx(1, rel=0.15)


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_should():
    """Of 30, 27 +- 1.6 hold it; intervals half as wide 18 +- 2.7."""
    z = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        v, sd = truth("Gaussian", 500, rng), sizes(500, rng)
        found = scale_of(v + 2 * sd * rng.normal(size=sd.shape), sd)
        z.append(abs(found.scale[0] - 2) / found.scale_error[0])
    assert np.sum(np.array(z) < 1.645) >= 23
    assert np.sum(np.array(z) < 1.645 / 2) < 23


def repeated(seed, n=600, kind="bimodal"):
    rng = np.random.default_rng(seed)
    which = np.repeat(np.arange(n), 2)
    sd = sizes(2 * n, rng)
    e = rng.normal(size=sd.shape) * np.hypot(1.5 * sd, 0.3)
    return truth(kind, n, rng)[which] + e, sd, which


def test_replicates_tell_scale_and_jitter_apart():
    w, sd, which = repeated(0)
    found = learned(w, noise.gaussian(sd=sd, scale="fit", jitter="fit", replicates=which))
    assert abs(found.scale[0] - 1.5) < 3 * found.scale_error[0] < 0.3
    assert abs(found.jitter[0] - 0.3) < 3 * found.jitter_error[0] < 0.15
    assert -0.95 < found.tied[0] < -0.2
    assert not found.doubtful()
    wrong = learned(w, noise.gaussian(sd=sd, jitter="fit", replicates=which))  # scale one is not so
    assert abs(wrong.jitter[0] - 0.3) > 3 * wrong.jitter_error[0]


def test_hardly_told_is_said(rng):
    """Errors that differ by little leave scale and jitter tied, though there are replicates."""
    which = np.repeat(np.arange(200), 2)
    sd = sizes(400, rng, 0.5, 0.65)
    w = truth("Gaussian", 200, rng)[which] + sd * rng.normal(size=sd.shape)
    found = learned(w, noise.gaussian(sd=sd, scale="fit", jitter="fit", replicates=which))
    assert found.doubtful() == ["scale and jitter of x apart"]
    assert found.finding().p == 0


def test_zero_points():
    rng = np.random.default_rng(3)
    n, shift = 2000, np.array([0.3, -0.1, -0.2])
    group, sd = rng.choice(3, n, p=[0.6, 0.3, 0.1]), sizes(n, rng)
    w = truth("skewed", n, rng) + sd * rng.normal(size=sd.shape) + shift[group][:, None]
    labels = np.array(["A", "B", "C"])[group]
    found = learned(w, noise.gaussian(sd=sd, groups=labels))
    own = shift[["ABC".index(label) for label in found.groups]]
    assert (np.abs(found.shifts[:, 0] - own) < 3 * found.shifts_error[:, 0]).all()
    assert found.shifts.sum() == pytest.approx(0, abs=1e-12)
    by_chance = learned(w, noise.gaussian(sd=sd, groups=rng.permutation(labels)))
    assert (np.abs(by_chance.shifts) < 3 * by_chance.shifts_error).all()


def test_objects_in_two_groups_make_zero_points_sharper():
    rng = np.random.default_rng(5)
    which, group = np.repeat(np.arange(400), 2), np.tile([0, 1], 400)
    sd = np.full((800, 1), 0.2)
    w = 3 * truth("Gaussian", 400, rng)[which] + sd * rng.normal(size=sd.shape)
    w += np.where(group == 0, 0.1, -0.1)[:, None]
    alone = learned(w, noise.gaussian(sd=sd, groups=group))
    paired = learned(w, noise.gaussian(sd=sd, groups=group, replicates=which))
    assert abs(paired.shifts[0, 0] - 0.1) < 3 * paired.shifts_error[0, 0]
    assert paired.shifts_error[0, 0] < alone.shifts_error[0, 0] / 5


def test_correlation_of_errors_beside_that_of_the_truth():
    rng = np.random.default_rng(6)
    n = 3000
    v, sd = truth("bimodal", n, rng, 2), sizes(n, rng, dim=2)  # of correlation 0.85
    e = rng.normal(size=(n, 2))
    e[:, 1] = -0.5 * e[:, 0] + np.sqrt(0.75) * e[:, 1]
    found = learned(v + sd * e, noise.gaussian(sd=sd, correlation="fit"))
    assert abs(found.correlation[0, 1] + 0.5) < 3 * found.correlation_error[0, 1] < 0.2
    independent = learned(
        v + sd * rng.normal(size=(n, 2)), noise.gaussian(sd=sd, correlation="fit")
    )
    assert abs(independent.correlation[0, 1]) < 3 * independent.correlation_error[0, 1]


def test_full_covariances_have_a_scale():
    rng = np.random.default_rng(7)
    sd = sizes(3000, rng)
    S = sd[:, :, None] ** 2 * np.array([[1.0, 0.6], [0.6, 1.0]])
    e = rng.normal(size=(3000, 2)) @ np.linalg.cholesky(S[0] / sd[0, 0] ** 2).T * sd
    w = truth("bimodal", 3000, rng, 2) + 2 * e
    found = learned(w, noise.gaussian(covariance=S, scale="fit"))
    assert found.scale == pytest.approx(2, rel=0.08)


def test_units_weights_and_missing_values():
    rng = np.random.default_rng(8)
    v, sd = truth("bimodal", 1500, rng, 2), sizes(1500, rng, dim=2)
    w = v + 2 * sd * rng.normal(size=sd.shape)
    usual = scale_of(w, sd)
    other = scale_of(7 + w * [1e3, 1e-3], sd * [1e3, 1e-3])
    assert other.scale == pytest.approx(usual.scale, rel=1e-3)
    junk = np.r_[w, 100 * rng.normal(size=(50, 2))]
    weights = np.r_[np.ones(1500), np.zeros(50)]
    left_out = scale_of(junk, np.r_[sd, sd[:50]], weights=weights)
    assert left_out.scale == pytest.approx(usual.scale, rel=1e-3)
    w[rng.random(w.shape) < 0.2] = np.nan
    w[np.isnan(w).all(1), 0] = 0.0
    assert scale_of(w, sd).scale == pytest.approx(2, rel=0.15)


def test_rows_that_belong_together_count_once():
    """Copies in groups are no more rows than there were; on their own they would be."""
    rng = np.random.default_rng(9)
    v, sd = truth("Gaussian", 500, rng), sizes(500, rng)
    w, which = v + 2 * sd * rng.normal(size=sd.shape), np.repeat(np.arange(500), 4)
    once = scale_of(w, sd)
    together = scale_of(w[which], sd[which], groups=which)
    alone = scale_of(w[which], sd[which])
    assert together.scale_error == pytest.approx(once.scale_error, rel=0.02)
    assert alone.scale_error == pytest.approx(once.scale_error / 2, rel=0.02)


def test_of_many_rows_some_are_taken(monkeypatch):
    monkeypatch.setattr("deconflow.errors.learn.MOST_ROWS", 1000)
    w, sd, which = repeated(2, n=1500)
    which[2000:] = 10_000 + np.arange(1000)  # measured once
    found = learned(w, noise.gaussian(sd=sd, scale="fit", jitter="fit", replicates=which))
    assert abs(found.scale[0] - 1.5) < 3 * found.scale_error[0]


RNG = np.random.default_rng(0)
W, SD = RNG.normal(size=(40, 2)), sizes(40, RNG, dim=2)
TWICE = np.repeat(np.arange(20), 2)
EQUAL = np.full((40, 2), 0.5)
HALF_SEEN = np.where((np.arange(40) < 20)[:, None] & [False, True], np.nan, W)


def refused(w=W, projection=None, rows=slice(None), **arguments):
    free = noise.gaussian(**{"sd": SD, **arguments})[rows]
    return learned(w[rows], free, projection=projection)


REFUSED = {
    "equal errors": (
        {"sd": EQUAL, "scale": "fit"},
        "errors that are the same in all rows cannot be told from the width of the truth. Give rep",
    ),
    "one column of equal errors": (
        {"sd": np.c_[SD[:, 0], EQUAL[:, 1]], "scale": "fit"}, "errors of y that differ by row",
    ),
    "jitter alone": ({"jitter": "fit"}, "told from a broader distribution. Give replicates"),
    "no repeats": (
        {"jitter": "fit", "replicates": range(40)}, "a different one in every row",
    ),
    "both of equal errors": (
        {"sd": EQUAL, "scale": "fit", "jitter": "fit", "replicates": TWICE}, "Learn one of the two",
    ),
    "no errors": ({"sd": 0 * SD, "scale": "fit", "replicates": TWICE}, "errors above zero in x"),
    "correlation of equal errors": (
        {"sd": EQUAL, "correlation": "fit"}, "cannot be told from a correlation of the truth",
    ),
    "one group": ({"groups": ["A"] * 40}, "at least 2 groups of the noise"),
    "no label": ({"groups": [None, *["A"] * 39]}, "a label for every row in groups"),
    "a group that never measures a column": (
        {"w": HALF_SEEN, "groups": np.repeat(["A", "B"], 20)},
        "values of y in every group of the noise; got none in 'A",
    ),
    "a projection": ({"scale": "fit", "projection": np.eye(2)}, "no projection"),
    "few rows": ({"scale": "fit", "rows": slice(5)}, "at least 10 truths"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "words"), REFUSED.values(), ids=REFUSED)
def test_what_rows_cannot_tell_is_refused(arguments, words):
    with pytest.raises(ValueError, match=r"^Expected .*; got .*") as found:
        refused(**arguments)
    assert words in str(found.value)


# -- likelihood of rows with open errors: against differences, and against the law written out ----


COUNTS = [1, 1, 2, 3, 1, 4, 1, 1, 2]
MIXTURE = GaussianMixture(
    np.array([0.3, 0.7]),
    np.array([[-0.5, 0.2], [0.6, 0.1]]),
    np.array([[[1.0, 0.2], [0.2, 0.5]], [[0.3, -0.1], [-0.1, 0.6]]]),
)


def rows(*, missing=True, dim=2):
    rng = np.random.default_rng(0)
    n = sum(COUNTS)
    seen = np.ones((n, dim), bool)
    if missing:
        seen[[0, 3, 9], 0] = seen[[1, 5], 1] = False
    sd = rng.uniform(0.3, 1.0, (n, dim))
    said = np.where(seen, sd**2, 0.0)[:, :, None] * np.eye(dim)
    first = np.r_[0, np.cumsum(COUNTS)[:-1]]
    w = np.where(seen, rng.normal(size=(n, dim)), 0.0)
    return ErrorRows(w, seen, said, rng.integers(0, 3, n), first, np.ones(len(first)))


@pytest.mark.parametrize("correlation", [True, False])
def test_scores_are_the_slopes(monkeypatch, correlation):
    monkeypatch.setattr(learn, "NARROWEST", 0.0)  # it widens whatever takes a step
    data, layout = rows(), Layout(2, True, True, correlation, 3)
    theta = np.r_[0.1, -0.2, 0.05, 0.02, [0.3] * correlation, 0.1, 0.2, -0.1, 0.05]
    scores = look(data, layout, theta, MIXTURE).scores().sum(0)
    found = np.empty_like(scores)
    for j in range(len(scores)):
        step = np.zeros(len(scores))
        step[j] = 1e-6
        ends = [
            look(
                data, layout, theta + s[: layout.size], learn.moved(MIXTURE, s[layout.size :])
            ).log_likelihood
            for s in (step, -step)
        ]
        found[j] = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(found, scores, rtol=1e-5, atol=1e-5)


def test_rows_of_an_object_share_its_truth():
    """Stacked, they are one Gaussian whose blocks beside the diagonal are the truth's."""
    data, layout = rows(missing=False), Layout(2, True, True, True, 3)
    theta = np.array([0.1, -0.2, 0.05, 0.02, 0.3, 0.1, 0.2, -0.1, 0.05])
    values = layout.values(theta)
    one = GaussianMixture(np.ones(1), MIXTURE.means[:1], MIXTURE.covariances[:1])
    found = look(data, layout, theta, one).log_p
    assert values.shifts.sum(0) == pytest.approx(0, abs=1e-12)
    for j, first in enumerate(data.first):
        mine = slice(first, first + COUNTS[j])
        y = data.w[mine] - values.shifts[data.group[mine]]
        variance = np.einsum("nii->ni", data.said[mine]) * values.scale**2 + values.jitter**2
        errors = np.sqrt(variance)
        whole = np.kron(np.ones((COUNTS[j],) * 2), one.covariances[0])
        for r, sd in enumerate(errors):
            here = slice(2 * r, 2 * r + 2)
            whole[here, here] += np.outer(sd, sd) * values.correlation
        law = multivariate_normal(np.tile(one.means[0], COUNTS[j]), whole)
        assert found[j] == pytest.approx(law.logpdf(y.ravel()), abs=1e-8)


def test_missing_values_say_nothing():
    """Whatever stands there, and however large its error is said to be."""
    data, layout = replace(rows(), group=None), Layout(2, True, False, False, 0)
    one = look(data, layout, np.zeros(2), MIXTURE)
    single = GaussianMixture(np.ones(1), np.zeros((1, 2)), np.eye(2)[None])
    alone = look(data, layout, np.zeros(2), single).log_p[0]  # its first column is missing
    expected = multivariate_normal(0, 1 + data.said[0, 1, 1]).logpdf(data.w[0, 1])
    idle = -0.5 * np.log(2 * np.pi * 1e12)
    assert alone - idle == pytest.approx(expected, abs=1e-6)
    assert (one.scores()[0, 0], one.scores()[1, 1]) == (0, 0)


def test_impossible_correlations_are_brought_back():
    layout = Layout(3, False, False, True, 0)
    found = layout.values(layout.feasible(np.array([0.9, 0.9, -0.9]))).correlation
    assert np.linalg.eigvalsh(found)[0] > 0
    kept = np.array([0.5, 0.2, -0.3])
    np.testing.assert_array_equal(layout.feasible(kept), kept)
