"""All records of one protocol, read at once."""

from __future__ import annotations

from pathlib import Path

from deconflow.reproduction.experiments import TABLES
from deconflow.reproduction.records import Key, Records, Run
from deconflow.reproduction.search import TABLE as GRID_TABLE

Books = dict[str, dict[Key, Run]]
"""The runs of every table, by its name."""


def read_books(results: Path, protocol: str) -> Books:
    """Return the runs of every table and of the grid, by their names."""
    names = (*TABLES, GRID_TABLE)
    return {name: Records(results, name, protocol).runs() for name in names}
