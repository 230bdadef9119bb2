"""A right model is recovered, a wrong one is not, and both are said in numbers and words."""

from dataclasses import replace

import numpy as np
import pytest

from deconflow import XDGMM, observe, self_test
from deconflow.answers.self_test import BINS
from deconflow.estimators import Refit, SelfTest
from deconflow.noise import gaussian

N = 600


class Overconfident(XDGMM):
    """The negative twin: it believes errors half as large as they are."""

    def fit(self, w, y=None, **facts):
        rows = observe(w, **facts)
        return super().fit(rows if self.random_state == 0 else halved(rows))  # itself it is right

    def posterior(self, w, noise=None, **options):
        return super().posterior(halved(observe(w, noise)), **options)


def halved(rows):
    return replace(rows, noise=rows.noise.divide(np.full(rows.dim, 2.0)))


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    v = np.concatenate([rng.normal(-2, 0.4, (N // 2, 2)), rng.normal(1, 0.7, (N // 2, 2))])
    sd = rng.uniform(0.3, 1.0, (N, 2))
    return v + sd * rng.normal(size=v.shape), sd


@pytest.fixture(scope="module")
def found(rows):
    w, sd = rows
    return self_test(XDGMM(2, random_state=0).fit(w, noise=sd), w, noise=sd, n_tables=4)


def test_a_right_model_is_recovered(found):
    assert found.passed, found.in_words()
    for level, nominal in (("50 %", 0.5), ("90 %", 0.9)):
        share, error = found.coverage(level)
        assert share.shape == (2,)
        assert (error < 0.03).all()
        assert (abs(share - nominal) < 4 * error).all()
    assert (found.rank_p_values > 1e-3).all()
    assert 0 < found.excess[0] < 0.1
    assert found.band_coverage is None
    assert found.in_words().splitlines()[-2].startswith("Recovered")


def test_errors_believed_half_as_large_are_found_out(rows):
    w, law = rows[0], gaussian(sd=rows[1])
    found = self_test(Overconfident(2, random_state=0).fit(w, noise=law), w, noise=law, n_tables=2)
    assert not found.passed
    assert (found.coverage("90 %")[0] < 0.85).all()
    assert (found.rank_p_values < 1e-6).all()
    assert "CAUTION: intervals of v0 hold the truth too rarely" in found.in_words()


def test_bands_are_counted(rows):
    w, sd = rows
    model = XDGMM("auto", random_state=0).fit(w, noise=sd)
    share, _ = self_test(model, w, noise=sd, n_tables=2).band_coverage
    assert 0.7 < share <= 1


def test_values_that_are_known_are_not_tested(rows):
    w, sd = rows
    model = XDGMM(1, random_state=0).fit(w, noise=sd * [0, 1])
    found = self_test(model, w, noise=sd * [0, 1], n_tables=1)
    assert found.ranks[0].sum() == 0
    assert found.ranks[1].sum() == N
    assert "v0 " not in found.in_words()
    assert found.passed


def test_the_first_tables_are_the_same_for_any_number(rows, found):
    w, sd = rows
    again = self_test(XDGMM(2, random_state=0).fit(w, noise=sd), w, noise=sd, n_tables=1)
    assert again.refits[0].ranks == found.refits[0].ranks


def made(counts, **other):
    """A result with these counts of ranks."""
    given = {
        "n_rows": 1000, "excess": 0.01, "excess_error": 0.001, "missed": 0.0,
        "band_held": None, "band_places": None, "seconds": 1.0,
    }  # fmt: skip
    return SelfTest(("x",), 2, (Refit(ranks=(tuple(counts),), **given | other),) * 2)


EVEN = [50] * BINS


def test_the_error_is_that_of_a_count_or_of_tables():
    share, error = made(EVEN).coverage("90 %")
    assert np.allclose([share, error], [[0.9], [np.sqrt(0.09 / 2000)]])
    good, bad = made(EVEN).refits[0], made([200, *[100 / 3] * 18, 200]).refits[0]
    _, error = SelfTest(("x",), 2, (good, bad)).coverage("90 %")
    assert np.allclose(error, 0.15)


@pytest.mark.parametrize(
    ("counts", "other", "passed", "words"),
    [
        (EVEN, {}, True, "Recovered"),
        ([150, *[40] * 18, 150], {}, False, "too rarely"),
        ([5] * 5 + [95] * 10 + [5] * 5, {}, False, "wider than they need be"),
        ([60] * 10 + [40] * 10, {}, False, "posteriors of x lie too high"),
        ([80, 20] * 10, {}, True, "not quite even"),
        (EVEN, {"excess": 2.0}, False, "2.00 per row away"),
        (EVEN, {"missed": 0.01}, False, "1.0% of the truth has no density"),
        (EVEN, {"band_held": 10, "band_places": 25}, False, "bands hold the truth at 40%"),
        (EVEN, {"band_held": 22, "band_places": 25}, True, "Recovered"),
        (EVEN, {"excess": None, "excess_error": None, "missed": 1.0}, False, "CAUTION"),
    ],
)
def test_words_follow_from_the_numbers(counts, other, passed, words):
    found = made(counts, **other)
    assert found.passed is passed
    assert words in found.in_words()
