"""Which format a file has, by the ending of its name, and what that format needs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

ENDINGS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".fits": "fits",
    ".fit": "fits",
    ".ecsv": "ecsv",
    ".vot": "votable",
    ".votable": "votable",
    ".xml": "votable",
}


def format_of(path: str | Path) -> str:
    """Name the format of a file.

    Examples
    --------
    >>> format_of("stars.parquet"), format_of("Stars.FITS")
    ('parquet', 'fits')
    """
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(
            f"Expected a file that ends in {', '.join(ENDINGS)}; got {Path(path).name!r}. "
            "Rename or convert it."
        )
    return ENDINGS[ending]


def need(module: str) -> Any:
    """Import an optional module, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Expected {module.split('.')[0]} to be installed, because tables need it; got none. "
            "Run: pip install 'deconflow[tables]'",
            name=module,
        ) from error
