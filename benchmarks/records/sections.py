"""All sections by their names, and the file that keeps their runs."""

from pathlib import Path

from benchmarks.records.real import BATTING, REAL
from benchmarks.records.section import KEYS
from benchmarks.records.simulated import GAMMA, HONEST, SPARSE
from benchmarks.runs import Runs

SECTIONS = {section.name: section for section in (GAMMA, BATTING, REAL, SPARSE, HONEST)}
RECORD = "records.json"


def open_runs(results: Path, *, keep: bool = False) -> Runs:
    """Return the runs that a folder keeps; they may be none."""
    runs = Runs(results / RECORD, KEYS, keep=keep)
    runs.content["command"] = "python -m benchmarks.records"
    return runs
