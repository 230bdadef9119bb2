"""Whole tables, at a tiny protocol: run, recorded, shown, checked, and never run twice."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from paper import figures, fits
from paper.findings import core_minutes
from paper.page import part_in
from paper.protocols import (
    CHOSEN,
    TABLES,
)
from paper.runs import Records
from paper.search import rounds, searches_named

SCORES = {"mixture": ("v", "w"), "pretraining": ("v", "w"), "uci": ("v", "w"), "ablation": ("v",)}


@pytest.mark.parametrize("name", list(TABLES))
def test_a_table_is_run_recorded_and_shown(name, paper_again, here):
    chosen = [next(iter(TABLES[name].seeds))]
    text = paper_again.run(name, chosen, seeds=[0])
    rows = {row.name: row for row in TABLES[name].rows}
    runs = Records(paper_again.results, name, "budget").runs()
    assert {key[1] for key in runs} == set(rows)
    for run in runs.values():
        assert all(abs(run[f"minus_log_p_{letter}"]) < 1e4 for letter in SCORES[name])
        assert run["core_seconds"] >= 0
        assert {"torch", "zuko", "numpy"} <= run["versions"].keys()
        assert run["protocol"] == "budget"
        if run["dataset"] == "toy":
            assert 2 < run["truth_v"] < 4
    for row in rows.values():
        assert row.title in text
    written = paper_again.document.read_text()
    assert part_in(written, name) == text
    made = list(here)
    assert paper_again.run(name, chosen, seeds=[0]) == text
    assert here == made, "a finished run was repeated"


def test_nothing_is_left_in_the_work_folder_but_what_is_needed(paper_again, here):
    paper_again.run("mixture", rows=["xd", "elbo-1"], seeds=[0])
    kept = {path.name for path in (paper_again.results / "reproduction/.work/budget").iterdir()}
    assert kept == {"mixture.lock"}


def test_pretraining_goes_before_what_starts_from_it(paper_again, here):
    paper_again.run("pretraining", rows=["after"], seeds=[0])
    assert here == ["pretraining.toy.pretrained.0", "pretraining.toy.after.0"]
    runs = Records(paper_again.results, "pretraining", "budget").runs()
    before, after = runs["toy", "pretrained", 0], runs["toy", "after", 0]
    assert after["minus_log_p_v"] != before["minus_log_p_v"]
    for part, epochs in before["settings"]["epochs"].items():
        assert before["details"][part]["epochs"] == epochs > 1


def test_rows_with_the_same_fit_share_a_run(paper_again, here):
    one_draw = replace(paper_again, protocol=replace(paper_again.protocol, elbo_draws=1))
    text = one_draw.run("mixture", rows=["elbo-10", "elbo-50", "iw-10"], seeds=[0])
    assert here == ["mixture.toy.elbo-1.0", "mixture.toy.iw-10.0"]
    runs = Records(paper_again.results, "mixture", "budget").runs()
    for row in ("elbo-10", "elbo-50"):
        assert runs["toy", row, 0]["minus_log_p_v"] == runs["toy", "elbo-1", 0]["minus_log_p_v"]
        assert runs["toy", row, 0]["same_fit_as"] == "elbo-1"
    assert "Flow, evidence lower bound, K = 50 (the fit with K = 1)" in text
    assert "same_fit_as" not in runs["toy", "elbo-1", 0]
    assert not any("other settings" in words for _, words in one_draw.check(["mixture"]))


def test_orders_and_learning_rates_are_recorded(paper_again, here):
    paper_again.run("mixture", rows=["elbo-1"], seeds=[0])
    paper_again.run("uci", rows=["red", "iw-50", "default"], seeds=[0])
    paper_again.run("ablation", rows=["red", "noisy"], seeds=[0])
    toy = Records(paper_again.results, "mixture", "budget").runs()["toy", "elbo-1", 0]["details"]
    assert set(toy["orders"]) == {"prior", "posterior"}
    assert set(toy["orders"].values()) <= {"01", "10"}  # of one layer
    assert len(toy["learning_rate"]) == toy["epochs"]  # a cosine has another in every epoch
    wine = Records(paper_again.results, "uci", "budget").runs()
    flow = wine["red", "iw-50", 0]["details"]
    assert all(len(order) == 3 for order in flow["orders"]["prior"].split())  # of three columns
    assert flow["learning_rate"] == {"0": 0.001}
    assert {"orders", "learning_rate"} <= wine["red", "default", 0]["details"].keys()
    plain = Records(paper_again.results, "ablation", "budget").runs()["red", "noisy", 0]
    assert plain["details"]["orders"].keys() == {"prior"}


def test_wines_are_scored_on_fitted_and_on_held_out_rows(paper_again, here):
    text = paper_again.run("uci", rows=["red", "red-file", "xd"], seeds=[0])
    runs = Records(paper_again.results, "uci", "budget").runs()
    for dataset in ("red", "red-file"):
        run = runs[dataset, "xd", 0]
        assert run["minus_log_p_v_fitted"] != run["minus_log_p_v"]
    before, in_file_order = text.split("Red wine, split in file order:")
    shuffled = before.split("Red wine, shuffled splits:")[1].split("White wine, split")[0]
    fitted = f"{runs['red-file', 'xd', 0]['minus_log_p_v_fitted']:.3f}"
    assert fitted in in_file_order
    assert "8.775 ± 0.152" in in_file_order  # the paper's
    assert "paper |" not in shuffled
    assert "8.775" not in shuffled


def test_rows_and_seeds_choose_what_is_run(paper_again, here):
    paper_again.run("uci", rows=["white", "xd"], seeds=[3])
    assert here == ["uci.white.xd.3"]
    with pytest.raises(ValueError, match=r"Expected --rows of uci from .*; got 'nothing'"):
        paper_again.run("uci", rows=["nothing"])


def test_flow_rows_of_the_wines_use_what_the_search_chose(paper_again, here):
    text = paper_again.run("grid")
    assert "not done" not in text
    searched = Records(paper_again.results, "grid", "budget").runs()
    assert all("minus_log_p_v" not in run for run in searched.values())
    made = list(here)
    paper_again.run("grid")
    assert here == made
    paper_again.run("uci", rows=["white", "iw-50", "xd", "xd-paper"], seeds=[0])
    runs = Records(paper_again.results, "uci", "budget").runs()
    for row, kind in (("iw-50", "flow"), ("xd", "xd")):
        wanted = rounds("white", kind, paper_again.protocol, searched)[-1].points[0]
        settings = runs["white", row, 0]["settings"]
        assert {name: settings[name] for name in wanted} == wanted
    assert runs["white", "xd-paper", 0]["settings"] == CHOSEN["white", "xd"]
    assert not any("other settings" in words for _, words in paper_again.check(["uci"]))


def test_a_run_before_the_search_is_found(paper_again, here):
    paper_again.run("uci", rows=["white", "xd"], seeds=[0])
    path = Records(paper_again.results, "uci", "budget").path
    content = json.loads(path.read_text())
    content["runs"][0]["settings"]["n_components"] = 77
    path.write_text(json.dumps(content))
    assert any("other settings" in words for _, words in paper_again.check(["uci"]))


def test_successive_halving_leaves_the_best(paper_again, here):
    paper_again.run("grid", rows=["red", "flow"])
    names = [name for name in here if name.startswith("grid.red.flow")]
    first = [name for name in names if name.endswith(".0")]
    assert len(here) == len(names) == 3  # two settings on one fold; one of them on another
    assert len(first) == 2
    runs = Records(paper_again.results, "grid", "budget").runs()
    best = min((run for key, run in runs.items() if key[2] == 0), key=lambda r: r["minus_log_p_w"])
    assert names[-1] == f"grid.red.{best['row']}.1".replace(" ", "_")


@pytest.mark.slow
def test_figures_are_drawn_from_what_runs_kept(paper_again, here):
    assert "not drawn" in paper_again.run("figures")
    paper_again.run("mixture", rows=["xd", "iw-10"], seeds=[0])
    paper_again.run("pretraining", seeds=[0])
    assert "Flow, IW, K = 50" in paper_again.run("figures")  # still missing
    folder = paper_again.document.parent / "images"
    assert {path.name for path in folder.iterdir()} == set(figures.PICTURES)
    kept = list((paper_again.results / "reproduction" / "draws").iterdir())
    assert len(kept) == 6
    assert all(path.stat().st_size < 1_000_000 for path in kept)
    assert _stale(paper_again) == []
    paper_again.run("mixture", rows=["elbo-1"], seeds=[0])
    assert _stale(paper_again) == [f"figure {'reproduction-toy-models.png'}"]
    paper_again.run("figures")
    assert _stale(paper_again) == []


def _stale(paper):
    bad = [words for good, words in paper.check(["figures"]) if not good]
    return [words.split(" shows")[0] for words in bad if "other draws" in words]


def test_runs_of_other_settings_are_found(paper_again, here):
    paper_again.run("mixture", rows=["elbo-1"], seeds=[0])
    wider = replace(paper_again, protocol=replace(paper_again.protocol, hidden=12))

    def found(paper):
        return [words for _, words in paper.check(["mixture"]) if "other settings" in words]

    assert found(paper_again) == []
    assert "toy elbo-1 seed 0 was run with other settings than the protocol" in found(wider)[0]


def test_searches_by_wine_and_by_kind():
    assert searches_named([]) == [
        ("white", "flow"), ("white", "xd"), ("red", "flow"), ("red", "xd"),
    ]  # fmt: skip
    assert searches_named(["white", "red", "xd"]) == [("white", "xd"), ("red", "xd")]
    assert searches_named(["white"]) == [("white", "flow"), ("white", "xd")]


def test_a_mixture_that_collapses_at_once_loses(paper_again, here, monkeypatch):
    def collapsed(adam, rows, rate, threads):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(fits, "step_on_batch", collapsed)
    paper_again.run("grid", rows=["red", "xd"])
    runs = Records(paper_again.results, "grid", "budget").runs()
    assert {run["minus_log_p_w"] for run in runs.values()} == {math.inf}


def test_check_finds_a_missing_row_and_an_altered_table(paper_again, here):
    paper_again.run("mixture", rows=["xd"])

    def bad():
        return [words for good, words in paper_again.check(["mixture"]) if not good]

    assert "mixture (budget): missing toy iw-50, seeds 0, 1, 2, 3, 4" in bad()
    assert not any("toy xd," in words for words in bad())
    assert not any("agree" in words for words in bad())
    text = paper_again.document.read_text()
    paper_again.document.write_text(text.replace("| XD-GMM ", "| XD-GNN ", 1))
    assert any("mixture does not agree" in words for words in bad())
    assert paper_again.write()
    assert not any("agree" in words for words in bad())
    path = Records(paper_again.results, "mixture", "budget").path
    content = json.loads(path.read_text())
    content["runs"] = content["runs"][1:]
    path.write_text(json.dumps(content))
    assert "mixture (budget): missing toy xd, seeds 0" in bad()
    assert any("mixture does not agree" in words for words in bad())


@pytest.mark.slow
def test_a_whole_table_is_found_whole(paper_again, here):
    paper_again.run("ablation")
    findings = paper_again.check(["ablation"])
    assert any("every row and seed is there" in words for _, words in findings)
    bad = [words for good, words in findings if not good]
    assert [words.split(": ")[1] for words in bad] == [
        "differences has a difference whose reason is to be written"
    ]


def test_a_damaged_record_is_one_line(paper_again):
    path = Records(paper_again.results, "uci", "budget").path
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with pytest.raises(ValueError, match="Expected a whole record in"):
        paper_again.run("uci")


def test_pauses_cost_nothing_and_resumed_runs_do_not_count():
    paused = {"seconds": 900.0, "core_seconds": 60.0, "details": {"fit_seconds": 890.0}}
    resumed = {"seconds": 60.0, "core_seconds": 60.0, "details": {"fit_seconds": 180.0}}
    assert core_minutes([paused]) == 1
    assert core_minutes([resumed]) is None
    assert core_minutes([paused, resumed]) == 1


def test_an_infinite_score_is_shown(paper_again, here):
    paper_again.run("mixture", rows=["xd"], seeds=[0, 1])
    path = Records(paper_again.results, "mixture", "budget").path
    content = json.loads(path.read_text())
    content["runs"][0]["minus_log_p_w"] = math.inf
    path.write_text(json.dumps(content))
    assert "inf" in paper_again.run("mixture", rows=["xd"], seeds=[0, 1])
