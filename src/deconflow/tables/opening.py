"""Opening a table: a file, a folder of them, or a pipe."""

from __future__ import annotations

import glob
import re
from pathlib import Path

from deconflow.tables.io import (
    ENDINGS,
    FORMATS,
    Format,
    Source,
    format_of,
    need,
    open_content,
    split_part,
)
from deconflow.tables.packed import STANDARD, Content


def open_table(path: str | Path, *, typed: bool = True) -> Source:
    """Open a table for reading: CSV, TSV, Parquet, FITS, ECSV, VOTable, or text with spaces.

    Parameters
    ----------
    path
        The file; its ending says the format, and ``.gz``, ``.bz2`` or ``.zst`` may follow.
        ``file.fits[NAME]`` or ``file.fits[2]`` is one of several tables in a FITS file. ``-`` is
        the standard input, whose format is told by what it holds. A folder, or a pattern such as
        ``survey/*.csv``, is one table in many files.
    typed
        Whether the columns of a text file shall get types, by one more pass through it. False
        hands its cells on to another text file as they are written.
    """
    path, part = split_part(path)
    if path == STANDARD:
        content = Content.of_standard_input()
        return open_content(content, _format_of_content(content), part, typed=typed)
    if is_many(path):
        need("pyarrow")
        from deconflow.tables.shards import open_shards

        many = open_shards(path, part)
        return many.typed() if typed else many
    if not path.suffix and not path.exists():
        raise FileNotFoundError(f"Expected a table, or a folder of them, at {path}; got nothing.")
    known = format_of(path)
    if not path.is_file():
        raise FileNotFoundError(f"Expected a table at {path}; got no such file.")
    return open_content(Content(path, path.name), known, part, typed=typed)


def is_many(path: str | Path) -> bool:
    """Whether a path is that of a folder, or a pattern such as ``survey/*.csv``."""
    path = split_part(path)[0]
    return path.is_dir() or (glob.has_magic(str(path)) and not path.exists())


def _format_of_content(content: Content) -> Format:
    """Find the format of bytes without a name."""
    text = content.beginning().decode("utf-8-sig", "replace")
    for known in FORMATS:
        if known.beginning and re.match(known.beginning, text):
            return known
    header = next((line for line in text.splitlines() if not line.startswith("#")), "")
    if re.search("[,;]", header) or len(header.split()) < 2:
        return ENDINGS[".csv"]
    return ENDINGS[".tsv" if "\t" in header else ".txt"]
