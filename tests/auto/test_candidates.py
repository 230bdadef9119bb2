"""What candidates are compared on, and what the prior of their weights is."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from short_fits import shorten_chains

from deconflow import Deconvolver, GaussianMixture, Observations, noise
from deconflow.auto import candidates, flows
from deconflow.auto.candidates import Candidate, Plan, compared, weigh
from deconflow.auto.fit import try_flows
from deconflow.auto.flows import score
from deconflow.auto.mixtures import fit_splines
from deconflow.densities import MixtureDensity
from deconflow.xd import Fold

N = 1000
RNG = np.random.default_rng(0)


def test_rows_that_nobody_asked_are_left_out_and_impossible_ones_count():
    held_out = np.full(N, 0.5)
    held_out[:100], held_out[100:160] = np.nan, -np.inf
    both = [Candidate("mixtures", np.zeros(N), []), Candidate("flows", held_out, [])]
    log_p, rows = compared(both)
    assert len(rows) == N - 100
    assert log_p[1, 0] == candidates.IMPOSSIBLE
    # Sixty impossible rows among 900 need somebody who knows them.
    assert 0.03 < weigh(both, np.ones(N), 3, np.random.RandomState(0))[0] < 0.3
    held_out[100:160] = 0.5
    assert weigh(both, np.ones(N), 3, np.random.RandomState(0))[0] == 0.0


def test_flows_are_scored_on_rows_from_all_over_a_table(monkeypatch):
    """A table in order of brightness must not be judged by its brightest rows alone."""
    task = SimpleNamespace(
        data=Observations.from_arrays(np.zeros((20_000, 1)), 0.1),
        averaged=SimpleNamespace(folds=[SimpleNamespace(held=np.arange(0, 20_000, 2))] * 5),
        seed=0,
    )
    monkeypatch.setattr(flows, "ensemble_of", lambda members, dim: MixtureDensity.spread(dim, 1))
    mixture = GaussianMixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)))
    held_out = np.full(20_000, np.nan)
    score(task, 0, mixture, [], held_out)
    asked = np.flatnonzero(np.isfinite(held_out))
    assert len(asked) == 1000
    assert abs(asked.mean() - 10_000) < 4 * 20_000 / np.sqrt(12 * 1000)


@pytest.mark.parametrize("asked_for", [2, None])
def test_a_number_of_flows_that_is_not_used_is_told(asked_for):
    plan = Plan(1, n_flows=asked_for)
    data = Observations.from_arrays(np.zeros((60, 1)), 0.3)
    task = SimpleNamespace(data=data, plan=plan, notes=[])
    assert try_flows(task) is None
    assert ["in fewer than 3 columns" in note for note in task.notes] == [True] * bool(asked_for)


def test_without_torch_there_are_no_flows_but_a_note(monkeypatch):
    monkeypatch.setitem(sys.modules, "deconflow.auto.flows", None)
    data = Observations.from_arrays(np.zeros((60, 3)), 0.3)
    task = SimpleNamespace(data=data, plan=Plan(1), notes=[])
    assert try_flows(task) is None
    assert task.notes[0].endswith("is not installed. Run: pip install 'deconflow[flows]'.")


@pytest.mark.slow
def test_a_row_far_from_all_others_ends_no_fit(monkeypatch):
    shorten_chains(monkeypatch)
    rng = np.random.default_rng(0)
    w = rng.normal(size=(100, 3))
    w[0] = 1e6
    for given in (rng.uniform(0.05, 0.15, w.shape), [0.1, 0.1, 0.1]):
        model = Deconvolver(quick=True, random_state=0, n_jobs=1).fit(w, noise=given)
        assert model.score_samples(rng.normal(size=(500, 3))).mean() > -5.5


@pytest.mark.parametrize("quick", [True, False])
def test_spline_fits_that_failed_are_not_averaged(monkeypatch, quick):
    from deconflow.splines import LogSplineFit

    monkeypatch.setattr(LogSplineFit, "converged", property(lambda self: False))
    w = np.random.default_rng(0).normal(size=(60, 1))
    model = Deconvolver(quick=quick, random_state=0, n_jobs=1).fit(w, noise=0.3)
    assert "spline" not in model.weights_
    assert "There is no log-spline. Its fit did not converge" in model.summary()


@pytest.mark.parametrize(
    ("w", "law", "reason"),
    [
        (
            np.where(np.eye(200, 2) > 0, np.nan, RNG.normal(size=(200, 2))),
            0.3,
            "values are missing",
        ),
        (
            RNG.normal(size=(20_000, 2)),
            noise.student_t(RNG.uniform(0.1, 0.3, size=(20_000, 2)), 3.0),
            "would take it too long",
        ),
    ],
    ids=["missing values", "many laws"],
)
def test_there_is_no_spline_where_values_are_missing_or_laws_are_too_many(w, law, reason):
    every = np.arange(len(w))
    task = SimpleNamespace(
        data=Observations.from_arrays(w, law),
        averaged=SimpleNamespace(folds=[Fold(kept=every, held=every)]),
        plan=Plan(1),
        notes=[],
    )
    assert fit_splines(task) is None
    assert reason in task.notes[0]
