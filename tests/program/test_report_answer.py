"""The report holds the answer, of every kind of model, and Python that gives it again."""

import json
import re
import shlex
from contextlib import chdir
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from program.running import run, succeed
from program.test_commands import measurements
from tables.catalogue import catalogue

from deconflow import XDGMM, self_test
from deconflow.program import report
from deconflow.program.options import as_options
from deconflow.program.report import versions

ONE = ("--method", "xd", "--set", "n_components=1", "-q")
SECTION = r"<h2>{}</h2>(.*?)</section>"


def section(page, title):
    return re.search(SECTION.format(re.escape(title)), page, re.DOTALL).group(1)


def cells(page, title):
    """Rows of the tables of a section, without their heads."""
    rows = re.findall(r"<tr>(<td.*?)</tr>", section(page, title), re.DOTALL)
    return [[unescape(cell) for cell in re.findall(r"<td.*?>(.*?)</td>", row)] for row in rows]


def python(page):
    return unescape(re.search("<pre>(.*?)</pre>", section(page, "The same in Python"), re.S)[1])


def written(path):
    return Path(path).read_text()


@pytest.fixture
def no_pictures(monkeypatch):
    """Pictures of all kinds of models are drawn elsewhere, and take long."""
    monkeypatch.setattr(report, "_picture", lambda saved, kind, data, seed: f"<p>{kind}</p>")


# -- Python that prints the page's numbers --------------------------------------------------------


def test_the_code_prints_the_numbers_of_the_page(folder, no_pictures, capsys):
    succeed("report", "model", "-o", "page.html", "--seed", 3)
    page = written("page.html")
    capsys.readouterr()
    exec(python(page), {})
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    answer = cells(page, "The answer")
    assert len(answer) == 2 * 7 + 1
    assert all(" ".join(row).split() in lines for row in answer)
    assert re.search(r"p-values:.*?0\)", printed)[0] in unescape(section(page, "The oddest rows"))
    assert ["x", "mean", "0", "0"] not in lines  # the twin: not everything is found


def test_a_table_of_many_rows(folder, no_pictures, monkeypatch):
    monkeypatch.setattr(report, "MOST_ROWS", 40)
    succeed("report", "model", "-o", "page.html")
    assert "Of 250 rows 40 were looked at, taken at random." in written("page.html")


def test_the_self_test(folder, no_pictures):
    succeed("report", "model", "-o", "page.html")
    assert "Self-test" not in written("page.html")
    said = run("report", "model", "-o", "page.html", "--self-test", 2)
    assert said.exit_code == 0, said.output
    assert "self-test: 100%" in said.output
    w, noise = measurements(catalogue())
    mine = self_test(XDGMM.load("model"), w, noise=noise, n_tables=2)
    words = unescape(section(written("page.html"), "Self-test"))
    assert all(sentence in words for sentence in map(as_options, mine.sentences()))
    for name, value in mine.figures().items():
        assert "refit" in value or value in words, name  # but the time


# -- where it comes from --------------------------------------------------------------------------


def test_what_was_typed_is_shown(folder, no_pictures):
    command = ("fit", "stars.csv", "-c", "x", "--errors", "x=x_err", "-o", "it's new", *ONE)
    succeed(*command)
    succeed("report", "it's new", "-o", "page.html")
    about = json.loads((folder / "it's new" / "table.json").read_text())
    assert about["command"] == shlex.join(["deconflow", *command])
    where = unescape(section(written("page.html"), "Where it comes from"))
    assert f"<pre>{about['command']}</pre>" in where
    assert "<pre>deconflow report 'it'\"'\"'s new' -o page.html</pre>" in where
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d", about["date"])
    assert about["date"] in where
    assert versions() in where
    assert "numpy " in versions()


# -- every kind of model --------------------------------------------------------------------------


def test_a_model_that_was_saved_in_python(tmp_path, no_pictures):
    stored = Path(__file__).parents[1] / "golden" / "deconvolver"
    succeed("report", stored, "-o", tmp_path / "page.html")
    page = written(tmp_path / "page.html")
    assert len(cells(page, "The answer")) >= 7
    candidates = {row[0]: float(row[1]) for row in cells(page, "What was chosen")}
    assert candidates["mixtures"] == 1
    where = section(page, "Where it comes from")
    assert "on a date that was not kept" in where
    assert "The command was not kept" in where
    assert cells(page, "Components")


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """A folder with a table that holds something for every option."""
    folder = tmp_path_factory.mktemp("kinds")
    rng = np.random.default_rng(0)
    n, age = 60, rng.normal(size=60)
    v = np.where(rng.uniform(size=n) < 0.3, 0.0, 2 + age + 0.5 * rng.normal(size=n))
    columns = {
        "x": v + 0.3 * rng.normal(size=n), "x_err": 0.3 * np.ones(n), "age": age,
        "low": np.maximum(v, 0.5), "low_err": 0.3 * np.ones(n),
        "low_limit": np.where(v < 0.5, -1, 0), "n": rng.poisson(np.abs(v) + 3),
        "star": np.repeat(np.arange(12), 5), "y": rng.normal(size=n), "y_err": 0.2 * np.ones(n),
    }  # fmt: skip
    table = np.column_stack([np.asarray(column) for column in columns.values()]).round(4)
    lines = [",".join(columns), *(",".join(f"{cell:g}" for cell in row) for row in table)]
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    return folder


KINDS = {
    "limits": (
        ("-c", "low", *ONE), "The answer", "only a limit is known are left out",
        "The oddest rows", "of 60 rows",
    ),
    "covariates": (
        ("-c", "x", "--given", "age", *ONE), "The answer", "The truth depends on covariates",
        "Components", "Not shown: Expected a mixture of Gaussians, .* given covariates",
    ),
    "atoms": (
        ("-c", "x", "--atoms", "0", "--background", "uniform", *ONE), "The answer",
        "Rows that are background", "Components", "at no atom",
    ),
    "kde": (
        ("-c", "x", "--method", "kde"), "The answer", "No standard errors",
        "Components", "Not shown: Expected a mixture of Gaussians",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind, kinds, no_pictures, capsys):
    options, first, words, second, others = KINDS[kind]
    with chdir(kinds):
        succeed("fit", "t.csv", *options, "-o", kind)
        succeed("report", kind, "-o", "page.html")
        page = written("page.html")
        exec(python(page), {})
    assert re.search(words, section(page, first))
    assert re.search(others, unescape(section(page, second)))
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    answer = cells(page, "The answer")
    assert len(answer) in (7, 15)
    assert len(cells(page, "The oddest rows")) == 10
    assert all(" ".join(row).split() in printed for row in answer)
