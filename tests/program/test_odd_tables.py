"""Tables as people have them: odd ones are read, hopeless ones are refused in one line."""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from astropy import units
from astropy.io import fits
from astropy.table import MaskedColumn, Table
from program.running import check_refusal, run, succeed
from signing import sign
from typer.testing import CliRunner

from deconflow import XDGMM, cli
from deconflow.__main__ import main
from deconflow.tables import open_table

ROWS = [(f"{i % 7}.5", f"0.{1 + i % 5}") for i in range(30)]
PLAIN = "x,x_err\n" + "".join(f"{x},{e}\n" for x, e in ROWS)
XD = ("-m", "xd", "--set", "n_components=1")


def fit(table, column="x", *options):
    return run("fit", table, "-c", column, "-o", "m", *XD, *options)


REFUSED = {
    "latin1 names": ("x,x_err,\xe9\n1,2,3\n".encode("latin1"), "Expected text in UTF-8"),
    "latin1 cells": (
        b"x,x_err\n" + b"1,2\n" * 5 + b"\xe9,1\n",
        "Expected text in UTF-8 in odd.csv; got other bytes",
    ),
    "decimal commas": (PLAIN.replace(",", ";").replace(".", ",").encode(), "Write a point"),
    "ragged": (PLAIN.encode() + b"1,2,3\n", "Expected odd.csv to hold a table"),
    "ragged, far below": (
        PLAIN.encode() + b"1,2\n" * 400_000 + b"1,2,3\n",
        "Expected 2 columns, got 3",
    ),
    "control characters": (b"x,x_err\n1,2\n\x1b[31m\x07\n", "?"),
    "columns twice": (b"x,x,x_err\n1,2,3\n", "got 'x' twice"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_text_that_is_refused(here, case):
    content, message = REFUSED[case]
    (here / "odd.csv").write_bytes(content)
    line = check_refusal(fit("odd.csv"))
    assert message in line
    assert line.isprintable()


@pytest.fixture
def several(here):
    """A FITS file with an image and two tables."""
    rng = np.random.default_rng(0)
    tables = [
        fits.BinTableHDU(Table({c: rng.normal(size=40), f"{c}_err": np.full(40, 0.2)}), name=name)
        for c, name in (("x", "ONE"), ("y", "TWO"))
    ]
    fits.HDUList([fits.PrimaryHDU(np.zeros((5, 5))), *tables]).writeto("several.fits")


def test_a_table_of_several(here, several):
    first = fit("several.fits")
    assert first.exit_code == 0
    assert "note: several.fits has the tables ONE, TWO; the first is taken" in first.output
    for part in ("TWO", "two", "2"):
        assert fit(f"several.fits[{part}]", "y").exit_code == 0
    succeed("plot", "m", "-o", "picture.png")
    message = check_refusal(fit("several.fits[THREE]", "y"))
    assert "Expected a table in several.fits: ONE, TWO; got 'THREE'" in message
    onto = run("denoise", "m", "several.fits[TWO]", "-o", "several.fits")
    assert "another output" in check_refusal(onto)
    succeed("denoise", "m", "several.fits[TWO]", "-o", "out.fits")
    assert "y_mean" in open_table("out.fits").names


def test_columns_as_fits_stores_them(here):
    """Swapped bytes, scaled integers, complex numbers: read by what they mean."""
    rng = np.random.default_rng(0)
    columns = [
        fits.Column("x", "I", array=rng.integers(0, 100, 40).astype("i2")),
        fits.Column("x_err", "E", array=np.full(40, 0.1)),
        fits.Column("z", "C", array=np.full(40, 1 + 2j)),
    ]
    fits.BinTableHDU.from_columns(columns).writeto("odd.fits")
    fits.setval("odd.fits", "TSCAL1", value=0.01, ext=1)
    fits.setval("odd.fits", "TZERO1", value=3.0, ext=1)
    assert fit("odd.fits").exit_code == 0
    assert 3.3 < XDGMM.load("m").means_[0, 0] < 3.7
    succeed("denoise", "m", "odd.fits", "-o", "out.csv")
    assert "got '(1+2j)' in row 0" in check_refusal(fit("odd.fits", "z", "--errors", "0.1"))


@pytest.mark.parametrize("ending", ["vot", "ecsv", "fits"])
def test_masked_cells_are_missing(here, ending):
    rng = np.random.default_rng(0)
    x = MaskedColumn(rng.normal(size=40), mask=np.arange(40) < 10)
    error = MaskedColumn(np.full(40, 0.2), mask=np.arange(40) >= 35)
    kind = {"vot": "votable", "ecsv": "ascii.ecsv", "fits": "fits"}[ending]
    Table({"x": x, "x_err": error}).write(f"odd.{ending}", format=kind)
    assert "25 of 40 rows can be used" in fit(f"odd.{ending}").output
    assert "25 rows; 15 marked" in succeed("denoise", "m", f"odd.{ending}", "-o", f"out.{ending}")


def test_names_with_spaces_and_letters(here):
    names = "my col,my col_err,größe,größe_err"
    lines = "".join(f"{i % 7}.5,0.{1 + i % 5},{i % 3},0.2\n" for i in range(30))
    (here / "odd.csv").write_text(f"{names}\n{lines}", encoding="utf-8")
    assert fit("odd.csv", "my col,größe").exit_code == 0
    succeed("report", "m", "-o", "page.html")
    assert "my col, größe" in (here / "page.html").read_text(encoding="utf-8")
    for ending in ("csv", "parquet", "ecsv", "vot"):
        succeed("denoise", "m", "odd.csv", "-o", f"out.{ending}", "-q")
        assert "größe_mean" in open_table(f"out.{ending}").names
    refused = run("denoise", "m", "odd.csv", "-o", "out.fits", "-q")
    assert "names of columns in ASCII for a FITS file; got 'größe'" in check_refusal(refused)
    assert not (here / "out.fits").exists()


def pipe(content, *arguments):
    return CliRunner().invoke(cli.app, [*arguments], input=content)


def test_pipes(here):
    (here / "t.csv").write_text(PLAIN)
    assert pipe(PLAIN, "fit", "-", "-c", "x", "-o", "m", *XD).exit_code == 0
    assert "table      standard input" in succeed("info", "m")
    succeed("plot", "m", "-k", "marginals", "-o", "picture.png")  # without the rows, which are gone
    succeed("denoise", "m", "t.csv", "-o", "out.csv", "-q")
    piped = pipe(PLAIN, "denoise", "m", "-", "-o", "-", "-q")
    assert piped.stdout == (here / "out.csv").read_text()
    assert piped.stderr == "30 rows; written to -\n"
    scored = pipe(PLAIN, "score", "m", "-", "-o", "-", "-q")
    assert scored.stdout.startswith("x,x_err,log_density,p_value,deconflow_status\n")
    assert "mean log p(w)" in scored.stderr
    assert run("sample", "m", "-n", "3", "-o", "-").stdout.count("\n") == 4
    refused = pipe(PLAIN, "fit", "-", "-c", "x", "-o", "-", *XD)
    assert refused.exit_code == 2
    assert "Expected a folder for the model" in refused.stderr
    assert not (here / "-").exists()


def test_units_and_descriptions_of_new_columns(here):
    rng = np.random.default_rng(0)
    table = Table({"x": rng.normal(size=40), "x_err": np.full(40, 0.2), "y": rng.normal(size=40)})
    table["e_y"] = 0.1
    for name, unit in {"x": "mas", "x_err": "mas", "y": "km / s"}.items():
        table[name].unit = unit
    table["x"].description = "what was seen"
    table.write("t.ecsv")
    assert fit("t.ecsv", "x,y").exit_code == 0
    for ending in ("fits", "ecsv", "vot", "fits.gz"):
        extra = ("--quantiles", "0.16", "--samples", "1", "--correlations", "-q")
        succeed("denoise", "m", "t.ecsv", "-o", f"out.{ending}", *extra)
        seen = Table.read(f"out.{ending}")
        for name, unit, words in [
            ("x", "mas", "what was seen"),
            ("x_mean", "mas", "posterior mean of x"),
            ("y_sd", "km / s", "posterior standard deviation of y"),
            ("x_q16", "mas", "posterior quantile 0.16 of x"),
            ("y_sample_1", "km / s", "posterior draw 1 of y"),
            ("x_y_posterior_corr", None, "posterior correlation of x and y"),
            ("deconflow_status", None, "ok, or why the row could not be used"),
        ]:
            assert seen[name].unit == (unit and units.Unit(unit)), (ending, name)
            assert seen[name].description == words, (ending, name)
        assert open_table(f"out.{ending}").unit("x_mean") == "mas"
    succeed("denoise", "m", "out.fits", "-o", "again.parquet", "--prefix", "b_", "-q")
    metadata = pa.parquet.read_schema("again.parquet").field("b_x_mean").metadata
    assert metadata == {b"unit": b"mas", b"description": b"posterior mean of x"}
    assert open_table("again.parquet").unit("x_mean") == "mas"
    succeed("sample", "m", "-n", "5", "-o", "draws.fits")
    assert Table.read("draws.fits")["y"].unit == units.km / units.s
    succeed("score", "m", "t.ecsv", "-o", "scored.ecsv", "-q")
    score = Table.read("scored.ecsv")["log_density"]
    assert (score.unit, score.description) == (None, "log density of the measurement, log p(w)")


def test_what_stands_for_a_missing_value(here):
    lines = "".join(f"{i % 7}.5,0.2\n" for i in range(30)) + "-999,0.2\n1.5,-999\n" * 2
    (here / "t.csv").write_text("x,x_err\n" + lines)
    assert "got -999 in row 31" in check_refusal(fit("t.csv"))
    assert "30 of 34 rows can be used" in fit("t.csv", "x", "--missing", "-999").output
    out = succeed("denoise", "m", "t.csv", "-o", "out.csv", "-q")  # the model remembers it
    assert "30 rows; 4 marked 'no measured value'" in out
    single = Table({"x": np.float32([1, 2, 3, -99.99]), "x_err": np.full(4, 0.1)})
    single.write("single.fits")
    assert "3 of 4 rows can be used" in fit("single.fits", "x", "--missing", "-99.99,-1").output
    message = check_refusal(fit("t.csv", "x", "--missing", "never"))
    assert "Expected --missing with numbers, such as -999; got 'never'" in message


EVIL = "\x1b]0;gone\x07\x1b[2J\u202e"


def test_nothing_from_a_file_steers_a_terminal(here):
    (here / "t.csv").write_text(PLAIN.replace("x", f"x{EVIL}"), encoding="utf-8")
    result = fit("t.csv", f"x{EVIL}")
    assert result.exit_code == 0
    about = json.loads((here / "m" / "table.json").read_text())
    about["fitted"] = f"All is well.{EVIL}Two\nlines"
    about["method"] = about["table"]["path"] = EVIL
    (here / "m" / "table.json").write_text(json.dumps(about))
    sign(here / "m")
    outputs = [result.output, succeed("info", "m")]
    outputs.append(succeed("denoise", "m", "t.csv", "-o", "out.csv", "-q"))
    outputs.append(run("denoise", "m", "t.csv", "-o", "out.fits", "-q").output)
    for line in "\n".join(outputs).split("\n"):
        assert line.isprintable(), line
    assert "Two?lines" in outputs[1]


def test_new_names_are_no_formulas(here):
    """What the table has stays as it is; what is new and begins like a formula is marked."""
    (here / "t.csv").write_text(PLAIN.replace("x", "=cmd|x") + "inf,0.1\n")
    assert run("fit", "t.csv", "-c", "=cmd|x", "-o", "m", *XD).exit_code == 0
    said = succeed("denoise", "m", "t.csv", "-o", "out.csv", "-q")
    assert "names of new columns that begin like a formula get a ' first" in said
    lines = (here / "out.csv").read_text().splitlines()
    assert lines[0] == "=cmd|x,=cmd|x_err,'=cmd|x_mean,'=cmd|x_sd,deconflow_status"
    assert lines[-1] == "inf,0.1,,,'=cmd|x is infinite"
    succeed("sample", "m", "-n", "2", "-o", "draws.csv")
    assert (here / "draws.csv").read_text().startswith("'=cmd|x\n")
    succeed("sample", "m", "-n", "2", "-o", "draws.parquet")
    assert open_table("draws.parquet").names == ["=cmd|x"]


def test_without_an_error_output(here, monkeypatch):
    """As after 2>&-: what nobody reads does not end the work."""
    (here / "t.csv").write_text(PLAIN)
    assert fit("t.csv").exit_code == 0
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(sys, "argv", ["deconflow", "denoise", "m", "t.csv", "-o", "out.csv"])
    with pytest.raises(SystemExit) as ended:
        main()
    sys.stderr.close()
    assert ended.value.code == 0
    assert open_table("out.csv").names[-1] == "deconflow_status"
