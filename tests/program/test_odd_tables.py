"""Tables as people have them: odd ones are read, hopeless ones are refused in one line."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from astropy.io import fits
from astropy.table import MaskedColumn, Table
from program.running import ONE_FIT, run, succeed
from program.test_refusals import check_refusal

from deconflow import XDGMM
from deconflow.tables import open_table

ROWS = [(f"{i % 7}.5", f"0.{1 + i % 5}") for i in range(30)]
PLAIN = "x,x_err\n" + "".join(f"{x},{e}\n" for x, e in ROWS)
XD = ("-m", "xd", "--set", "n_components=1", *ONE_FIT)


def fit(table, column="x", *options):
    return run("fit", table, "-c", column, "-o", "m", *XD, *options)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


READ = {
    "byte order mark": b"\xef\xbb\xbf" + PLAIN.encode(),
    "quotes": "".join(
        ",".join(f'"{c}"' for c in line.split(",")) + "\n" for line in PLAIN.split()
    ).encode(),
    "semicolons": PLAIN.replace(",", ";").encode(),
    "windows": PLAIN.replace("\n", "\r\n").encode(),
    "spaces": PLAIN.replace(",", " , ").encode(),
    "comments": b"# made by hand\n" + PLAIN.encode(),
}


@pytest.mark.parametrize("case", READ)
def test_text_that_is_read(here, case):
    (here / "plain.csv").write_text(PLAIN)
    (here / "odd.csv").write_bytes(READ[case])
    for name in ("plain", "odd"):
        assert fit(f"{name}.csv").exit_code == 0
        (here / "m").rename(here / name)
    assert np.array_equal(XDGMM.load("plain").means_, XDGMM.load("odd").means_)


REFUSED = {
    "latin1 names": ("x,x_err,\xe9\n1,2,3\n".encode("latin1"), "Expected text in UTF-8"),
    "latin1 cells": (
        b"x,x_err\n" + b"1,2\n" * 5 + b"\xe9,1\n",
        "Expected text in UTF-8 in odd.csv; got other bytes",
    ),
    "decimal commas": (PLAIN.replace(",", ";").replace(".", ",").encode(), "Write a point"),
    "ragged": (PLAIN.encode() + b"1,2,3\n", "rows of as many cells in odd.csv"),
    "ragged, far below": (PLAIN.encode() + b"1,2\n" * 400_000 + b"1,2,3\n", "as many cells"),
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


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "fits", "ecsv", "vot"])
@pytest.mark.parametrize("content", [b"", bytes(range(1, 256)) * 9], ids=["empty", "garbage"])
def test_files_that_are_none(here, ending, content):
    (here / f"odd.{ending}").write_bytes(content)
    assert "Expected" in check_refusal(fit(f"odd.{ending}"))


def test_folders_and_packed_files(here):
    (here / "odd.csv").mkdir()
    assert "got a folder" in check_refusal(fit("odd.csv"))
    assert "which is packed. Unpack it" in check_refusal(fit("stars.csv.gz"))


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
    assert "Expected columns named in ASCII for a FITS file; got 'größe'" in check_refusal(refused)
    assert not (here / "out.fits").exists()


def test_integers_and_columns_that_are_no_numbers(here):
    pa.parquet.write_table(
        pa.table({
            "x": pa.array(np.arange(30) % 7, pa.int32()),
            "x_err": pa.array([1] * 30, pa.uint8()),
            "pair": pa.array([[1.0, 2.0]] * 30),
        }),
        "odd.parquet",
    )  # fmt: skip
    assert fit("odd.parquet").exit_code == 0
    message = check_refusal(fit("odd.parquet", "pair", "--errors", "0.1"))
    assert "Expected numbers in column 'pair'" in message


def test_quantiles_that_are_said_twice_come_once(here):
    (here / "t.csv").write_text(PLAIN)
    assert fit("t.csv").exit_code == 0
    succeed("denoise", "m", "t.csv", "-o", "out.csv", "--quantiles", "0.5,0.50")
    assert open_table("out.csv").names.count("x_q50") == 1


def test_where_nothing_can_be_written(here):
    (here / "t.csv").write_text(PLAIN)
    assert fit("t.csv").exit_code == 0
    message = check_refusal(run("sample", "m", "-o", "/proc/draws.csv"))
    assert "Expected to write /proc/draws.csv; got" in message
    assert run("fit", "t.csv", "-c", "x", "-o", "m", "--seed", str(10**14)).exit_code == 2
