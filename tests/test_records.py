"""The records: runs that are kept, and a page that agrees with them."""

import json
from pathlib import Path

import numpy as np
import pytest

import deconflow
from benchmarks import candidates, deconvolver, runs
from benchmarks.records import estimators, page, pictures, tables
from benchmarks.records.__main__ import main
from benchmarks.records.sections import RECORD, SECTIONS, open_runs

pytestmark = pytest.mark.docs

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "records.md"


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory):
    """Made-up tables in the form of the real ones."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    z = rng.normal(size=200) * np.sqrt(1.3)
    (folder / "prostate_z.txt").write_text("Z\n" + "\n".join(map(str, z)) + "\n")
    n = rng.integers(1, 40, 150)
    counts = [f"{a},{b}" for a, b in zip(n, rng.binomial(n, 0.3), strict=True)]
    (folder / "surgery.csv").write_text("\n".join(["n,s", *counts]) + "\n")
    zones = [f'{i},"A, B",{e:.3f},0.2' for i, e in enumerate(rng.normal(size=100) * 0.3)]
    text = "\n".join(["CZ ,Name,p25_coef,p25_se", *zones, "100,None,,"])
    (folder / "neighborhoods.csv").write_text(text + "\n")
    batters = [f"9,{x:.3f},0.1" for x in rng.normal(0.3, 0.12, 80)]
    (folder / "woba.csv").write_text("\n".join(["PA,x,s", *batters]) + "\n")
    return folder


@pytest.fixture(scope="module")
def small_record(tmp_path_factory, data_folder):
    """One run of each kind with the cheapest estimator, and a copy of the page."""
    results = tmp_path_factory.mktemp("results")
    kept = open_runs(results)
    for section in SECTIONS.values():
        for task in section.tasks(("xd-1",), (0,), shape=(3,), rows=(100, 316)):
            kept.add(section.run(task, data_folder))
    return results


@pytest.fixture
def page_of(small_record, tmp_path):
    document = tmp_path / "records.md"
    document.write_text(PAGE.read_text())
    page.refresh(document, small_record)
    return document


def test_page_agrees_with_the_records():
    results = ROOT / "results"
    if not (results / RECORD).exists():
        pytest.skip(f"no results/{RECORD} yet: python -m benchmarks.records makes it")
    assert page.check(PAGE, results) == []


def test_page_is_written_from_records(page_of, small_record):
    text = page_of.read_text()
    assert page.check(page_of, small_record) == []
    assert not page.refresh(page_of, small_record)
    assert text.count(estimators.LABELS["xd-1"]) == 1 + 1 + 3 + 1 + 1
    assert "published: their normalizing flow" in text
    assert text.count("Not run yet.") == 1  # the tasks have a record of their own
    for name in pictures.PICTURES:
        assert f"images/{name}" in text
        assert (page_of.parent / "images" / name).stat().st_size > 5000


def test_a_page_that_disagrees_is_found(page_of, small_record, tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    content = json.loads((small_record / RECORD).read_text())
    (results / RECORD).write_text(json.dumps(content))
    assert page.check(page_of, results) == []
    for run in content["runs"]:
        if run["section"] == "gamma":
            run["kl"] *= 2
    (results / RECORD).write_text(json.dumps(content))
    wrong = page.check(page_of, results)
    assert len(wrong) == 2
    assert "'gamma'" in wrong[0]
    assert "records-gamma.png" in wrong[1]


def test_page_shows_the_seeds_of_the_bars_only(small_record, tmp_path):
    content = json.loads((small_record / RECORD).read_text())
    trials = [run | {"seed": 100, "kl": 9.9} for run in content["runs"]]
    (tmp_path / RECORD).write_text(json.dumps(content | {"runs": content["runs"] + trials}))
    whole, mixed = tables.parts(small_record), tables.parts(tmp_path)
    assert mixed.pop("machine") != whole.pop("machine")
    assert mixed == whole


def test_page_without_markers_is_refused(tmp_path, small_record):
    document = tmp_path / "records.md"
    document.write_text("# Records\n")
    with pytest.raises(ValueError, match="Expected the page to have '<!-- tasks"):
        page.refresh(document, small_record)


def test_numbers_are_short():
    assert [tables.short(x, 2) for x in (0.5, -0.25, 10.04, None)] == [".50", "-.25", "10.04", "-"]
    assert [tables.significant(x) for x in (0.0123, 0.94, 12.3)] == [".012", ".94", "12"]
    assert tables.significant(np.inf) == "inf"


def test_real_tables_are_read(data_folder):
    from benchmarks.records.real import TABLES

    sizes = {name: [len(c) for c in table.read(data_folder)] for name, table in TABLES.items()}
    assert sizes == {"prostate": [200, 200], "surgery": [150, 150], "neighborhoods": [100, 100]}
    angle, error = TABLES["surgery"].read(data_folder)
    spread = np.sqrt(np.mean((angle - np.arcsin(np.sqrt(0.3))) ** 2 / error**2))
    assert spread == pytest.approx(1, abs=4 / np.sqrt(2 * 150))  # errors are what they say


def test_command_goes_on_where_it_stopped(tmp_path, capsys, monkeypatch):
    command = ["x", "gamma", "--estimator", "xd-1", "--seeds", "0", "--shapes", "3", "4"]
    command += ["--rows", "100", "--results", str(tmp_path)]
    monkeypatch.setattr("sys.argv", command)
    assert main() == 0
    first = capsys.readouterr()
    assert first.out.count('"kl"') == 2
    assert main() == 0
    second = capsys.readouterr()
    assert second.out == ""
    assert "2 runs, 0 to make" in second.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gama"], "Expected sections of gamma, batting"),
        (["batting", "--estimator", "xd-1", "--data", "nowhere"], "woba.csv"),
    ],
)
def test_command_refuses(words, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["x", *words, "--results", str(tmp_path)])
    assert main() == 2
    assert message in capsys.readouterr().err


def test_estimators():
    with pytest.raises(ValueError, match="Expected --estimator of deconvolver"):
        estimators.make("nothing", 100, 0)
    for name in filter(estimators.available, estimators.LABELS):
        model = estimators.make(name, 100, 3)
        assert model.get_params().get("random_state", 3) == 3


def test_a_missing_estimator_is_named(monkeypatch):
    monkeypatch.setitem(estimators._CLASSES, "bayes", "NotYetThere")
    assert not estimators.available("bayes")
    with pytest.raises(ValueError, match="Expected a version of deconflow with `BayesianXDGMM"):
        estimators.make("bayes", 100, 0)


def test_digest_sees_statements_only():
    plain = "def f(x):\n    return x + 1\n"
    worded = '"""Words."""\ndef f(x):\n    """Add."""\n    # one\n    return (x\n            + 1)\n'
    assert runs.statements(plain) == runs.statements(worded)
    assert runs.statements(plain) != runs.statements(plain.replace("1", "2"))
    assert len(runs.code_digest()) == 12


def test_runs_of_other_code_are_made_again(tmp_path, monkeypatch):
    path = tmp_path / "some.json"
    ours, theirs = runs.Runs(path, ["seed"]), runs.Runs(path, ["seed"])
    ours.add({"seed": 0, "figure": np.float64(1.0), "table": np.arange(2)})
    theirs.add({"seed": 1, "figure": 1.0})  # another process, that began before
    assert json.loads(path.read_text())["runs"][0]["table"] == [0, 1]
    again = runs.Runs(path, ["seed"])
    assert [again.done({"seed": seed}) for seed in (0, 1, 2)] == [True, True, False]
    monkeypatch.setattr(runs, "code_digest", lambda: "other")
    assert not again.done({"seed": 0})
    assert runs.Runs(path, ["seed"], keep=True).done({"seed": 0})
    again.add({"seed": 0, "figure": 2.0})
    found = runs.Runs(path, ["seed"])
    assert sorted((r["seed"], r["figure"]) for r in found.runs) == [(0, 2.0), (1, 1.0)]
    assert len(runs.codes(found.runs)) == 2


class WithCandidates(deconflow.XDGMM):
    """Stands for a Deconvolver: one of its candidates is better than it is."""

    def __init__(self, *, random_state=None, quick=False, n_components=1):
        super().__init__(n_components, random_state=random_state)
        self.quick = quick

    def fit(self, w, y=None, *, noise=None):
        self.__dict__["better"] = deconflow.XDGMM(12, floor=0.1, random_state=0).fit(w, noise=noise)
        return super().fit(w, noise=noise)

    @property
    def candidates_(self):
        return {"one": self.density_, "many": self.better.density_}


def test_a_task_scores_every_candidate(monkeypatch, tmp_path):
    monkeypatch.setattr(deconflow, "Deconvolver", WithCandidates)
    monkeypatch.setattr(deconvolver, "TEST_ROWS", 2000)
    monkeypatch.setitem(deconvolver.ROWS, "ring", 1000)
    kept = deconvolver.open_runs(tmp_path / "deconvolver.json")
    kept.add(deconvolver.run("ring", 0, tmp_path, quick=False))
    run = kept.runs[0]
    assert run["ours"] == pytest.approx(run["candidates"]["one"])
    assert run["figure"] == pytest.approx(run["ours"] - run["truth"])
    assert run["loss"] == pytest.approx(run["ours"] - run["candidates"]["many"])
    assert run["loss"] > 0.3  # one Gaussian is no ring
    table = deconvolver.summary(kept.current())
    assert table["ring"]["most_lost"] == run["loss"]
    assert "above its bar" in deconvolver.as_text(table)
    part = tables.tasks_part(tmp_path / "deconvolver.json")
    assert tables.short(run["figure"]) in part


def test_candidates_of_other_versions():
    class Old:
        def xd_score_samples(self, v):
            return np.zeros(len(v))

    class New(Old):
        weights_ = {"flows": 0.25, "mixtures": np.float64(0.75)}

    v = np.zeros((3, 1))
    assert list(candidates.log_densities(Old(), v)) == ["mixtures"]
    assert candidates.log_densities(object(), v) == {}
    assert candidates.shares(Old()) is None
    assert candidates.shares(New()) == {"flows": 0.25, "mixtures": 0.75}


def test_what_was_reached_before_is_kept(tmp_path):
    old = {"task": "white", "seed": 0, "quick": False, "ours": 8.4, "truth": None, "seconds": 9.0,
           "figure": -0.3}  # fmt: skip
    path = tmp_path / "deconvolver.json"
    path.write_text(json.dumps({"runs": [old]}))
    assert deconvolver.before(path)["white"]["mean"] == 8.4
    assert "8.400" in tables.tasks_part(path)
    path.write_text(json.dumps({"runs": [], "before": {"white": {"mean": 8.5}}}))
    assert deconvolver.before(path) == {"white": {"mean": 8.5}}
