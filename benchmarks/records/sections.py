"""All sections by their names, and the file that keeps their runs."""

from pathlib import Path

from benchmarks.records import batting, gamma, honest, real, sparse
from benchmarks.records.section import KEYS
from benchmarks.runs import Runs

SECTIONS = {
    module.SECTION.name: module.SECTION for module in (gamma, batting, real, sparse, honest)
}
RECORD = "records.json"


def open_runs(results: Path, *, keep: bool = False) -> Runs:
    """Return the runs that a folder keeps; they may be none."""
    runs = Runs(results / RECORD, KEYS, keep=keep)
    runs.content["command"] = "python -m benchmarks.records"
    return runs
