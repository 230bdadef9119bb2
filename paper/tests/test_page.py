"""The project's own page says what the project's own records say."""

import json
import math
import shutil

import pytest

from paper.page import cost, grid_part, part_in, seeds, with_parts
from paper.protocols import BUDGET, EVALUATIONS
from paper.reproduction import NAMES, check


@pytest.fixture
def root(request):
    return request.config.rootpath


def test_every_run_is_there_and_the_page_agrees(root):
    document = root / "docs" / "reproduction.md"
    findings = list(check(root / "results", document, BUDGET, NAMES))
    assert len(findings) == 29
    assert [words for good, words in findings if not good] == []


def test_a_missing_seed_and_a_missing_score_are_found(root, tmp_path):
    def without(name, key, score=None):
        """Take a run, or one of its scores, out of a record."""
        path = tmp_path / "reproduction" / name
        record = json.loads(path.read_text())
        run = next(r for r in record["runs"] if (r["dataset"], r["row"], r["seed"]) == key)
        record["runs"].remove(run) if score is None else run.pop(score)
        path.write_text(json.dumps(record))

    folder = root / "results" / "reproduction"
    shutil.copytree(folder, tmp_path / "reproduction", ignore=shutil.ignore_patterns(".work"))
    without("mixture-paper.json", ("toy", "elbo-1", 1))
    without("uci-budget.json", ("red-file", "xd", 1), "minus_log_p_v_fitted")
    findings = check(tmp_path, root / "docs" / "reproduction.md", BUDGET, ["mixture", "uci"])
    wrong = [words for good, words in findings if not good]
    assert "mixture (paper): elbo-1, 4 of 5 seeds, missing 1" in wrong
    assert sum(words.endswith("has no score of fitted rows") for words in wrong) == 1


def test_the_page_states_the_budget(root):
    page = (root / "docs" / "reproduction.md").read_text()
    assert f"{EVALUATIONS // 1_000_000} million a run" in page


def test_the_page_says_what_the_search_cost():
    fits = {("white", "flow", fold): {"core_seconds": 90.0} for fold in range(2)}
    *table, words = grid_part({"grid": fits}, BUDGET).splitlines()
    assert words == "2 fits are recorded, of 3 core minutes."
    assert sum("not done" in line for line in table) == 4


def test_the_cost_of_the_paper_s_table(tmp_path):
    assert "not known" in cost(tmp_path)
    draws = {str(K): {"seconds_a_step": 0.1 * K} for K in (1, 10, 25, 50)}
    names = ("mixture, paper", "white wine, the paper's settings", "red wine, the paper's settings")
    content = {"cases": {name: {"draws": draws} for name in names}}
    (tmp_path / "flow_evaluation.json").write_text(json.dumps(content))
    hours = 300 * 98 * 0.1 / 3600  # of K = 1
    steps = math.ceil(3174 / 100) + math.ceil(1036 / 100)
    words = cost(tmp_path)
    assert f"{hours:.1f} core hours with K = 1, {10 * hours:.1f} with K = 10" in words
    assert f"five seeds is {5 * 171 * hours:.0f} core hours" in words
    assert f"about {108 * 5 * 100 * steps * 5.0 / 3600:.0f} more" in words


def test_seeds_are_shown_one_by_one_and_those_of_old_code_apart():
    new = {"orders": {"prior": "10 01"}, "learning_rate": {"0": 1e-4, "90": 8e-5}}
    runs = {
        ("toy", "elbo-1", seed): {
            "seed": seed,
            "minus_log_p_v": v,
            "minus_log_p_w": 3.6,
            "details": {"best_epoch": 9, "epochs": 20} | (new if seed else {}),
        }
        | ({"code": "abc"} if seed else {})
        for seed, v in enumerate((9.0, 2.8, 3.0))
    }
    assert "No run" in seeds({"mixture": {}})
    _, _, old, *lines, mean, paper = seeds({"mixture": runs}).splitlines()
    assert "exponential scales" in old
    assert "not recorded" in old
    assert all("10 01" in line and "10 of 20" in line and "8e-05" in line for line in lines)
    assert "scales (2)" in mean
    assert "2.900 ± 0.141" in mean
    assert "2.897 ± 0.046" in paper


def test_only_what_is_between_markers_changes():
    text = "one\n<!-- grid: written by python -m paper -->\n<!-- end of grid -->\ntwo"
    new = with_parts(text, {"grid": r"a \1 table", "other": "nothing"})
    assert new.startswith("one\n")
    assert new.endswith("\ntwo")
    assert part_in(new, "grid") == r"a \1 table"
    assert part_in(new, "other") is None
    assert with_parts(new, {"grid": r"a \1 table"}) == new
