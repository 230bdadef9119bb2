"""Whatever is wrong: one line, exit code 2, no traceback, nothing half written."""

import json
import os
import pickle
import resource
import subprocess
import sys

import pytest
from program.running import XD, check_refusal, refused, run, succeed
from signing import sign
from tables.catalogue import catalogue, text

FIT = ("fit", "t.csv", "-c", "x,y", "-o", "new", *XD)
GOOD = "x,y,x_err,y_err\n" + "1.0,2.0,0.1,0.1\n" * 30

TABLES = {
    "text in a number column": (GOOD + "1.0,two,0.1,0.1\n", "'y'; got 'two' in row 30"),
    "negative error": (GOOD + "1.0,2.0,-0.1,0.1\n", "'x_err'; got -0.1 in row 30"),
    "all-NaN column": ("x,y,x_err,y_err\n" + "1.0,,0.1,0.1\n" * 9, "'y'; got none in 9 rows"),
    "zero rows": ("x,y,x_err,y_err\n", "Expected one or more rows"),
    "errors missing": ("x,y,x_err\n1,2,3\n", "Expected the error of column 'y'"),
    "missing column": ("x,z\n1,2\n", "Expected the column 'y'"),
    "empty file": ("", "Expected t.csv to hold a table"),
    "one row": ("x,y,x_err,y_err\n1,2,0.1,0.1\n", "at least 2 rows"),
}


@pytest.mark.parametrize("case", TABLES)
def test_bad_tables(here, case):
    content, message = TABLES[case]
    (here / "t.csv").write_text(content)
    assert message in refused(*FIT)
    assert sorted(path.name for path in here.iterdir()) == ["t.csv"]


CALLS = {
    "missing file": (("fit", "no.csv", "-c", "x", "-o", "new"), "got no such file"),
    "output format": (("denoise", "model", "stars.csv", "-o", "out.doc"), "that ends in"),
    "onto itself": (("denoise", "model", "stars.csv", "-o", "stars.csv"), "another output"),
    "no model": (("info", "none"), "Expected a model's folder"),
    "a folder that is none": (("fit", "stars.csv", "-c", "x", "-o", "."), "something else there"),
    "method": (("fit", "stars.csv", "-c", "x,y", "-o", "m", "-m", "svm"), "--method as one of"),
    "noise": (("fit", "stars.csv", "-c", "x", "-o", "m", "--noise", "odd"), "--noise as one of"),
    "setting": (
        ("fit", "stars.csv", "-c", "x", "-o", "m", "-m", "xd", "--set", "speed=9"),
        "Expected --set NAME=VALUE",
    ),
    "value": (
        ("fit", "stars.csv", "-c", "x", "-o", "m", "-m", "xd", "--set", "n_components=many"),
        "Expected n_components",
    ),
    "setting of a table that is not there": (
        ("fit", "no.csv", "-c", "x", "-o", "m", "-m", "xd", "--set", "speed=9"),
        "Expected --set NAME=VALUE",
    ),
    "value of a table that is not there": (
        ("fit", "no.csv", "-c", "x", "-o", "m", "-m", "xd", "--set", "tol=-1"),
        "Expected tol in [0, inf); got -1",
    ),
    "quick": (
        ("fit", "stars.csv", "-c", "x", "-o", "m", "-m", "xd", "--quick"),
        "Expected --quick with --method auto; got --method xd.",
    ),
    "pattern": (("fit", "stars.csv", "-c", "q*", "-o", "m"), "columns that match 'q*'; got none"),
    "error pattern": (
        ("fit", "stars.csv", "-c", "x,y", "-o", "m", "--errors", "q*=0.3"),
        "that matches some of x, y; got 'q*'.",
    ),
    "quantile": (
        ("denoise", "model", "stars.csv", "-o", "o.csv", "--quantiles", "1.5"),
        "between 0 and 1; got '1.5'",
    ),
    "prob": (
        ("denoise", "model", "stars.csv", "-o", "o.csv", "--prob", "z>0"),
        "with one of the columns x, y; got 'z>0'",
    ),
    "methods": (("compare", "stars.csv", "-c", "x,y", "--methods", "xd,svm"), "got 'svm'"),
    "output under a file": (("sample", "model", "-o", "stars.csv/o.csv"), ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CALLS)
def test_bad_calls(folder, case):
    arguments, message = CALLS[case]
    before = sorted(path.name for path in folder.iterdir())
    assert message in refused(*arguments)
    assert sorted(path.name for path in folder.iterdir()) == before


X = ("fit", "stars.csv", "-c", "x", "-o", "m")
XY = ("fit", "stars.csv", "-c", "x,y", "-o", "m")
WORDS = {
    "none": (
        ("fit", "stars.csv", "-c", "count", "-o", "m"),
        "got none of them. Of this table it may be x_err, e_y. Name it: --errors count=COLUMN, or "
        "--errors count=0 if it is exact.",
    ),
    "several": (
        ("fit", "two.csv", "-c", "x", "-o", "m"),
        "Expected one error for column 'x'; got several: x_err, e_x. Name it: --errors x=x_err",
    ),
    "count": (
        (*XY, "--errors", "e_y"),
        "Expected 2 columns after --errors, one for each of x, y; got 1. "
        "Or say which: --errors x=COLUMN",
    ),
    "few rows": (
        ("fit", "few.csv", "-c", "x", "--errors", "x_err", "-o", "m"),
        "got n_samples = 3. Use --method xd for so few.",
    ),
    "name": ((*X, "--errors", "q=e_y"), "Expected --errors as NAME=COLUMN, with NAME one of x; "),
    "twice": ((*X, "--errors", "x=1,x=2"), "Expected one error for column 'x'; got two in --err"),
    "negative": ((*X, "--errors", "x=-1"), "Expected an error of at least 0 in --errors; got -1."),
    "zero": (
        (*X, "--errors", "x=0", "--noise", "laplace"),
        "Expected positive errors under laplace noise; got --errors ...=0.",
    ),
    "cov": ((*XY, "--cov", "y=e_y"), "Expected --cov as FIRST:SECOND=COLUMN, with two of x, y; "),
    "corr": ((*XY, "--corr", "y:y=e_y"), "Expected --corr as FIRST:SECOND=COLUMN, with two of x"),
    "law": ((*X, "--noise", "odd"), "Expected --noise as one of gaussian, student-t, laplace, "),
    "asymmetric": (
        (*X, "--errors", "x=x_err:e_y", "--noise", "laplace"),
        "Expected --noise split-normal for asymmetric errors; got 'laplace'. "
        "Give one error for each column, or leave --noise out.",
    ),
}


@pytest.mark.parametrize("case", WORDS)
def test_arguments_are_named_as_the_program_does(folder, case):
    (folder / "two.csv").write_text("x,x_err,e_x\n1,2,3\n")
    (folder / "few.csv").write_text("x,x_err\n1,2\n2,2\n3,1\n")
    arguments, message = WORDS[case]
    assert message in refused(*arguments)


def test_bad_cells_while_streaming_leave_no_output(folder):
    lines = text(catalogue(100)).splitlines()
    lines[80] = lines[80].replace(lines[80].split(",")[1], "oops", 1)
    (folder / "odd.csv").write_text("\n".join(lines))
    message = refused("denoise", "model", "odd.csv", "-o", "out.csv", "--chunk", 20, "-q")
    assert "got 'oops' in row 79" in message
    assert not (folder / "out.csv").exists()
    assert not [path for path in folder.iterdir() if path.name.endswith(".part")]


def test_a_table_without_a_row_that_can_be_used(folder):
    (folder / "odd.csv").write_text("x,y,x_err,e_y,x_y_corr\n,,1,1,0\ninf,1,1,1,0\n,,1,1,0\n")
    for options in (("denoise", "-o", "out.csv"), ("score",), ("score", "-o", "out.csv")):
        message = refused(options[0], "model", "odd.csv", *options[1:])
        assert "that can be used; got none: no measured value" in message
    assert not (folder / "out.csv").exists()


def change(name, key, value):
    def apply(model):
        content = json.loads((model / name).read_text())
        content[key] = value
        (model / name).write_text(json.dumps(content))
        sign(model)

    return apply


def one_column(model):
    about = json.loads((model / "table.json").read_text())
    about["columns"]["errors"] = about["columns"]["errors"][:1]
    change("table.json", "columns", about["columns"])(model)


def truncate(name):
    def apply(model):
        whole = (model / name).read_bytes()
        (model / name).write_bytes(whole[: len(whole) // 2])

    return apply


class Crafted:
    """Writes a file when it is unpickled."""

    def __reduce__(self):
        return (open, ("it_ran", "w"))


def plant(name):
    return lambda model: (model / name).write_bytes(pickle.dumps(Crafted()))


DAMAGED = {
    "another version": (change("model.json", "format", 99), "got format 99, written by"),
    "no checksums": (lambda model: (model / "SHA256SUMS").unlink(), "damaged SHA256SUMS"),
    "a table of text": (change("table.json", "table", "text"), "table is 'text'"),
    "a class that is not ours": (change("model.json", "class", "os.system"), "Expected a model"),
    "one column": (one_column, "its columns are not those of the model"),
    "weights cut": (truncate("weights.safetensors"), "damaged"),
    "description cut": (truncate("model.json"), "damaged"),
    "table cut": (truncate("table.json"), "damaged"),
    "no weights": (lambda model: (model / "weights.safetensors").unlink(), "Expected a model"),
    "pickle as weights": (plant("weights.safetensors"), "damaged"),
    "pickle as description": (plant("model.json"), "damaged"),
    "pickle as table": (plant("table.json"), "damaged"),
    "columns": (change("table.json", "columns", {"names": ["x"]}), "columns has no errors"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_models(folder, case):
    damage, message = DAMAGED[case]
    damage(folder / "model")
    assert message in refused("info", "model")
    assert not (folder / "it_ran").exists()


def test_a_pickle_is_no_model(folder):
    (folder / "model.pkl").write_bytes(pickle.dumps(Crafted()))
    assert "pickles are not loaded" in refused("info", "model.pkl")
    assert not (folder / "it_ran").exists()


def test_a_pickle_is_no_checkpoint(folder):
    pytest.importorskip("torch")
    (folder / ".new.checkpoint").mkdir()
    (folder / ".new.checkpoint" / "fit").write_bytes(pickle.dumps(Crafted()))
    flow = ("--method", "flow", "--set", "epochs=1", "-q", "--resume")
    refused("fit", "stars.csv", "-c", "x,y", "-o", "new", *flow)
    assert not (folder / "it_ran").exists()


def test_no_permission(folder, monkeypatch):
    def shut(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.touch", shut)
    monkeypatch.setattr("tempfile.TemporaryFile", shut)
    assert "Expected permission" in refused("sample", "model", "-o", "o.csv")
    assert "Expected permission" in refused("fit", "stars.csv", "-c", "x,y", "-o", "m", *XD)


def refused_on_a_full_disk(*arguments):
    """Run where no file may grow beyond a few bytes; not for longer, since tests write logs."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    try:
        result = run(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    return check_refusal(result)


@pytest.mark.parametrize("ending", ["csv", "parquet", "fits", "ecsv", "vot"])
def test_disk_full(folder, ending):
    message = refused_on_a_full_disk("denoise", "model", "stars.csv", "-q", "-o", f"out.{ending}")
    assert "Expected room on the disk" in message
    assert not (folder / f"out.{ending}").exists()
    assert not [path for path in folder.iterdir() if ".part" in path.name]


def test_a_package_that_is_missing(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install 'deconflow[tables]'" in refused("score", "model", "stars.csv")
    assert "--number" in succeed("sample", "--help")


def test_a_reader_that_leaves_is_no_error(folder):
    """As in ``deconflow info model | head -1``."""
    reading, written = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "deconflow", "info", "model"]
    answer = subprocess.run(command, stdout=written, stderr=subprocess.PIPE, text=True)
    os.close(written)
    assert answer.returncode == 141
    assert answer.stderr == ""


def test_a_bug_is_one_line_too(folder, monkeypatch):
    def broken(path):
        raise KeyError("nobody thought of this")

    monkeypatch.setattr("deconflow.program.info.load", broken)
    result = run("info", "model")
    assert result.exit_code == 1
    assert "KeyError: 'nobody thought of this'. Please report it" in result.output
    monkeypatch.setenv("DECONFLOW_TRACEBACK", "1")
    assert isinstance(run("info", "model").exception, KeyError)
