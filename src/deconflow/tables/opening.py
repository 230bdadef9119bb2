"""Opening tables of any kind, and writing them."""

import atexit
import glob
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from deconflow.checks import refuse_if
from deconflow.extras import need
from deconflow.files import replacing
from deconflow.tables.formats import (
    ENDINGS,
    PACKINGS,
    STANDARD,
    WRITTEN,
    Source,
    TableError,
    clear_read_errors,
    ending_of,
    format_of,
    split_part,
)

if TYPE_CHECKING:
    import pyarrow as pa


#: Names that begin so are no tables: hidden files, unfinished output, ``_metadata``.
NOT_ROWS = (".", "_")
#: Begins the folders in which HATS has its rows; its other files are about them.
HATS = "Norder="
MOST_NAMED = 5


def open_table(path: str | Path, *, typed: bool = True) -> Source:
    """Open a table for reading: CSV, TSV, Parquet, Arrow, FITS, ECSV, VOTable, text with spaces.

    Parameters
    ----------
    path
        The file; its ending is that of its format, and ``.gz`` or ``.bz2`` may follow.
        ``file.fits[NAME]`` or ``file.fits[2]`` is one of several tables in a FITS file. ``-`` is
        CSV on the standard input. A folder, or a pattern such as ``survey/*.csv``, is one table
        in many files; folders such as ``year=2020`` are columns.
    typed
        Whether the columns of a text file get types, by one more pass through it. Otherwise their
        cells are text, as they are written.
    """
    path, part = split_part(path)
    need("pyarrow")
    from deconflow.tables.sources import AstropySource, Many, open_arrow

    if path == STANDARD:
        return _of_pipe(typed)
    root, files = _below(path) if is_many(path) else (path.parent, [path.name])
    if not (root / files[0]).is_file():
        raise FileNotFoundError(f"Expected a table at {path}; got no such file.")
    known = format_of(files[0])
    name = path.name if not is_many(path) else root.name
    if known.by_arrow:
        with clear_read_errors(name):
            source = open_arrow(root, files, known, name)
        return source.typed() if typed and known.delimiter else source
    if not is_many(path):
        return AstropySource(path, known, name, part)
    first = AstropySource(root / files[0], known, f"{name}/{files[0]}", part)
    with warnings.catch_warnings(action="ignore"):  # thousands of files may say the same
        others = [AstropySource(root / file, known, f"{name}/{file}", part) for file in files[1:]]
    return Many(name, [first, *others])


def is_many(path: str | Path) -> bool:
    """Whether a path is that of a folder, or a pattern such as ``survey/*.csv``."""
    path = split_part(path)[0]
    return path.is_dir() or (glob.has_magic(str(path)) and not path.exists())


@contextmanager
def writing(path: str | Path, schema: "pa.Schema") -> "Iterator[Callable[[pa.Table], None]]":
    """Give a function that writes rows to a table in the format of ``path``'s ending.

    The table is there when it is complete. ``-`` is the standard output, in CSV.
    """
    known, pa = format_of(path), need("pyarrow")
    from deconflow.tables.sources import arrow_writer, astropy_writer

    refuse_if(
        not known.written,
        f"Expected an output that ends in {', '.join(WRITTEN)}; got {Path(path).name!r}.",
    )
    writer = arrow_writer if known.by_arrow else astropy_writer
    if Path(path) == STANDARD:
        if sys.stdout is None:
            raise TableError("Expected an open standard output; got a closed one. Name a file.")
        with writer(sys.stdout.buffer, schema, known) as write:
            yield write
        return
    with (
        replacing(path) as part,
        pa.output_stream(str(part), compression=PACKINGS.get(Path(path).suffix.lower())) as file,
        writer(file, schema, known) as write,
    ):
        yield write


def _of_pipe(typed: bool) -> Source:
    """Keep what a pipe holds in a file, since tables are read several times."""
    if sys.stdin is None or sys.stdin.isatty():
        raise TableError("Expected a table on the standard input; got none. Pipe one to it.")
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "input.csv"
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    source = open_table(path, typed=typed)
    source.name, source.files = "standard input", ()
    return source


def _below(path: Path) -> tuple[Path, list[str]]:
    """Find the tables of a folder, or those that match a pattern, all of one format."""
    root = next(p for p in (path, *path.parents) if not glob.has_magic(str(p)) or p.is_dir())
    names = _walk(root) if path.is_dir() else glob.glob(str(path), recursive=True)
    files = sorted(Path(name).relative_to(root) for name in names if Path(name).is_file())
    files = [file for file in files if not any(p.startswith(NOT_ROWS) for p in file.parts)]
    files = [file for file in files if HATS in str(file)] or files
    kinds: dict[str, list[str]] = {}
    for file in files:
        known = ENDINGS.get(ending_of(file))  # which refuses packed rows, that would be missed
        kinds.setdefault(known.name if known else "", []).append(file.as_posix())
    others = kinds.pop("", [])
    if not kinds:
        got = "a folder without any" if path.is_dir() else "none that match"
        raise FileNotFoundError(f"Expected tables in {path}; got {got}.")
    if others:
        named = ", ".join(others[:MOST_NAMED]) + (", ..." if len(others) > MOST_NAMED else "")
        warnings.warn(f"files of {path} that are no tables are left out: {named}", stacklevel=3)
    if len(kinds) > 1:
        (one, *_), (other, *_), *_ = sorted(kinds.values(), key=len, reverse=True)
        raise ValueError(
            f"Expected tables of one format in {path}; got {one} and {other}. Choose by a "
            f"pattern, such as '{path}/*{Path(one).suffix}'."
        )
    return Path(os.path.abspath(root)), next(iter(kinds.values()))


def _walk(root: Path) -> Iterator[str]:
    """List all files of a folder and below it; links are followed, each folder once."""
    seen = {os.path.realpath(root)}
    for folder, inside, names in os.walk(root, followlinks=True):
        real = {os.path.realpath(os.path.join(folder, name)): name for name in sorted(inside)}
        inside[:] = [name for place, name in real.items() if place not in seen]
        seen.update(real)
        yield from (os.path.join(folder, name) for name in names)
