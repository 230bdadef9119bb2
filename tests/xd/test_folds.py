"""Folds: no group is parted, rows are shared out evenly, and without groups nothing has changed."""

import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deconflow import XDGMM, BayesianXDGMM, Deconvolver, Observations
from deconflow.auto import fit_density
from deconflow.engines import bayes
from deconflow.xd import (
    Candidate,
    CrossFits,
    FitSettings,
    PreparedData,
    Stopping,
    fit_averaged,
    make_folds,
)


def observe(n, groups=None, w=None):
    w = np.random.default_rng(0).normal(size=(n, 2)) if w is None else w
    return Observations.from_arrays(w, 0.1, groups=groups)


def numbers(folds, n):
    """The fold of every row; each is held out once, and kept in all other folds."""
    number = np.full(n, -1)
    for f, fold in enumerate(folds):
        assert (number[fold.held] == -1).all()
        assert sorted([*fold.held, *fold.kept]) == list(range(n))
        number[fold.held] = f
    assert (number >= 0).all()
    return number


def parted(number, groups):
    return [group for group in {*groups} if len({*number[np.asarray(groups) == group]}) > 1]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 12), min_size=2, max_size=80),
    st.integers(2, 6),
    st.integers(0, 1000),
)
def test_no_group_is_parted(groups, n_folds, seed):
    if len({*groups}) < 2:
        groups = [*groups, -1]
    n, data = len(groups), observe(len(groups), groups)
    folds = make_folds(data, n_folds, np.random.RandomState(seed))
    number = numbers(folds, n)
    assert len(folds) == min(n_folds, len({*groups}))
    assert not parted(number, groups)
    sizes, largest = np.bincount(number), np.unique(groups, return_counts=True)[1].max()
    assert sizes.min() > 0
    assert sizes.max() - sizes.min() <= largest
    again = make_folds(data, n_folds, np.random.RandomState(seed))
    assert (numbers(again, n) == number).all()


def test_rows_on_their_own_would_be_parted():
    """The negative twin."""
    groups = np.repeat(np.arange(20), 5)
    number = numbers(make_folds(observe(100), 5, np.random.RandomState(0)), 100)
    assert len(parted(number, groups)) > 15


def test_folds_of_rows_with_missing_values_are_those_of_before():
    w = np.random.default_rng(0).normal(size=(11, 2))
    w[[0, 3, 4, 8], 1] = np.nan
    folds = make_folds(observe(11, w=w), 3, np.random.RandomState(0))
    assert [fold.held.tolist() for fold in folds] == RECORDED


#: What the rule gave before there were groups.
RECORDED = [[3, 4, 5, 9], [2, 7, 8, 10], [0, 1, 6]]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5))
def test_rare_columns_are_left_to_every_fit(seed, n_folds):
    """A column that two groups measure is never all in one fold."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(12, size=60)
    w = rng.normal(size=(60, 3))
    measuring = rng.choice(np.unique(groups), size=2, replace=False)
    w[~np.isin(groups, measuring), 2] = np.nan
    w[rng.random(60) < 0.2, 1] = np.nan
    folds = make_folds(observe(60, groups, w), n_folds, np.random.RandomState(seed))
    number = numbers(folds, 60)
    assert not parted(number, groups)
    assert all(np.isfinite(w[fold.kept]).any(0).all() for fold in folds)


def test_a_column_of_one_group_is_refused():
    w = np.random.default_rng(0).normal(size=(60, 2))
    groups = np.repeat(np.arange(12), 5)
    w[5:, 1] = np.nan
    with pytest.raises(
        ValueError, match=r"in at least 2 groups of rows.*got column 1 in one group"
    ):
        make_folds(observe(60, groups, w), 5, np.random.RandomState(0))
    make_folds(observe(60, None, w), 5, np.random.RandomState(0))


def test_one_group_cannot_be_held_out():
    data = observe(30, np.zeros(30))
    for choose in (
        lambda: make_folds(data, 5, np.random.RandomState(0)),
        lambda: XDGMM("auto").fit(data.w, noise=0.1, groups=["a"] * 30),
    ):
        with pytest.raises(ValueError, match=r"^Expected rows of at least 2 groups.*; got 1 group"):
            choose()
    XDGMM(1).fit(data.w, noise=0.1, groups=["a"] * 30)  # which holds out none


def test_bayesian_chains_leave_out_groups(monkeypatch):
    seen = []
    monkeypatch.setattr(bayes, "CrossFits", lambda *args: seen.append(args[1]) or CrossFits(*args))
    w = np.random.default_rng(0).normal(size=(80, 1))
    settings = {"n_components": 3, "n_sweeps": 12, "n_snapshots": 2, "random_state": 0}
    for groups, folds in ((None, [5]), (np.arange(80) % 3, [3]), (np.zeros(80), [])):
        seen.clear()
        model = BayesianXDGMM(n_chains=10, **settings).fit(w, noise=0.1, groups=groups)
        assert seen == folds
        assert (model.held_out_score_ is None) == (not folds)


# -- ``n_jobs`` holds on every path: fits, averages, minibatches and queries ----------------------


EXPECTATION, FIT = sys.modules["deconflow.xd.expectation"], sys.modules["deconflow.xd.fit"]
PATHS = {
    "fit": {},
    "starts": {"n_init": 3},
    "auto": {"n_components": "auto", "floor": 0.0},
    "minibatch": {"method": {"minibatch": {"epochs": 2, "batch_size": 200}}},
}


@pytest.fixture
def running(monkeypatch):
    """Threads that run the kernel: how many at most at the same time."""
    lock, seen = threading.Lock(), {"now": 0, "most": 0, "threads": set()}
    run = EXPECTATION.Pass.run

    def counted(self, *pieces):
        with lock:
            seen["now"] += 1
            seen["most"] = max(seen["most"], seen["now"])
            seen["threads"].add(threading.get_ident())
        try:
            return run(self, *pieces)
        finally:
            with lock:
                seen["now"] -= 1

    monkeypatch.setattr(EXPECTATION.Pass, "run", counted)
    monkeypatch.setattr(EXPECTATION, "SMALLEST_JOB", 1)  # all passes are worth all threads
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("joblib.effective_n_jobs", lambda n_jobs: 4)
    return seen


@pytest.fixture
def rows(rng):
    return rng.normal(size=(600, 2)), rng.uniform(0.1, 0.4, size=(600, 2))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("settings", PATHS.values(), ids=PATHS)
def test_one_job_is_one_thread(settings, rows, running):
    w, sd = rows
    settings = {"n_components": 2, "max_iter": 20, "floor": 0.1, "random_state": 0, **settings}
    model = XDGMM(**settings, n_jobs=1).fit(w, noise=sd)
    model.score(w, noise=sd)
    assert running["threads"] == {threading.get_ident()}
    XDGMM(**settings).fit(w, noise=sd)  # the negative twin
    assert len(running["threads"]) > 1


def test_one_job_of_a_deconvolver_is_one_thread(rows, running, monkeypatch):
    class MixturesFittedError(Exception):
        pass

    def stop(*args, **options):
        raise MixturesFittedError

    w, sd = rows
    monkeypatch.setattr(sys.modules[fit_density.__module__], "KINDS", {"flows": stop})
    with pytest.raises(MixturesFittedError):
        Deconvolver(n_jobs=1, random_state=0).fit(w, noise=sd)
    assert running["threads"] == {threading.get_ident()}


@pytest.mark.parametrize("smallest_job", [1, 10**9])  # passes that are shared out, or are not
def test_threads_of_starts_and_of_passes_do_not_multiply(smallest_job, rows, running, monkeypatch):
    monkeypatch.setattr(FIT, "SMALLEST_JOB", smallest_job)
    data = Observations.from_arrays(*rows)
    settings = FitSettings(2, floor=0.1, stopping=Stopping(max_iter=10, threads=2))
    PreparedData(data).fit_from([None] * 4, settings, np.random.RandomState(0))
    fit_averaged(data, settings, np.random.RandomState(0), folds=2, starts=4)
    assert running["most"] <= 2
    assert len(running["threads"]) > 1


def test_starts_side_by_side_end_where_they_would_alone(rows):
    data = Observations.from_arrays(*rows)
    fits = []
    for threads in (1, 3):
        settings = FitSettings(3, floor=0.1, stopping=Stopping(max_iter=30, threads=threads))
        cross = CrossFits(data, 2, np.random.RandomState(0))
        candidate = Candidate(settings, np.full(len(data), np.nan))
        for fold in cross:
            cross.add(candidate, fold, [None] * 4)
        fits.append(candidate.held_out)
    np.testing.assert_array_equal(*fits)
