"""Folders of files: denoised and scored file by file, whatever happens on the way."""

import errno
import json
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from program.running import XD, run, succeed
from tables.catalogue import catalogue

import deconflow.files
from deconflow import XDGMM
from deconflow.estimators import stream_fits
from deconflow.program import beyond_memory, many_files, output_folder, reading, sample
from deconflow.tables import open_table

NAMES = ["a", "b", "c", "sub/d"]
FIT = ("fit", "survey", "-c", "x,y", *XD, "-q")
DENOISE = ("denoise", "model", "survey", "-o", "out", "-q")


@pytest.fixture
def survey(folder):
    """A folder of four Parquet files beside a model; the second has no rows."""
    whole = catalogue(120)
    cuts = [(0, 50), (50, 0), (50, 40), (90, 30)]
    for name, cut in zip(NAMES, cuts, strict=True):
        path = folder / "survey" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(whole.slice(*cut), path)
    return folder / "survey"


def written(path):
    return {
        file.relative_to(path).as_posix(): pq.read_table(file)
        for file in sorted(path.rglob("*.parquet"))
    }


def refused(*arguments, code=2):
    result = run(*arguments)
    assert result.exit_code == code, result.output
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-500])


def test_each_file_is_denoised_under_its_own_name(survey, folder):
    (survey / "d=1").mkdir()
    said = succeed(*DENOISE, "--quantiles", "0.5")
    assert "120 rows of 4 files; written to out" in said
    found = written(folder / "out")
    assert list(found) == [f"{name}.parquet" for name in NAMES]
    assert [len(table) for table in found.values()] == [50, 0, 40, 30]
    succeed("denoise", "model", "survey", "-o", "one.parquet", "--quantiles", "0.5", "-q")
    together = pq.read_table("one.parquet")  # one table of all, if one is named
    assert pa.concat_tables(found.values()).equals(together)
    assert sum(len(rows) for rows in open_table("out").chunks(100)) == 120


def test_hive_columns_stay_in_the_names_of_folders(survey, folder):
    (survey / "sub").rename(survey / "year=2020")
    for name in "abc":
        (survey / f"{name}.parquet").unlink()
    succeed(*DENOISE)
    assert "year" not in pq.ParquetFile("out/year=2020/d.parquet").schema_arrow.names
    assert set(pq.read_table("out").column("year").to_pylist()) == {2020}


def test_scores_of_many_files_are_those_of_one(survey, folder):
    several = succeed("score", "model", "survey", "-o", "out", "-q")
    one = succeed("score", "model", "survey", "-q")
    assert several.replace(" of 4 files", "").splitlines()[0] == one.splitlines()[0]
    count, smallest = several.splitlines()[1].split("; ")
    assert count == one.splitlines()[1].split("; ")[0]
    found = written(folder / "out")
    p = {name: table["p_value"].to_numpy() for name, table in found.items() if len(table)}
    least = min(values.min() for values in p.values())
    name = next(name for name in p if p[name].min() == least)
    assert f"smallest {least:.2g}, in row {p[name].argmin()} of {name} (the first" in smallest


def test_draws_do_not_depend_on_the_run(survey, folder, monkeypatch):
    """Files that are finished by themselves, later, have the draws of those done at once."""
    succeed(*DENOISE, "--samples", "1")
    before = written(folder / "out")
    draws = [before[f"{name}.parquet"]["x_sample_1"].to_numpy() for name in ("a", "c")]
    assert not np.isclose(draws[0][:40], draws[1]).any()
    (folder / "out" / "c.parquet").unlink()
    succeed(*DENOISE, "--samples", "1", "--resume")
    assert written(folder / "out")["c.parquet"].equals(before["c.parquet"])


def test_a_damaged_file_keeps_no_other_from_being_done(survey, folder):
    whole = (survey / "b.parquet").read_bytes()
    pq.write_table(catalogue(30), survey / "b.parquet")
    whole = (survey / "b.parquet").read_bytes()
    cut_short(survey / "b.parquet")
    inside = bytearray((survey / "c.parquet").read_bytes())
    good = bytes(inside)
    inside[200:240] = bytes(40)
    (survey / "c.parquet").write_bytes(inside)
    line = refused(*DENOISE, code=1)
    assert "Expected 4 files that can be used; got 2 that cannot: b.parquet (" in line
    assert "c.parquet (" in line
    assert "with --resume" in line
    done = written(folder / "out")
    assert list(done) == ["a.parquet", "sub/d.parquet"]
    stamp = (folder / "out" / "a.parquet").stat().st_mtime_ns
    (survey / "b.parquet").write_bytes(whole)
    (survey / "c.parquet").write_bytes(good)
    assert "150 rows of 4 files" in succeed(*DENOISE, "--resume")
    assert len(written(folder / "out")) == 4
    assert (folder / "out" / "a.parquet").stat().st_mtime_ns == stamp  # kept


def test_killed_between_files(survey, folder, monkeypatch):
    plain, done = many_files.write_columns, []

    def killed(reader, output, *arguments, **options):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(output)
        return plain(reader, output, *arguments, **options)

    monkeypatch.setattr(many_files, "write_columns", killed)
    result = run(*DENOISE)
    assert result.exit_code == 130
    assert "Go on with --resume" in result.stderr
    assert list(written(folder / "out")) == ["a.parquet", "b.parquet"]
    with (folder / "out" / ".deconflow" / "finished-0.jsonl").open("a") as file:
        file.write('{"name": "c.parq')  # what a power cut leaves
    monkeypatch.setattr(many_files, "write_columns", plain)
    assert "to which an earlier run has written. Go on with --resume" in refused(*DENOISE)
    assert "120 rows of 4 files" in succeed(*DENOISE, "--resume")
    shutil.move("out", "resumed")
    succeed(*DENOISE)
    assert all(a.equals(b) for a, b in zip(
        written(folder / "out").values(), written(folder / "resumed").values(), strict=True
    ))  # fmt: skip
    lines = (folder / "resumed" / ".deconflow" / "finished-0.jsonl").read_text().split("\n")
    assert len([line for line in lines if line.startswith("{") and line.endswith("}")]) == 4


def test_resume_only_with_the_same_command(survey, folder):
    succeed(*DENOISE)
    assert "got another --quantiles" in refused(*DENOISE, "--quantiles", "0.5", "--resume")
    assert "got another command" in refused("score", *DENOISE[1:], "--resume")
    succeed("fit", "stars.csv", "-c", "x,y", "-o", "model", "-m", "xd", "--set", "n_components=1",
            "--set", "n_average=1")  # fmt: skip
    assert "got another model" in refused(*DENOISE, "--resume")
    line = refused("denoise", "model", "survey/a.parquet", "-o", "a.csv", "--resume")
    assert "Expected --resume where a folder of files is written" in line


def test_a_file_that_has_changed_is_done_again(survey, folder):
    succeed(*DENOISE)
    pq.write_table(catalogue(7), survey / "b.parquet")
    assert "127 rows of 4 files" in succeed(*DENOISE, "--resume")
    assert len(pq.read_table("out/b.parquet")) == 7


def test_a_full_disk(survey, folder, monkeypatch):
    plain = deconflow.files._flush

    def full(path):
        if path.name == "c.parquet":
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(path)

    monkeypatch.setattr(deconflow.files, "_flush", full)
    assert "Expected room on the disk for out/c.parquet; got none left" in refused(*DENOISE)
    assert list(written(folder / "out")) == ["a.parquet", "b.parquet"]
    hidden = [each.name for each in (folder / "out").iterdir() if each.name.startswith(".")]
    assert hidden == [".deconflow"]
    monkeypatch.setattr(deconflow.files, "_flush", plain)
    succeed(*DENOISE, "--resume")
    assert len(written(folder / "out")) == 4


def test_what_is_refused_before_anything_runs(survey, folder):
    (folder / "full").mkdir()
    (folder / "full" / "notes").write_text("of the user")
    assert "got full with other files" in refused(*DENOISE[:4], "full")
    assert "got the file stars.csv" not in refused(*DENOISE[:4], "survey/out")
    assert "outside survey" in refused(*DENOISE[:4], "survey/out")
    piece = pq.read_table(survey / "c.parquet")
    pq.write_table(piece.drop(["x_err"]), survey / "c.parquet")
    assert "survey/c.parquet; got none called 'x_err'" in refused(*DENOISE)
    kilo = piece.schema.field("x").with_metadata({"unit": "km"})
    pq.write_table(piece.set_column(1, kilo, piece["x"]), survey / "c.parquet")
    assert "'x' in no unit in survey/c.parquet" in refused(*DENOISE)
    pq.write_table(piece, survey / "c.parquet")
    with output_folder.locked_folder(folder / "out" / ".deconflow"):
        assert "got another that is writing there" in refused(*DENOISE)
    (survey / "extra.csv").write_text("x,y\n1,2\n")
    assert "of one format in survey; got a.parquet and extra.csv" in refused(*DENOISE)
    assert not written(folder / "out")


def test_draws_into_a_folder(folder, monkeypatch):
    monkeypatch.setattr(sample, "AT_ONCE", 100)
    monkeypatch.setattr(sample, "ROWS_OF_A_FILE", 200)
    draw = ("sample", "model", "-n", "450", "--seed", "3")
    succeed(*draw, "-o", "one.parquet")
    assert "450 rows of 3 files written to draws/." in succeed(*draw, "-o", "draws/")
    found = written(folder / "draws")
    assert [len(table) for table in found.values()] == [200, 200, 50]
    assert list(found)[2] == "part-00002.parquet"
    assert pa.concat_tables(found.values()).equals(pq.read_table("one.parquet"))
    (folder / "draws" / "part-00001.parquet").unlink()
    assert "an earlier run has written" in refused(*draw, "-o", "draws")  # an existing folder
    assert "got another --number" in refused(*draw, "-n", "400", "-o", "draws", "--resume")
    succeed(*draw, "-o", "draws", "--resume")
    assert written(folder / "draws") == found
    assert "ends in" in refused(*draw, "-o", "nothing")
    assert "Expected --resume" in refused(*draw, "-o", "one.parquet", "--resume")


def test_text_files_and_patterns(folder):
    (folder / "survey").mkdir()
    lines = (folder / "stars.csv").read_text().splitlines(keepends=True)
    for name, part in (("a", lines[1:20]), ("b", lines[20:50])):
        (folder / "survey" / f"{name}.csv").write_text(lines[0] + "".join(part))
    (folder / "survey" / "readme.txt").write_text("words\n")
    succeed("denoise", "model", "survey/*.csv", "-o", "out", "-q")
    found = (folder / "out" / "b.csv").read_text().splitlines()
    assert len(found) == 31
    assert found[1].startswith(lines[20].split(",")[0])
    assert json.loads((folder / "out" / ".deconflow" / "command.json").read_text())["seed"] == 0


@pytest.fixture
def in_passes(monkeypatch):
    """Nothing fits into memory; the certificate looks at fifty rows."""
    monkeypatch.setattr(reading, "MOST_VALUES", 0)
    monkeypatch.setattr(reading, "MOST_BYTES", 0)
    monkeypatch.setattr(beyond_memory, "CHECKED_ROWS", 50)


def odd_rows(survey):
    """Put rows into a file that cannot be used, and values that look like missing ones."""
    table = pq.read_table(survey / "c.parquet").to_pandas()
    table.loc[:2, ["x", "y"]] = np.nan
    table.loc[3:4, "x"] = -99.0
    table.loc[5, "e_y"] = np.nan
    table["w"] = np.where(table.index < 10, 0.0, 2.0)
    for name in ("a", "b", "sub/d"):
        other = pq.read_table(survey / f"{name}.parquet")
        pq.write_table(other.append_column("w", pa.array(np.ones(len(other)))),
                       survey / f"{name}.parquet")  # fmt: skip
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), survey / "c.parquet")


def test_a_fit_in_passes_tells_what_one_in_memory_does(survey, folder, monkeypatch, request):
    odd_rows(survey)
    whole = run(*FIT, "--weights", "w", "-o", "whole")
    assert whole.exit_code == 0, whole.output
    request.getfixturevalue("in_passes")
    passes = run(*FIT, "--weights", "w", "-o", "passes")
    assert passes.exit_code == 0, passes.output
    assert passes.stderr == whole.stderr
    assert "117 of 120 rows can be used" in passes.stderr
    assert "2 values of x are -99" in passes.stderr
    assert "from 0 to 2; 7 of them do not count" in passes.stderr
    assert "fitted rows of the 117, taken at random" in passes.output
    one, two = (
        json.loads((folder / name / "table.json").read_text()) for name in ("whole", "passes")
    )
    assert one["table"].keys() == two["table"].keys()
    for a, b in zip(one["table"]["columns"], two["table"]["columns"], strict=True):
        assert a.pop("name") == b.pop("name")
        assert a == pytest.approx(b, rel=1e-12)
    models = [XDGMM.load(name) for name in ("whole", "passes")]
    w, sd = np.zeros((1, 2)), np.full((1, 2), 0.3)
    a, b = (model.score_observations(w, sd)[0] for model in models)
    assert abs(a - b) < 1e-3  # both stop where a step gains less than 1e-6


def test_other_commands_find_the_folder_again(survey, folder):
    succeed(*FIT, "-o", "new")
    assert "Picture written" in succeed(
        "plot", "new", "-o", "new.png", "--kind", "row", "--rows", "3"
    )
    (folder / "survey").rename(folder / "moved")
    line = refused("plot", "new", "-o", "new.png", "--kind", "row", "--rows", "3")
    assert "Expected a table for a picture" in line


def test_text_is_fitted_in_passes_too(folder, in_passes):
    output = succeed("fit", "stars.csv", "-c", "x,y", *XD, "-q", "-o", "new")
    assert "of the 250, taken at random" in output
    assert XDGMM.load("new").n_components_ == 2


def test_what_cannot_be_fitted_in_passes(survey, in_passes):
    line = refused("fit", "survey", "-c", "x", "-m", "kde", "-o", "new", "-q")
    assert "with 120 rows of survey beyond memory" in line
    assert "got --method kde" in line
    assert "Expected no --groups with" in refused(*FIT, "--groups", "name", "-o", "new")
    assert "Expected no --select with" in refused(*FIT, "--select", "x<100", "-o", "new")
    line = refused("plot", "model", "survey", "-o", "plot.png")
    assert "got more in survey. Give a smaller table" in line
    assert "got bounds" in refused(*FIT, "--bounds", "x=-99:", "-o", "new")


def test_a_damaged_file_is_named_before_a_fit(survey, folder):
    cut_short(survey / "c.parquet")
    assert "survey/c.parquet" in refused(*FIT, "-o", "new")
    assert not (folder / "new").exists()


def wrong_cell(survey):
    """Put a negative error into the third file."""
    table = pq.read_table(survey / "c.parquet").to_pandas()
    table.loc[7, "x_err"] = -1.0
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), survey / "c.parquet")


def test_a_wrong_cell_is_named_with_its_file(survey, in_passes):
    wrong_cell(survey)
    line = refused(*FIT, "-o", "new")
    assert "'x_err'" in line
    assert "row 7" in line
    assert "c.parquet" in line


def test_a_fit_in_passes_goes_on(survey, folder, in_passes, monkeypatch):
    plain, passes = stream_fits.KeptPasses.keep, []

    def interrupted(self, mixture, history):
        plain(self, mixture, history)
        passes.append(mixture)
        if len(passes) == 2:
            raise KeyboardInterrupt

    fit = (*FIT, "--set", "tol=1e-12")
    succeed(*fit, "-o", "whole")
    monkeypatch.setattr(stream_fits.KeptPasses, "keep", interrupted)
    result = run(*fit, "-o", "new")
    assert result.exit_code == 130
    assert "Go on with --resume" in result.stderr
    assert (folder / ".new.checkpoint" / "fit").exists()
    monkeypatch.setattr(stream_fits.KeptPasses, "keep", plain)
    succeed(*fit, "-o", "new", "--resume")
    whole, new = (XDGMM.load(name) for name in ("whole", "new"))
    assert np.allclose(np.sort(whole.means_, 0), np.sort(new.means_, 0), atol=1e-3)
    assert not (folder / ".new.checkpoint").exists()


def test_processes_take_files_by_turns(survey, folder, monkeypatch):
    """What two processes write is what one does; here the one plays both, one after the other."""
    succeed(*DENOISE, "--samples", "1")
    shutil.move("out", "one")
    monkeypatch.setattr(output_folder.ranks, "world", lambda: 2)
    monkeypatch.setattr(output_folder.ranks, "gathered", lambda value: [value])
    monkeypatch.setattr(output_folder.ranks, "from_first", lambda value: value)
    succeed(*DENOISE, "--samples", "1")
    assert list(written(folder / "out")) == ["a.parquet", "c.parquet"]
    monkeypatch.setattr(output_folder.ranks, "rank", lambda: 1)
    monkeypatch.setattr(output_folder.OutputFolder, "_finished", lambda self: {})
    succeed(*DENOISE, "--samples", "1")
    assert written(folder / "out") == written(folder / "one")
    record = folder / "out" / ".deconflow"
    assert {path.name for path in record.iterdir()} == {
        "command.json", "finished-0.jsonl", "finished-1.jsonl"
    }  # fmt: skip


@pytest.mark.slow
def test_two_processes(survey, folder):
    """One fit, one voice; a process that fails ends both."""

    def together(*words):
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
                   "-m", "deconflow", *words]  # fmt: skip
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = together(*FIT, "-o", "new")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("120 of 120 rows can be used") == 1
    assert done.stdout.count("Model written to new") == 1
    wrong_cell(survey)
    done = together(*FIT, "-o", "other")
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.startswith("deconflow")]
    assert any("'x_err'" in line and "c.parquet" in line for line in lines)
    assert not (folder / "other").exists()
