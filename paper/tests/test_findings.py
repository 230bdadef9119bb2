"""Orderings and differences on made-up records; the page says what the project's records say."""

import json
import math
import shutil

import pytest

from paper.findings import ORDERINGS, differences
from paper.page import UNEXPLAINED, cost, grid_part, part_in, seeds, with_parts
from paper.protocols import BUDGET, EVALUATIONS
from paper.reproduction import NAMES, check
from paper.runs import Records


def run(table, dataset, row, seed, v, w, **others):
    return {
        "table": table, "dataset": dataset, "row": row, "seed": seed, "minus_log_p_v": v,
        "minus_log_p_v_fitted": v, "minus_log_p_w": w, "seconds": 60.0, "core_seconds": 60.0,
        "details": {}, "settings": {}, **others,
    }  # fmt: skip


def by_table(*runs):
    answer = {}
    for one in runs:
        key = one["dataset"], one["row"], one["seed"]
        answer.setdefault(one["table"], {})[key] = one
    return answer


@pytest.mark.parametrize("ordering", ORDERINGS, ids=lambda o: o.words)
def test_every_ordering_can_hold_and_fail(ordering):
    def side(place, value):
        return [run(*place, seed, value, value + 0.01 * seed) for seed in (0, 1)]

    good = by_table(*side(ordering.better, 1.0), *side(ordering.worse, 2.0))
    bad = by_table(*side(ordering.better, 2.0), *side(ordering.worse, 1.0))
    assert ordering.verdict(good).startswith("holds: by +1.0000")
    assert ordering.verdict(bad).startswith("does not hold: by -1.0000")
    assert ordering.verdict({}) == "not run"


def test_an_ordering_within_its_error_says_so():
    ordering = ORDERINGS[0]
    pairs = [(1.0, 1.1), (1.0, 0.95), (1.0, 1.05)]
    runs = [
        run(*side, seed, 0.0, value)
        for seed, values in enumerate(pairs)
        for side, value in zip((ordering.better, ordering.worse), values, strict=True)
    ]
    assert "within two standard errors" in ordering.verdict(by_table(*runs))


def test_differences_are_those_beyond_two_standard_deviations():
    near = run("mixture", "toy", "elbo-1", 0, 2.95, 3.609)
    assert list(differences(by_table(near))) == []
    far = {**near, "minus_log_p_v": 3.0, "minus_log_p_w": 3.700}
    title = "Flow, evidence lower bound, K = 1"
    assert [name for name, *_ in differences(by_table(far))] == [
        f"{title}, -log p(v)", f"{title}, -log p(w)",
    ]  # fmt: skip


def test_the_paper_s_wines_are_held_against_fitted_rows_in_file_order():
    of_rows = {"minus_log_p_v_fitted": 8.0}
    wines = [run("uci", name, "iw-50", 0, 9.0, None, **of_rows) for name in ("red", "white-file")]
    ((name, ours, paper),) = differences(by_table(*wines))
    assert name == "white wine, Flow, importance weighted, K = 50, -log p(v) of fitted rows"
    assert (ours.mean, paper) == (8.0, (8.685, 0.082))
    near = [{**one, "minus_log_p_v_fitted": 8.7} for one in wines]
    assert list(differences(by_table(*near))) == []


def test_two_rows_of_one_fit_are_not_compared():
    ordering = next(each for each in ORDERINGS if each.worse.row == "elbo-1")
    shared = run(*ordering.better, 0, 2.8, 3.6, same_fit_as="elbo-1")
    runs = [shared, run(*ordering.worse, 0, 2.8, 3.6)]
    assert ordering.verdict(by_table(*runs)) == "not tested: one fit serves both"
    other = next(each for each in ORDERINGS if each.worse == ordering.better)
    verdict = other.verdict(by_table(shared, run(*other.better, 0, 2.7, 3.5)))
    assert verdict.endswith("with one seed (elbo-50 is the fit of elbo-1)")


def test_a_reason_on_the_page_is_kept_as_long_as_its_numbers_are(paper_again):
    records = Records(paper_again.results, "mixture", "budget")

    def part(v):
        records.add(run("mixture", "toy", "elbo-1", 0, v, 3.609))
        paper_again.write()
        return part_in(paper_again.document.read_text(), "differences")

    def unexplained():
        return any("reason is to be written" in words for _, words in paper_again.check(["grid"]))

    assert "no number differs" in part(2.9)
    assert UNEXPLAINED in part(3.1)
    assert unexplained()
    text = paper_again.document.read_text()
    paper_again.document.write_text(text.replace(UNEXPLAINED, "Dropout, and a long reason."))
    assert "| Dropout, and a long reason. |" in part(3.1)
    assert not unexplained()
    assert UNEXPLAINED in part(3.2)


@pytest.mark.parametrize(("excess", "wanted"), [(0.004, True), (0.006, False)])
def test_the_bar_of_xd(tmp_path, excess, wanted):
    one = run("mixture", "toy", "xd", 0, 2.669 + excess, 3.603, truth_v=2.669, truth_w=3.603)
    Records(tmp_path / "results", "mixture", "budget").add(one)
    findings = check(tmp_path / "results", tmp_path / "no.md", BUDGET, ["mixture"])
    (good,) = [good for good, words in findings if "of the truth" in words]
    assert good is wanted


def test_records_of_the_repository_are_written_as_they_are(tmp_path, request):
    paths = list((request.config.rootpath / "results" / "reproduction").glob("*.json"))
    assert len(paths) == 7
    for path in paths:
        records = Records(tmp_path, *path.stem.split("-"))
        records.folder.mkdir(exist_ok=True)
        records.path.write_bytes(path.read_bytes())
        records.add(json.loads(path.read_text())["runs"][0])
        assert records.path.read_bytes() == path.read_bytes()


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
