"""``deconflow check``: what it says, keeps and shows."""

import json

import pytest
from program.running import run, succeed
from program.test_pages import run_python
from program.test_refusals import check_refusal
from program.test_report import Page
from signing import sign

import deconflow
from deconflow import SelfTest
from deconflow.estimators import refits


def words_of(page):
    return " ".join(Page(page.read_text()).words)


def test_check_is_that_of_the_library(folder):
    from program.test_commands import catalogue, measurements

    output = succeed("check", "model", "stars.csv", "-n", "2", "-o", "found.json")
    found = SelfTest.from_dict(json.loads((folder / "found.json").read_text()))
    w, noise = measurements(catalogue())
    mine = deconflow.load(folder / "model").self_test(w, noise=noise, n_tables=2)
    assert [refit.ranks for refit in found.refits] == [refit.ranks for refit in mine.refits]
    assert found.in_words() in output
    assert found.names == ("x", "y")


def test_the_time_is_told_beforehand(folder):
    about = json.loads((folder / "model" / "table.json").read_text())
    (folder / "model" / "table.json").write_text(json.dumps(about | {"seconds": 60.0}))
    sign(folder / "model")
    output = succeed("check", "model", "-n", "2")
    assert output.index("about 2 min for 2 refits") < output.index("simulated rows")
    assert "minutes" not in succeed("check", "model", "-n", "1", "-q")


@pytest.mark.slow
def test_it_is_kept_with_the_model_and_in_the_report(folder):
    (folder / "model" / "mine.txt").write_text("a word of mine")
    succeed("report", "model", "-o", "page.html")
    assert "Self-test" not in words_of(folder / "page.html")
    succeed("check", "model", "-n", "1", "-q")
    assert (folder / "model" / "mine.txt").read_text() == "a word of mine"
    succeed("info", "model")
    deconflow.load(folder / "model")
    succeed("check", "model", "-n", "2", "-q")  # in place of the first
    succeed("report", "model", "-o", "page.html")
    words = words_of(folder / "page.html")
    assert "Self-test" in words
    assert "2 of 250 simulated rows" in words
    succeed("fit", "stars.csv", "-c", "x,y", "-o", "model", "-m", "kde")
    assert not (folder / "model" / "self_test.json").exists()  # it was about another fit


def test_a_damaged_self_test(folder):
    succeed("check", "model", "-n", "1", "-q")
    kept = json.loads((folder / "model" / "self_test.json").read_text())
    kept["refits"][0]["ranks"] = [[1, 2], [3, 4]]
    (folder / "model" / "self_test.json").write_text(json.dumps(kept))
    assert "its checksum is not" in check_refusal(run("report", "model", "-o", "page.html"))
    sign(folder / "model")
    assert "Expected 20 counts" in check_refusal(run("report", "model", "-o", "page.html"))


def test_interrupted(folder, monkeypatch):
    real, done = refits._one_table, []

    def one_table(*arguments):
        if done:
            raise KeyboardInterrupt
        done.append(1)
        return real(*arguments)

    monkeypatch.setattr(refits, "_one_table", one_table)
    result = run("check", "model", "-q")
    assert result.exit_code == 130
    assert "1 (of 5, interrupted)" in result.output
    assert (folder / "model" / "self_test.json").exists()


def test_the_page(request, capsys):
    run_python((request.config.rootpath / "docs" / "self_test.md").read_text())
    said = capsys.readouterr().out
    good, greedy = said.split("diagnostics`.", 1)
    assert "CAUTION" not in good
    assert "CAUTION: intervals of v0 hold the truth too rarely" in greedy


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing",), "Expected a model's folder"),
        (("model", "nothing.csv"), "Expected a table at nothing.csv"),
        (("model", "-o", "found.txt"), "ends in .json"),
    ],
)
def test_bad_input(folder, words, said):
    assert said in check_refusal(run("check", *words))


def test_a_table_that_is_gone(folder):
    about = json.loads((folder / "model" / "table.json").read_text())
    about["table"]["path"] = "gone.csv"
    (folder / "model" / "table.json").write_text(json.dumps(about))
    sign(folder / "model")
    assert "Name it" in check_refusal(run("check", "model"))
