"""The benchmark of rows beyond memory, at the size of a test, and the page of its record."""

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import scale, scale_page
from benchmarks.record import RESULTS
from benchmarks.records.page import with_parts

pytest.importorskip("pyarrow")


def test_page_agrees_with_the_record():
    text = scale_page.PAGE.read_text()
    assert with_parts(text, scale_page.parts(), scale_page.COMMAND) == text


def test_tables_are_made_once_and_are_what_was_said(tmp_path):
    made = scale.make_table(tmp_path, 2000)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    assert scale.make_table(tmp_path, 2000) == made
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    w, sd = scale.rows_in_memory(scale.folder_of(tmp_path, 2000))
    weights, means, covariances = scale.truth()
    middle = weights @ means
    spread = weights @ (np.diagonal(covariances, axis1=1, axis2=2) + (means - middle) ** 2)
    spread += np.square(sd).mean(0)
    # Means of 2000 rows, and variances within a tenth: 2 sqrt(2 / 2000) is 0.06.
    assert (np.abs(w.mean(0) - middle) < 4 * np.sqrt(spread / 2000)).all()
    assert np.allclose(w.var(0), spread, rtol=0.15)


def test_passes_over_rows_in_memory_and_streamed_are_the_same(tmp_path):
    scale.make_table(tmp_path, 2000)
    rows, mixture = scale.streamed_rows(tmp_path, 2000), scale.some_mixture(3)
    stream = scale.stream_of(tmp_path, 2000)
    one, other = scale.streamed_pass(rows)(mixture), scale.in_memory_pass(stream, rows)(mixture)
    for a, b in zip(one.parts, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_numbers_are_short():
    assert scale_page.power(10**8) == "10⁸"
    assert scale_page.power(2_000_000) == "2 · 10⁶"
    assert [scale_page.seconds(each) for each in (0.123, 75, 600, 9000)] == [
        "0.12 s", "75 s", "10 min", "2.5 h",
    ]  # fmt: skip
    assert (scale_page.size(0.0024), scale_page.size(2.4)) == ("2.4 MB", "2.4 GB")


def test_memory_of_a_million_rows(tmp_path):
    """What the record has of 1e8 rows, at a size that every machine can make."""
    record = tmp_path / "scale.json"
    words = ["table", "memory", "--folder", str(tmp_path), "--rows", "1e6", "--passes", "2"]
    command = [sys.executable, "-m", "benchmarks.scale", *words, "--results", str(record)]
    subprocess.run(command, check=True, cwd=RESULTS.parent)
    (run,) = [
        each for each in json.loads(record.read_text())["runs"] if each["section"] == "memory"
    ]
    assert max(run["peak_gib"]) < scale.MEMORY_BAR_GIB
