"""What candidates are compared on, and what the prior of their weights is."""

from types import SimpleNamespace

import numpy as np
import pytest
from short_fits import shorten_chains

from deconflow import Deconvolver, Observations, noise
from deconflow.auto import candidates
from deconflow.auto.candidates import Candidate, compared, prior_rows, weigh
from deconflow.auto.flows import _score
from deconflow.auto.splines import fit_splines
from deconflow.xd import Fold

N = 1000


def candidate(name, held_out):
    return Candidate(name, np.asarray(held_out, dtype=float), [])


def test_rows_that_nobody_asked_are_left_out_and_impossible_ones_count():
    first, second = np.zeros(N), np.full(N, 0.5)
    second[:100], second[100:160] = np.nan, -np.inf
    log_p, rows = compared([candidate("mixtures", first), candidate("flows", second)])
    assert len(rows) == N - 100
    assert log_p[1, 0] == candidates.IMPOSSIBLE
    # Sixty impossible rows among 900 need somebody who knows them.
    shares = weigh(
        [candidate("mixtures", first), candidate("flows", second)],
        np.ones(N), 3, np.random.RandomState(0),
    )  # fmt: skip
    assert 0.03 < shares[0] < 0.3
    second[100:160] = 0.5
    shares = weigh(
        [candidate("mixtures", first), candidate("flows", second)],
        np.ones(N), 3, np.random.RandomState(0),
    )  # fmt: skip
    assert shares[0] == 0.0


def test_the_prior_knows_rows_and_columns():
    assert prior_rows(100, 1)["spline"] > prior_rows(100, 2)["spline"]
    assert prior_rows(10_000, 3)["flows"] == 10 * prior_rows(100, 3)["flows"]
    assert set(prior_rows(10, 5)) == set(candidates.NAMES)


def test_flows_are_scored_on_rows_from_all_over_a_table(monkeypatch):
    """A table in order of brightness must not be judged by its brightest rows alone."""
    asked = []
    monkeypatch.setattr("deconflow.auto.flows.ensemble_of", lambda *_: None)
    monkeypatch.setattr(
        "deconflow.auto.flows.RowsWithProposals", SimpleNamespace(of=lambda data, *_: data)
    )
    monkeypatch.setattr(
        "deconflow.auto.flows.estimate_log_likelihood",
        lambda density, rows, draws: SimpleNamespace(log_p=np.zeros(len(rows))),
    )

    class Rows:
        latent_dim = 3

        def __getitem__(self, rows):
            asked.append(rows.numpy())
            return rows

    held = np.arange(0, 20_000, 2)
    averaged = SimpleNamespace(folds=[SimpleNamespace(held=held)] * 5)
    plan = SimpleNamespace(scored_rows=5000, size=None, checked_draws=1)
    task = SimpleNamespace(plan=plan, averaged=averaged, seed=0, data=Rows())
    held_out = np.full(20_000, np.nan)
    _score(task, 0, SimpleNamespace(mixture=None), [], held_out)
    assert len(asked[0]) == 1000
    assert abs(np.mean(asked[0]) - 10_000) < 4 * 20_000 / np.sqrt(12 * 1000)
    assert np.isfinite(held_out).sum() == 1000


@pytest.mark.slow
def test_a_number_of_flows_that_is_not_used_is_told():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(60, 1))
    told = Deconvolver(n_members=2, random_state=0, n_jobs=1).fit(w, noise=0.3).summary()
    assert "There are no flows: in fewer than 3 columns" in told
    silent = Deconvolver(random_state=0, n_jobs=1).fit(w, noise=0.3).summary()
    assert "There are no flows" not in silent


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


def test_there_is_no_spline_where_values_are_missing_or_laws_are_too_many():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(200, 2))
    laws = noise.student_t(rng.uniform(0.1, 0.3, size=(20_000, 2)), 3.0)
    with_laws = Observations.from_arrays(rng.normal(size=(20_000, 2)), laws)
    w[::5, 0] = np.nan
    holes = Observations.from_arrays(w, [0.3, 0.3])
    for data, reason in ((holes, "values are missing"), (with_laws, "would take it too long")):
        plan = SimpleNamespace(quick=False)
        every = np.arange(len(data))
        averaged = SimpleNamespace(folds=[Fold(kept=every, held=every)])
        task = SimpleNamespace(data=data, averaged=averaged, plan=plan, notes=[])
        assert fit_splines(task) is None
        assert reason in task.notes[0]
