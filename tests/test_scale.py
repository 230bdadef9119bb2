"""The benchmark of rows beyond memory, at the size of a test."""

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import scale
from benchmarks.record import RESULTS

pytest.importorskip("pyarrow")

pytestmark = pytest.mark.docs


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


def test_memory_of_a_million_rows(tmp_path):
    """What the record has of 1e8 rows, at a size that every machine can make."""
    record = tmp_path / "scale.json"
    words = ["table", "memory", "--folder", str(tmp_path), "--rows", "1e6", "--passes", "2"]
    command = [sys.executable, "-m", "benchmarks.scale", *words, "--results", str(record)]
    subprocess.run(command, check=True, cwd=RESULTS.parent)
    (run,) = [
        each for each in json.loads(record.read_text())["runs"] if each["section"] == "memory"
    ]
    assert run["peak_gib"] < scale.MEMORY_BAR_GIB
