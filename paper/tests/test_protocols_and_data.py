"""Protocols keep the paper's letter and the budget; data are the paper's; scores of models."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from deconflow import Observations
from deconflow.estimators import OutOfReachError
from deconflow.posteriors import MixtureExact
from deconflow.randomness import isolated_rng
from paper import data
from paper.data import BLURRED, TEST_POINT, TOY_NOISE, TRUTH, Rows, Sample, toy
from paper.fits import FITS, SETTINGS, DrawnPairs, _true_density, toy_settings
from paper.flows import noisy_score, posterior_draws, rates, toy_scores, untrained, wine_scores
from paper.protocols import (
    BUDGET,
    CHOSEN,
    EVALUATIONS,
    GRID,
    MIXTURE,
    PAPER,
    TABLES,
)
from paper.runs import Job
from paper.search import describe, rounds

#: Expectations of -log p(v) and -log p(w) of the toy's true densities, by quadrature.
EXPECTED_V, EXPECTED_W = 2.666, 3.603


def test_the_appendix_to_the_letter():
    settings = toy_settings(PAPER, objective="iw", n_draws=25)
    wanted = {
        "flow": "maf", "n_layers": 5, "posterior_layers": 5, "hidden": 128, "n_blocks": 2,
        "dropout": 0.2, "batch_size": 512, "learning_rate": 1e-4, "schedule": "plateau",
        "epochs": 300, "validation_fraction": 0.2, "clip_norm": None, "averaging": None,
        "anchored": False,
    }  # fmt: skip
    assert {name: settings[name] for name in wanted} == wanted
    assert (PAPER.wine_batch_size, PAPER.patience, PAPER.folds, PAPER.rungs) == (100, 30, 5, ())


def test_the_published_scripts_where_the_appendix_is_silent():
    assert has(PAPER, "gmm-flow", learning_rate=1e-3, epochs=300, n_draws=50)
    assert has(PAPER, "gmm-exact", learning_rate=1e-3, epochs=150, n_draws=50)
    lengths = {"prior": 300, "posterior": 300}
    assert has(PAPER, "pretrained", learning_rate=1e-3, plateau_factor=0.5, epochs=lengths)
    assert has(PAPER, "after", learning_rate=1e-4, epochs=300, n_draws=50)


def test_at_the_budget_every_evidence_lower_bound_has_one_draw():
    """So mixtures have the published steps, and the fit after pretraining as many as others."""
    assert has(BUDGET, "gmm-flow", learning_rate=1e-3, epochs=300, n_draws=1)
    assert has(BUDGET, "gmm-exact", learning_rate=1e-3, epochs=150, n_draws=1)
    assert has(BUDGET, "after", learning_rate=2e-3, epochs=200, n_draws=1)


def has(protocol, name, **wanted):
    row = next(row for table in TABLES.values() for row in table.rows if row.name == name)
    settings = SETTINGS[row.fit](protocol, **row.options)
    return {key: settings[key] for key in wanted} == wanted


def test_pairs_for_the_posterior_are_drawn_anew(tmp_path):
    settings = toy_settings(replace(PAPER, hidden=8, layers=1), objective="elbo", n_draws=1)
    sample = data.toy(2000, 1)
    rows = Observations.from_arrays(sample.train.w, sample.noise)
    model = untrained(settings, rows, 0)
    units = model.units
    noisy = units.observations(rows)
    truth = _true_density(units)
    pairs = DrawnPairs(model.recognition, MixtureExact(truth))
    with isolated_rng(0), torch.no_grad():
        first, second = (pairs(noisy.to(dtype=torch.float32)) for _ in range(2))
    assert not torch.equal(first, second)
    assert not any(name.startswith("_exact") for name, _ in pairs.named_parameters())
    with isolated_rng(1):
        drawn = units.from_standard(pairs.drawn(noisy.to(dtype=torch.float32)).v.double()).numpy()
    exact = data.exact_posterior(sample.train.w).sample(100, random_state=0)
    squares = (drawn - exact.mean(1)) ** 2
    assert squares.mean(0) == pytest.approx(exact.var(1).mean(0), rel=0.15)  # not the prior's
    v = torch.from_numpy(units.to_standard(sample.train.v)).float()
    with torch.no_grad():
        in_units = truth.log_prob(v).double() - np.log(units.scale).sum()
    assert in_units.numpy() == pytest.approx(data.TRUTH.log_prob(sample.train.v), abs=1e-4)


def test_the_evidence_lower_bound_has_one_draw_at_the_budget_and_importance_weighting_all():
    assert [BUDGET.draws("elbo", K) for K in (1, 10, 50)] == [1, 1, 1]
    assert [BUDGET.draws("iw", K) for K in (10, 50)] == [10, 50]
    assert [PAPER.draws("elbo", K) for K in (1, 10, 50)] == [1, 10, 50]


@pytest.mark.parametrize("row", ["elbo-10", "iw-10"])
def test_the_paper_s_protocol_runs(row, tmp_path):
    """With its dropout, its plateaus and without a limit on gradients; on fewer rows."""
    rows = {"train_rows": 80, "validation_rows": 20, "test_rows": 20, "kept_draws": 10}
    protocol = replace(PAPER, **rows, hidden=8, epochs=2, scored_draws=4)
    task = MIXTURE.tasks([row], [0])[0]
    outcome = FITS[task.row.fit](Job(task, protocol, tmp_path))
    assert outcome.details["epochs"] == 2
    assert all(np.isfinite(score) for score in outcome.scores.values())
    assert outcome.draws["prior"].shape == outcome.draws["posterior"].shape == (10, 2)


def test_every_flow_row_has_the_same_budget_and_networks():
    rows = BUDGET.train_rows + BUDGET.validation_rows
    seen = set()
    for row in MIXTURE.rows:
        if "n_draws" not in row.options:
            continue
        settings = toy_settings(BUDGET, **row.options)
        spent = settings["epochs"] * 2 * settings["n_draws"] * rows
        assert spent == pytest.approx(EVALUATIONS, rel=0.07)
        seen.add((settings["hidden"], settings["learning_rate"], settings["schedule"]))
    assert seen == {(64, 2e-3, "cosine")}


def test_the_budget_limits_wines_and_the_paper_does_not():
    assert BUDGET.wine_epochs(100, 4408) == round(EVALUATIONS / 440_800)
    assert PAPER.wine_epochs(100, 4408) == 10_000


def test_the_grid_is_the_paper_s():
    assert len(rounds("red", "flow", PAPER, {})[0].points) == 108
    assert len(rounds("red", "xd", BUDGET, {})[0].points) == 15
    for (_, kind), point in CHOSEN.items():
        assert all(point[name] in GRID[kind][name] for name in GRID[kind])
    assert describe(CHOSEN["red", "xd"]) == "lr=0.005 components=20"


def test_the_toy_is_the_paper_s():
    sample = data.toy(40_000, 40_000)
    assert -data.TRUTH.log_prob(sample.test.v).mean() == pytest.approx(EXPECTED_V, abs=0.015)
    assert -data.BLURRED.log_prob(sample.test.w).mean() == pytest.approx(EXPECTED_W, abs=0.015)
    assert np.cov((sample.train.w - sample.train.v).T) == pytest.approx(data.TOY_NOISE, abs=0.03)
    draws = data.exact_posterior(data.TEST_POINT).sample(2000, random_state=0)[0]
    low, high = (draws[:, 1] < 0).mean(), (np.abs(draws[:, 1]) < 0.5).mean()
    assert 0.1 < low < 0.9  # two modes,
    assert high < 0.01  # and nothing between them


def test_wines_are_split_shuffled_or_in_order(tmp_path):
    rows = np.arange(600.0).reshape(100, 6)
    np.save(tmp_path / "wine_red.npy", rows)
    shuffled, again = (data.wine("red", 1, tmp_path) for _ in range(2))
    assert np.array_equal(shuffled.train.w, again.train.w)
    assert not np.array_equal(shuffled.test.v, data.wine("red", 2, tmp_path).test.v)
    ordered = data.wine("red-file", 1, tmp_path)
    assert np.array_equal(ordered.test.v, rows[90:])
    assert np.var(ordered.train.w - ordered.train.v) == pytest.approx(0.1, rel=0.2)
    assert data.without_copy(ordered).all()
    np.save(tmp_path / "wine_red.npy", np.concatenate([rows[:90], rows[:10]]))
    assert not data.without_copy(data.wine("red-file", 1, tmp_path)).any()


def test_without_the_folder_wines_come_from_openml(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    names = ["free_sulfur_dioxide", *(name.replace(" ", "_") for name in data.ATTRIBUTES)]
    table = pd.DataFrame(rng.gamma(2.0, size=(50, 10)), columns=names)
    asked = []

    def fetch(data_id, as_frame):
        asked.append(data_id)
        return type("Bunch", (), {"data": table})

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    rows = data.wine_rows("white", tmp_path)
    assert asked == [44971]
    assert rows.shape == (50, 9)
    assert np.allclose(rows.std(0), 1)
    first = table["fixed_acidity"]
    assert np.allclose(rows[:, 0], (first - first.mean()) / first.std(ddof=0))


def test_wines_need_three_seeds_in_file_order_and_five_shuffled():
    tasks = TABLES["uci"].tasks()
    assert len({t.seed for t in tasks if t.dataset == "white"}) == 5
    assert len({t.seed for t in tasks if t.dataset == "white-file"}) == 3


SMALL = {"hidden": 8, "n_layers": 1, "posterior_layers": 1, "n_blocks": 1}


class Model:
    """An estimator that knows the toy, or that fails."""

    def __init__(self, error=None):
        self.error, self.density_ = error, self

    def log_marginal(self, rows, n_draws):
        if self.error:
            raise self.error
        return SimpleNamespace(log_p=BLURRED.log_prob(rows.w))


def test_the_truth_scores_as_the_truth():
    sample = toy(10, 500)
    w = noisy_score(Model(), sample.test.w, sample.noise, 100)
    scores = toy_scores(TRUTH.log_prob(sample.test.v), w, sample)
    assert scores["minus_log_p_v"] == scores["truth_v"]
    assert scores["minus_log_p_w"] == scores["truth_w"]


class Known:
    """A model whose density of a row is the row's first number."""

    density_ = SimpleNamespace(log_prob=lambda v: v[:, 0])


def test_a_wine_is_scored_on_three_kinds_of_rows():
    fitted, held_out = np.array([[1.0], [2.0], [6.0]]), np.array([[2.0], [4.0]])
    sample = Sample(Rows(fitted, fitted), Rows(held_out, held_out), np.ones(1))
    assert wine_scores(Known(), 7.0, sample) == {
        "minus_log_p_v": -3.0, "minus_log_p_w": 7.0, "minus_log_p_v_without_copy": -4.0,
        "minus_log_p_v_fitted": -3.0, "share_without_copy": 0.5,
    }  # fmt: skip


def test_learning_rates_are_told_where_they_change():
    assert rates([1e-3, 1e-3, 8e-4, 8e-4, 8e-4, 6.4e-4]) == {"0": 1e-3, "2": 8e-4, "5": 6.4e-4}
    assert rates([]) == {}


def test_a_row_out_of_reach_is_infinite_and_other_errors_are_errors():
    row = np.zeros((1, 2))
    assert noisy_score(Model(OutOfReachError()), row, TOY_NOISE, 100) == math.inf
    with pytest.raises(ValueError, match="something else"):
        noisy_score(Model(ValueError("something else")), row, TOY_NOISE, 100)


def test_draws_of_the_posterior_are_those_that_the_paper_shows():
    """Of the ELBO the recognition network's own; of importance weighting, resampled by weight."""
    w = toy(400, 1).train.w
    mixture = {"flow": "gaussian_mixture", "base_components": 3}
    settings = {**SMALL, **mixture, "posterior_family": "exact", "objective": "elbo"}
    model = untrained(settings, Observations.from_arrays(w, TOY_NOISE), 0)
    z = (TRUTH.means - model.units.location) / model.units.scale
    model.prior.means.data[:] = model.prior.means.new_tensor(z)
    draws = posterior_draws(model, TEST_POINT, TOY_NOISE, 4000)
    weighted = replace(model, settings=settings | {"objective": "iw"})
    again = posterior_draws(weighted, TEST_POINT, TOY_NOISE, 4000)
    assert draws.shape == again.shape == (4000, 2)
    assert draws.mean(0) == pytest.approx(again.mean(0), abs=0.15)  # exact: weights are all equal


def test_a_model_that_cannot_reach_a_row_says_so():
    rows = Observations.from_arrays(toy(200, 1).train.w, TOY_NOISE)
    model = untrained({**SMALL, "flow": "gaussian_mixture"}, rows, 0)
    assert noisy_score(model, np.full((1, 2), 1e25), TOY_NOISE, 8) == math.inf
