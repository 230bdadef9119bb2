"""Folders of files: one table, in memory or in passes."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from program.running import XD, run, succeed
from tables.catalogue import catalogue

from deconflow import XDGMM
from deconflow.program import beyond_memory, reading

NAMES = ["a", "b", "c", "sub/d"]
FIT = ("fit", "survey", "-c", "x,y", *XD, "-q")


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


def refused(*arguments, code=2):
    result = run(*arguments)
    assert result.exit_code == code, result.output
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_a_folder_is_written_as_one_table(survey, folder):
    assert "120 rows; written to" in succeed("denoise", "model", "survey", "-o", "a.parquet", "-q")
    pq.write_table(catalogue(120), folder / "whole.parquet")
    succeed("denoise", "model", "whole.parquet", "-o", "b.parquet", "-q")
    assert pq.read_table("a.parquet").equals(pq.read_table("b.parquet"))
    said = succeed("score", "model", "survey/*.parquet", "-o", "scored.csv", "-q")
    assert "; 90 rows" in said  # without the folder below
    inside = ("denoise", "model", "survey", "-o", "survey/a.parquet", "-q")
    assert "Expected another output than the table itself" in refused(*inside)
    assert "ends in" in refused("denoise", "model", "survey", "-o", "out", "-q")


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


def test_what_cannot_be_fitted_in_passes(survey, in_passes):
    line = refused("fit", "survey", "-c", "x", "-m", "kde", "-o", "new", "-q")
    assert "with 120 rows of survey beyond memory" in line
    assert "got --method kde" in line
    assert "Expected no --groups with" in refused(*FIT, "--groups", "name", "-o", "new")
    assert "Expected no --select with" in refused(*FIT, "--select", "x<100", "-o", "new")
    line = refused("plot", "model", "survey", "-o", "plot.png")
    assert "got more in survey. Give a smaller table" in line
    assert "Expected no bounds with rows beyond memory" in refused(
        *FIT, "--bounds", "x=-99:", "-o", "new"
    )
