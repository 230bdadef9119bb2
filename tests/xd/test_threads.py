"""``n_jobs`` holds on every path: fits, averages, minibatches and queries."""

import sys
import threading

import numpy as np
import pytest

from deconflow import XDGMM, Deconvolver, Observations
from deconflow.auto import fit_density
from deconflow.xd import Candidate, CrossFits, FitSettings, PreparedData, Stopping, fit_averaged

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
    PreparedData(data).fit_best(settings, 4, np.random.RandomState(0))
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
