"""Which format a file has, by the ending of its name, and what that format needs."""

from __future__ import annotations

import importlib
import re
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
PACKED = (".gz", ".bz2", ".xz", ".zip", ".zst", ".tar", ".tgz")


def split_part(path: str | Path) -> tuple[Path, str | None]:
    """Part a FITS file from the table in it that is named, by name or number.

    Examples
    --------
    >>> split_part("stars.fits[2]")
    (PosixPath('stars.fits'), '2')
    >>> split_part("stars.csv")
    (PosixPath('stars.csv'), None)
    """
    found = re.fullmatch(r"(.+\.fits?)\[([^\[\]]+)\]", str(path), re.IGNORECASE)
    if found is None or Path(path).exists():
        return Path(path), None
    return Path(found[1]), found[2]


def format_of(path: str | Path) -> str:
    """Name the format of a file.

    Examples
    --------
    >>> format_of("stars.parquet"), format_of("Stars.FITS")
    ('parquet', 'fits')
    """
    ending = Path(path).suffix.lower()
    if ending in PACKED:
        raise ValueError(f"Expected a table; got {Path(path).name!r}, which is packed. Unpack it.")
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
