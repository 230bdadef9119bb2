"""What those who wait are told: how far a fit is, and how long the rest takes."""

import io
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from deconflow import XDGMM, BayesianXDGMM, FlowDeconvolver, noise
from deconflow import progress as module
from deconflow.progress import SILENT, Progress


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


@pytest.fixture
def progress(clock):
    with Progress(tell=lambda line: None) as found:
        found.plan("This fit", {"mixtures": [10.0] * 4, "flows": [20.0]})
        found.begin("mixtures")
        yield found


def test_before_anything_is_done_the_plan_counts(progress, clock):
    assert progress.seconds_left() == 60
    assert progress.status() == "mixtures, 1 of 4; about 1 min left"
    clock.seconds = 4.0
    assert progress.seconds_left() == 56


def test_the_pace_of_what_is_done_corrects_what_is_left(progress, clock):
    for clock.seconds in (20.0, 40.0, 60.0):  # twice as slow as planned
        progress.advance()
    assert progress.seconds_left() == pytest.approx(2 * (10 + 20), rel=0.02)
    progress.begin("flows")
    assert progress.seconds_left() == pytest.approx(40, rel=0.02)


def test_a_stage_can_say_better_what_it_is_made_of(progress):
    progress.expect([1.0] * 9)
    assert progress.status() == "mixtures, 1 of 9; about 30 s left"


def test_what_was_done_before_tells_nothing_of_the_pace(progress):
    progress.skip(2)
    assert progress.seconds_left() == 40
    assert "3 of 4" in progress.status()


def test_a_first_step_that_compiles_tells_nothing_of_the_pace(progress, clock):
    progress.expect([0.1] * 10)
    clock.seconds = 15.0
    progress.advance()
    assert progress.seconds_left() == pytest.approx(0.9 + 20, rel=0.01)


def test_more_than_was_expected_is_said_so(progress, clock):
    progress.begin("checks")  # nobody has planned them
    progress.expect([])
    progress._planned.clear()
    clock.seconds = 7.0
    assert progress.status() == "checks; 7 s so far"


def test_the_bar_never_shrinks_and_is_not_full_before_a_plan(clock):
    with Progress(tell=lambda line: None) as found:
        found.begin("reading")  # nobody knows how long that takes
        clock.seconds = 5.0
        assert found._grown_fraction() == 0
        found.plan("This fit", {"mixtures": [5.0, 5.0]})
        found.begin("mixtures")
        assert found._grown_fraction() == pytest.approx(1 / 3)
        found.expect([100.0])
        assert found._grown_fraction() == pytest.approx(1 / 3)


def test_the_first_line_says_a_range_and_what_is_quicker():
    lines = []
    with Progress(tell=lines.append) as found:
        found.plan("This fit", {"mixtures": [30.0]}, "XDGMM is quicker")
        found.plan("That one", {"mixtures": [0.5]}, "XDGMM is quicker")
    assert lines == [
        "This fit takes about 10 s to 1 min 30 s; XDGMM is quicker",
        "That one takes about 1 s to 2 s",
    ]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_has_a_bar_and_a_log_has_lines(monkeypatch):
    monkeypatch.setattr(module, "WRITTEN_EVERY", 0.05)
    monkeypatch.setattr(module, "REDRAWN_EVERY", 0.05)
    for stream, live in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr("sys.stderr", stream)
        with Progress() as found:
            found.begin("fitting mixtures")
            found.expect([40.0, 40.0, 40.0])
            time.sleep(0.2)
        assert ("\r" in stream.getvalue()) == live
        assert "fitting mixtures, 1 of 3; about 2 min left" in stream.getvalue()


def test_what_nobody_watches_starts_nothing():
    before = threading.active_count()
    with Progress(shown=False) as found:
        for each in (found, SILENT):
            each.plan("This fit", {"mixtures": [1.0]})
            each.begin("mixtures")
            each.expect([1.0])
            each.advance()
            each.skip(1)
        assert threading.active_count() == before
    assert SILENT._left == []
    assert SILENT._planned == {}


FITS = {
    "XDGMM, one": (XDGMM(2, random_state=0), "fitting mixtures"),
    "XDGMM, chosen": (XDGMM([1, 2], n_average=2, n_folds=2, random_state=0), "choosing components"),
    "XDGMM, auto": (XDGMM("auto", n_folds=2, random_state=0), "fitting mixtures"),
    "XDGMM, minibatch": (
        XDGMM(2, method="minibatch", epochs=2, random_state=0, tol=0), "fitting mixtures",
    ),
    "BayesianXDGMM": (BayesianXDGMM(2, n_sweeps=9, random_state=0), "sampling Bayesian mixtures"),
    "FlowDeconvolver": (
        FlowDeconvolver(epochs=2, hidden=8, random_state=0), "training the flow",
    ),
}  # fmt: skip


@pytest.mark.parametrize("law", [0.3, noise.student_t([0.3], df=4.0)], ids=["normal", "t"])
@pytest.mark.parametrize("name", FITS)
def test_who_watches_sees_the_same_answer(name, law, monkeypatch, capsys):
    model, stage = FITS[name]
    w = np.random.default_rng(0).normal(size=(60, 1))
    begun = []
    monkeypatch.setattr(Progress, "begin", lambda self, words, unit="": begun.append(words))
    alone = model.fit(w, noise=law).score_samples(w)
    assert capsys.readouterr().err == ""
    model.set_params(verbose=True)
    np.testing.assert_array_equal(model.fit(w, noise=law).score_samples(w), alone)
    model.set_params(verbose=False)
    assert stage in begun
    assert "Fitting 60 rows of 1 column takes about" in capsys.readouterr().err
    assert "_progress" not in vars(model)


def test_a_fit_that_fails_leaves_no_clock():
    before = threading.active_count()
    model = XDGMM(5, verbose=True)
    with pytest.raises(ValueError, match="Expected"):
        model.fit(np.full((3, 1), np.nan), noise=0.1)
    assert threading.active_count() == before
    assert "_progress" not in vars(model)
