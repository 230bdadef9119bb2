"""All records of one protocol, read at once."""

from __future__ import annotations

from pathlib import Path

from deconflow.reproduction.experiments import TABLES
from deconflow.reproduction.orderings import Books
from deconflow.reproduction.records import Records
from deconflow.reproduction.search import TABLE as GRID_TABLE


def read_books(results: Path, protocol: str) -> Books:
    """Return the runs of every table and of the grid, by their names."""
    names = (*TABLES, GRID_TABLE)
    return {name: Records(results, name, protocol).runs() for name in names}
