"""The benchmark of rows beyond memory, at the size of a test."""

import json
import subprocess
import sys

import pytest

from benchmarks import scale
from benchmarks.record import RESULTS

pytest.importorskip("pyarrow")

pytestmark = pytest.mark.docs


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
