"""Every wrong case is named, and its right twin is left alone."""

import functools
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest

from benchmarks.certificate import WRONG, blobs, measured, right
from deconflow import XDGMM, Certificate, Deconvolver, Finding, Observations, noise
from deconflow.saving import from_json, to_json
from deconflow.trust import predictive_ranks, simulate_like, table, worded

ROWS = 2000


def judged(model, w, noise, **known):
    """Fit a model, and return the certificate of its fit."""
    return model.fit(w, noise=noise, **known).certify(w, noise=noise, **known)


def named(found):
    return [each.check for each in found.cautions]


def certificate(make, seed):
    w, sd, _ = make(ROWS, np.random.default_rng([seed, 7]))
    return judged(XDGMM(3, floor=0.1, random_state=0), w, sd)


@pytest.fixture(scope="module")
def sound():
    return certificate(right, 0)


@functools.cache
def wrong(task):
    """Make a certificate of a wrong fit, once."""
    return certificate(WRONG[task][0], 4)


def test_a_right_fit_is_left_alone(sound):
    assert sound.trusted
    assert "No reason for doubt" in sound.in_words()


CHECKED = [task for task, (_, check) in WRONG.items() if check]


@pytest.mark.parametrize(
    "task", [*CHECKED[::2], *(pytest.param(task, marks=pytest.mark.slow) for task in CHECKED[1::2])]
)
def test_what_is_wrong_is_named_first(task):
    """One seed of each; the benchmark has ten, and counts."""
    check, found = WRONG[task][1], wrong(task)
    assert not found.trusted
    expected = {check, "factor"} if check == "skewness" else {check}
    assert found.cautions[0].check in expected
    assert "CAUTION" in found.in_words()


def test_the_factor_is_estimated(sound):
    """Within three of its errors of one where the errors are right, of two where they are half."""
    numbers = sound.finding("factor").numbers
    assert abs(numbers["log_factor"]) < 3 * numbers["error"]
    assert wrong("errors understated twofold").finding("factor").numbers["best"] == 2.0
    found = wrong("errors overstated by half").finding("factor")
    assert found.numbers["best"] == pytest.approx(1 / 1.5)


@pytest.mark.parametrize(
    ("check", "numbers", "estimate", "words"),
    [
        ("correlation", {"z": 20.0}, {"correlation": 0.3}, "positively correlated (p 1e-05)"),
        ("correlation", {"z": -20.0}, {"correlation": -0.3}, "negatively correlated (p 1e-05)"),
        ("factor", {"log_factor": 0.5, "error": 0.1}, {"best": 1.5}, "too small (p 1e-05)"),
    ],
)
def test_only_a_fitted_alternative_has_a_gain_and_a_value(check, numbers, estimate, words):
    tested = Finding(check, 1e-5, 200.0, ("x", "y"), numbers)
    caution = worded(tested).caution
    assert words in caution
    assert not re.search(r"[-+]0\.\d|times|nats", caution)
    caution = worded(replace(tested, numbers=numbers | estimate)).caution
    assert "better by 200 nats" in caution
    assert f"{next(iter(estimate.values())):g}" in caution


def test_one_cause_is_one_caution():
    """With the errors as they are, everything else is usual; what was not wrong stays so."""
    found = wrong("errors overstated by half")
    assert named(found) == ["factor"]
    others = [each for each in found.findings if each.because]
    assert others
    assert all("explained by: size of the errors" in each.figure for each in others)
    assert f"Taken into account, it explains: {others[0].name}" in found.in_words()


def test_consequences_stand_under_their_own_cause():
    """What nothing that was tried explains is no consequence, and each cause has its own."""
    findings = (
        Finding("factor", 0.0, 9.0, name="size", explains=1, caution="first"),
        Finding("correlation", 0.0, 5.0, name="pairs", explains=2, caution="second"),
        Finding("columns", 0.0, name="columns", because="explained by: pairs"),
        Finding("tails", 0.0, name="tails", because="but nothing fits better"),
    )
    first, second, *_ = Certificate(findings=findings).sentences()
    assert first == "CAUTION: first."
    assert second == "CAUTION: second. Taken into account, it explains: columns."


def test_no_cause_explains_the_order_of_the_table():
    """Errors that are too small, in a table of 40 objects: two cautions, not one."""
    w, sd, _ = WRONG["40 objects, 50 rows each"][0](ROWS, np.random.default_rng([4, 7]))
    found = judged(XDGMM(3, floor=0.1, random_state=0), w, sd / 2)
    assert "order" in named(found)
    assert not found.finding("order").because


def test_what_no_other_noise_explains_is_no_caution():
    """A truth with heavy tails: t noise was tried, and does not fit better."""
    rng = np.random.default_rng(10)
    v = rng.standard_t(2.5, size=(ROWS, 2))
    sd = rng.uniform(0.2, 0.7, size=v.shape)
    model = Deconvolver(quick=True, random_state=0).fit(v + sd * rng.normal(size=v.shape), noise=sd)
    assert not {"tails", "outliers"} & {*named(model.certificate_)}


def test_clumps_one_after_the_other_are_no_reason_for_doubt():
    """Rows ten apart are as alike as neighbours; the twin is the table of 40 objects."""
    rng = np.random.default_rng(11)
    v = np.concatenate([rng.normal(-2, 0.3, (600, 1)), rng.normal(1, 0.6, (600, 1))])
    w = v + 0.5 * rng.normal(size=v.shape)
    found = judged(XDGMM(2, random_state=0), w, 0.5)
    assert found.finding("order").numbers["correlation"] > 0.4
    assert found.trusted
    assert "order" in named(wrong("40 objects, 50 rows each"))


def test_positive_values_ask_for_bounds_first():
    """An edge at zero; that of the truncated sample asks for a selection first."""
    rng = np.random.default_rng(12)
    v = rng.uniform(0.05, 3.0, size=(ROWS, 1))
    words = judged(XDGMM(2, random_state=0), v, 0.01).finding("edges").caution
    assert words.index("bounds=") < words.index("selection=")
    words = wrong("truncated sample").finding("edges").caution
    assert words.index("selection=") < words.index("bounds=")


@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_truths_that_depend_on_their_errors(slope):
    """Faint things are other things: the mean of the truth grows with the error."""
    rng = np.random.default_rng(0)
    sd = rng.uniform(0.2, 0.7, size=(ROWS, 1))
    v = rng.normal(size=(ROWS, 1))
    w = v + slope * sd + sd * rng.normal(size=v.shape)
    assert ("dependence" in named(judged(XDGMM(1), w, sd))) == (slope > 0)


def test_swapped_errors():
    """They are exchanged in the units of their columns."""
    rng = np.random.default_rng(1)
    v = rng.normal(size=(ROWS, 2)) * [1, 20]
    sd = rng.uniform(0.1, 0.5, size=v.shape) * [1, 6]
    w = v + sd * rng.normal(size=v.shape)
    assert judged(XDGMM(1), w, sd).trusted
    assert named(judged(XDGMM(1), w, sd[:, ::-1]))[0] == "swapped"


def test_a_model_that_is_too_simple():
    """One Gaussian for two clumps: the model is named, not the noise."""
    rng = np.random.default_rng(2)
    v = np.concatenate([rng.normal(-2, 0.5, (1000, 1)), rng.normal(2, 0.5, (1000, 1))])
    v = rng.permutation(v)
    sd = rng.uniform(0.2, 0.6, v.shape)
    w = v + sd * rng.normal(size=v.shape)
    found = named(judged(XDGMM(1), w, sd))
    assert found[0] == "model"
    assert not {*found} & {"factor", "tails", "skewness"}
    assert judged(XDGMM(2, random_state=0), w, sd).trusted


def test_laws_that_cannot_be_are_not_tried():
    """Three columns that are correlated already leave no room for every correlation more."""
    rng = np.random.default_rng(0)
    v = rng.normal(size=(ROWS, 3))
    sd = rng.uniform(0.3, 1.5, size=v.shape)
    rho = np.array([[1, 0.9, 0.0], [0.9, 1, 0.4], [0.0, 0.4, 1]])
    said = sd[:, :, None] * sd[:, None, :] * rho
    assert "correlation" in named(judged(XDGMM(1), v + sd * rng.normal(size=v.shape), said))


def test_exact_values_beside_noisy_ones():
    """T noise is no alternative where errors are zero, and a fit must not fail for it."""
    rng = np.random.default_rng(8)
    v = rng.normal(size=(1500, 2))
    sd = rng.uniform(0.2, 1, size=v.shape)
    sd[:, 1] = 0
    found = judged(XDGMM(1), v + sd * rng.standard_t(3, size=v.shape), sd)
    assert named(found)[0] == "tails"
    assert "a distribution with heavier tails" in found.in_words()


def test_a_check_that_cannot_tell_says_why():
    w, sd, _ = right(300, np.random.default_rng(0))
    few = judged(XDGMM(1), w[:99], sd[:99]).in_words()
    assert "No test could be made: there are too few rows." in few
    counts = judged(XDGMM(1), np.random.default_rng(0).poisson(9.0, (300, 1)), noise.poisson())
    assert re.search(r"doubt was found in \d checks; \d+ could not be made: ", counts.in_words())
    assert "No reason for doubt" not in few
    grouped = judged(XDGMM(1), w, sd, groups=np.arange(300) % 8)
    assert grouped.finding("joint").reason == "there are too few rows"
    assert grouped.finding("rows").numbers["rows"] == 8
    found = judged(XDGMM(1), w[np.argsort(w[:, 0])], 0.4)
    assert found.finding("order").reason == "the table is sorted by one of its columns"
    for check in ("factor", "dependence"):
        assert found.finding(check).p is None
        assert f"cannot tell: {found.finding(check).reason}" in found.in_words()
    many = judged(XDGMM(1), np.random.default_rng(0).normal(size=(90, 5)), 0.1)
    assert named(many) == ["rows"]
    assert "90 rows are few for 5 columns" in many.in_words()


def test_weights_are_no_reason_for_doubt():
    rng = np.random.default_rng(0)
    v = rng.normal(size=(1000, 2))
    sd = rng.uniform(0.2, 0.7, size=v.shape)
    w, weights = v + sd * rng.normal(size=v.shape), rng.exponential(size=1000) ** 2
    assert judged(XDGMM(1), w, sd, sample_weight=weights).trusted


def test_rows_of_a_group_are_looked_at_once():
    """Ten measurements of each object: named groups are no reason for doubt."""
    rng = np.random.default_rng(6)
    w, sd, _ = measured(np.repeat(blobs(200, rng), 10, axis=0), 0.2, 0.7, rng)
    groups = np.repeat(np.arange(200), 10)
    model = XDGMM(3, floor=0.1, random_state=0).fit(w, noise=sd, groups=groups)
    told = model.certify(w, noise=sd, groups=groups)
    assert told.finding("order").reason == "rows of a group belong together"
    assert "order" in named(model.certify(w, noise=sd))


LAWS_OF_NOISE = {
    "missing": lambda w, sd: (np.where(np.arange(w.size).reshape(w.shape) % 5 == 0, np.nan, w), sd),
    "full": lambda w, sd: (w, sd[:, :, None] * sd[:, None, :] * [[1, 0.5], [0.5, 1]]),
    "shared": lambda w, sd: (w, [0.45, 0.45]),
    "t": lambda w, sd: (w, noise.student_t(sd, 5.0)),
    "exact": lambda w, sd: (w, 0.0),
}


@pytest.mark.parametrize("kind", LAWS_OF_NOISE)
def test_every_kind_of_row(kind):
    """All p-values are probabilities; nothing warns, whatever the noise."""
    w, sd, _ = right(500, np.random.default_rng(1))
    w, law = LAWS_OF_NOISE[kind](w, sd)
    found = judged(XDGMM(3, floor=0.1, random_state=0), w, law)
    p = [each.p for each in found.findings if each.p is not None]
    assert len(p) >= 5
    assert all(0 <= each <= 1 for each in p)
    assert from_json(to_json(found, {}, "it"), Certificate, {}, "it") == found


def test_projections():
    rng = np.random.default_rng(0)
    v, R = rng.normal(size=(500, 3)), rng.normal(size=(500, 2, 3))
    sd = rng.uniform(0.2, 0.6, size=(500, 2))
    w = np.einsum("nmd,nd->nm", R, v) + sd * rng.normal(size=sd.shape)
    assert judged(XDGMM(1), w, sd, projection=R).trusted
    assert "factor" in named(judged(XDGMM(1), w, sd / 3, projection=R))


def test_units_and_offsets_change_nothing():
    w, sd, _ = WRONG["errors understated twofold"][0](500, np.random.default_rng(1))
    plain = judged(XDGMM(3, random_state=0), w, sd)
    scaled = judged(XDGMM(3, random_state=0), 1024.0 * w, 1024.0 * sd)
    for one, other in zip(plain.findings, scaled.findings, strict=True):
        assert (one.p is None) == (other.p is None)
        assert one.p is None or one.p == pytest.approx(other.p, rel=1e-6, abs=1e-12)


def test_the_same_seed_says_the_same():
    w, sd, _ = right(300, np.random.default_rng(2))
    model = XDGMM(1, random_state=0).fit(w, noise=sd)
    first = model.certify(w, noise=sd)
    assert model.certify(w, noise=sd) == first
    assert model.certify(w, noise=sd, random_state=1) != first


def test_deconvolver_certifies_its_fit_by_itself():
    w, sd, _ = right(300, np.random.default_rng(4))
    model = Deconvolver(quick=True, random_state=0).fit(w, noise=sd)
    assert model.certificate_.finding("factor").p is not None
    assert model.certificate_.held_out is not None
    again = model.certify(w, noise=sd)
    assert {each.check for each in again.findings} == {
        each.check for each in model.certificate_.findings
    }


@pytest.mark.slow
def test_p_values_are_calibrated():
    """Over 16 right fits each p-value is below .05 in at most 5 (a binomial's 99.9 %)."""
    below: dict[str, list[bool]] = {}
    for seed in range(16):
        w, sd, _ = right(1000, np.random.default_rng([seed, 99]))
        found = judged(XDGMM(6, floor=0.1, tol=1e-5, random_state=0), w, sd)
        for each in found.findings:
            if each.p is not None and each.check not in ("rows", "copies", "model", "outliers"):
                below.setdefault(each.check, []).append(each.p < 0.05)
    assert len(below) >= 9
    counts = {check: sum(hits) for check, hits in below.items()}
    assert all(len(hits) == 16 for hits in below.values())
    assert max(counts.values()) <= 5, counts
    assert sum(counts.values()) >= 0.01 * 16 * len(counts)


# -- simulated measurements compared with real ones: a perfect model is seldom doubted ------------


DATA_SETS, DRAWS = 300, 19


def perfect(n, seed):
    """The true values: standard normal."""
    return np.random.RandomState(seed).normal(size=(n, 1))


def too_wide(n, seed):
    """The negative twin."""
    return 1.5 * perfect(n, seed)


def p_values(sample, data_sets=DATA_SETS):
    p = []
    for seed in range(data_sets):
        rng = np.random.default_rng(seed + 1000)
        sd = rng.uniform(0.2, 1.0, size=(ROWS, 1))
        w = rng.normal(size=(ROWS, 1)) + sd * rng.normal(size=(ROWS, 1))
        ranks = predictive_ranks(sample, Observations.from_arrays(w, sd), DRAWS, seed)
        p.append(kstest(ranks[:, 0], "uniform").pvalue)
    return np.array(p)


def test_false_alarms_are_as_rare_as_the_p_value_says():
    p = p_values(perfect)
    assert (p < 0.01).sum() <= 8  # 3 are expected, and 15
    assert 6 <= (p < 0.05).sum() <= 26
    assert (p_values(too_wide, 5) < 0.01).all()


def test_rows_in_pieces(monkeypatch):
    """Ranks are uniform whatever is simulated at once, and missing where the value is."""
    monkeypatch.setattr(table, "ROWS_AT_ONCE", 7 * ROWS)
    w = np.random.default_rng(0).normal(size=(ROWS, 2)) * np.sqrt(2.0)
    w[3, 0] = np.nan
    data = Observations.from_arrays(w, 1.0)
    ranks = predictive_ranks(lambda n, seed: perfect(2 * n, seed).reshape(n, 2), data)
    assert np.isnan(ranks[3]).tolist() == [True, False]
    assert kstest(np.delete(ranks[:, 0], 3), "uniform").pvalue > 0.05
    (simulated,) = simulate_like(lambda n, seed: np.zeros((n, 2)), data)
    assert np.isnan(simulated[3]).tolist() == [True, False]
