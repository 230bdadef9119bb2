"""A folder of files as one table: plain, in hive layout, or in that of HATS."""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

import pyarrow as pa

from deconflow.tables.arrow_io import TYPES, narrowest_type
from deconflow.tables.io import (
    ENDINGS,
    Source,
    about,
    clear_read_errors,
    format_of,
    open_content,
)
from deconflow.tables.packed import Content, TableError

NOT_ROWS = (".", "_")
"""Names that begin so are no tables: hidden files, unfinished output, ``_metadata``."""
HATS = ("Norder", "Dir", "Npix")
"""How HATS names its folders by places on the sky. They are no columns, as in LSDB."""
MOST_NAMED = 5


class Shard(Source):
    """One file of a folder, which is open only while it is read.

    Parameters
    ----------
    root
        The folder.
    place
        Path of the file in it.
    part
        Which of the tables of a FITS file.
    folders
        Columns from the names of folders, with the value that all rows have: ``year=2020``.

    Attributes
    ----------
    schema
        Columns of the file; once all files are known, the columns and types they have in common.
    """

    def __init__(
        self, root: Path, place: str, part: str | None, folders: dict[str, pa.Scalar]
    ) -> None:
        self.path, self.place, self.name = root / place, place, f"{root.name}/{place}"
        self._part = part
        opened = self.opened()
        self.n_rows, self.n_bytes = opened.n_rows, opened.n_bytes
        self._folders = {key: cell for key, cell in folders.items() if key not in opened.names}
        more = [pa.field(key, cell.type) for key, cell in self._folders.items()]
        self.schema = pa.schema([*opened.schema, *more])

    def opened(self) -> Source:
        """Open the file; if it is text, with the types that were found in all files."""
        with clear_read_errors(self.name):
            content = Content(self.path, self.name)
            source = open_content(content, format_of(self.path), self._part, typed=False)
        if format_of(self.path).is_text and hasattr(self, "schema"):
            source.schema = pa.schema([self.schema.field(name) for name in source.names])
        return source

    def _chunks(self, size: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        wanted = pa.schema([self.schema.field(name) for name in columns])
        own = [name for name in columns if name not in self._folders]
        own = own or [name for name in self.names if name not in self._folders][:1]
        with warnings.catch_warnings(action="ignore"):  # thousands of files may say the same
            opened = self.opened()
        for table in opened.chunks(size, own):
            for key, cell in self._folders.items():
                table = table.append_column(key, pa.repeat(cell, table.num_rows))
            yield table.select(wanted.names).cast(wanted)

    @property
    def pieces(self) -> list[tuple[str, Source]]:
        """Row groups of a Parquet file without columns from folders; else the file."""
        return [(self.name, self)] if self._folders else self.opened().pieces


class ShardedSource(Source):
    """Several files as one table, in the order of their names.

    Their columns, types and units are checked when this is made; no rows are read.
    """

    def __init__(self, name: str, shards: Sequence[Shard]) -> None:
        self.name, self.shards = name, list(shards)
        self._set_schema(_common_schema(shards))
        self.n_rows = _sum([shard.n_rows for shard in shards])
        self.n_bytes = _sum([shard.n_bytes for shard in shards])

    @property
    def files(self) -> list[Path]:
        """All files."""
        return [shard.path for shard in self.shards]

    def _set_schema(self, schema: pa.Schema) -> None:
        self.schema = schema
        for shard in self.shards:
            shard.schema = schema

    def _chunks(self, size: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        for shard in self.shards:
            yield from shard.chunks(size, columns)

    def typed(self) -> Self:
        """Take the narrowest types that fit all files; those of text need a pass through them."""
        if format_of(self.shards[0].path).is_text:
            own = self.shards[0].opened().names  # without those of folders
            left = {name: list(TYPES) for name in own}
            for shard in self.shards:
                source: Any = shard.opened()
                for name, found in source.possible_types().items():
                    left[name] = [kind for kind in left[name] if kind in found]
            kinds = {name: [*types, pa.string()][0] for name, types in left.items()}
            self._set_schema(pa.schema(
                [field.with_type(kinds.get(field.name, field.type)) for field in self.schema]
            ))  # fmt: skip
        return self

    @property
    def pieces(self) -> list[tuple[str, Source]]:
        """Files; of a single one its own pieces."""
        if len(self.shards) == 1:
            return self.shards[0].pieces
        return [(shard.place, shard) for shard in self.shards]


def open_shards(path: Path, part: str | None = None) -> ShardedSource:
    """Open the tables of a folder, or those that match a pattern, as one.

    Parameters
    ----------
    path
        A folder, with all that is below it; or a pattern such as ``survey/*.csv``.
    part
        Which of the tables of FITS files.
    """
    root, files = _below(path) if path.is_dir() else _matching(path)
    tables = _tables(files, path)
    shards: list[Shard] = []
    for file, cells in zip(tables, _folder_columns(tables), strict=True):
        with warnings.catch_warnings():
            if shards:  # thousands of files may say the same
                warnings.simplefilter("ignore")
            shard = Shard(root, file, part, cells)
        if shards and shard.schema.equals(shards[0].schema, check_metadata=True):
            shard.schema = shards[0].schema  # kept once, not thousands of times
        shards.append(shard)
    return ShardedSource(str(path), shards)


def _tables(files: Sequence[str], path: Path) -> list[str]:
    """Choose the tables, or raise if there is none, or if they are of several formats."""
    files = [file for file in files if not any(p.startswith(NOT_ROWS) for p in Path(file).parts)]
    files = [file for file in files if f"{HATS[0]}=" in file] or files
    tables = [file for file in files if _is_table(file)]
    others = sorted({*files} - {*tables})
    if not tables:
        kinds = ", ".join(ENDINGS)
        got = "a folder without any" if path.is_dir() else "none that match"
        raise FileNotFoundError(f"Expected tables in {path}, that end in {kinds}; got {got}.")
    if others:
        named = ", ".join(others[:MOST_NAMED]) + (", ..." if len(others) > MOST_NAMED else "")
        warnings.warn(f"files of {path} that are no tables are left out: {named}", stacklevel=2)
    kinds_of: dict[str, list[str]] = {}
    for file in tables:
        kinds_of.setdefault(format_of(file).name, []).append(file)
    if len(kinds_of) > 1:
        (one, *_), (other, *_), *_ = sorted(kinds_of.values(), key=len, reverse=True)
        raise ValueError(
            f"Expected tables of one format in {path}; got {one} and {other}. Name those that "
            f"you mean by a pattern, such as '{path}/*{Path(one).suffix}'."
        )
    return tables


def _below(path: Path) -> tuple[Path, list[str]]:
    """List all files of a folder and of those in it; links are followed, each folder once."""
    root, files = Path(os.path.abspath(path)), []
    seen = {os.path.realpath(path)}
    for folder, inside, names in os.walk(path, followlinks=True):
        real = {os.path.realpath(os.path.join(folder, name)): name for name in sorted(inside)}
        inside[:] = [name for place, name in real.items() if place not in seen]
        seen.update(real)
        files += [Path(folder, name).relative_to(path) for name in names]
    return root, _in_order(files)


def _matching(path: Path) -> tuple[Path, list[str]]:
    """List the files that match a pattern, in the folder that it begins with."""
    fixed = next(p for p in (path, *path.parents) if not glob.has_magic(str(p)))
    found = [Path(name) for name in glob.glob(str(path), recursive=True)]
    root = Path(os.path.abspath(fixed))
    return root, _in_order([file.relative_to(fixed) for file in found if file.is_file()])


def _in_order(files: Sequence[Path]) -> list[str]:
    return [file.as_posix() for file in sorted(files, key=lambda file: file.parts)]


def _is_table(file: str) -> bool:
    """Whether a file's ending is that of a table, packed or not."""
    try:
        format_of(file)
    except ValueError as error:
        if "packed" in str(error):  # rows that would be missed
            raise
        return False
    return True


def _folder_columns(files: Sequence[str]) -> list[dict[str, pa.Scalar]]:
    """Return what the names of hive's folders say, with the narrowest types for each key."""
    found: list[dict[str, Any]] = []
    for file in files:
        pairs = (part.partition("=") for part in Path(file).parts[:-1] if "=" in part)
        found.append({key: unquote(cell) for key, _, cell in pairs if key not in HATS})
    for key in dict.fromkeys(key for each in found for key in each):
        kind = narrowest_type(pa.array([each.get(key) for each in found], pa.string()))
        for each in found:
            if key in each:
                each[key] = pa.scalar(each[key], pa.string()).cast(kind)
    return found


def _common_schema(shards: Sequence[Shard]) -> pa.Schema:
    """Return types that fit all files, which must have the same columns and units."""
    first = shards[0]
    fields = {field.name: field for field in first.schema}
    for shard in shards[1:]:
        if shard.schema is first.schema:
            continue
        lacks = [f"none called {name!r}" for name in fields if name not in shard.names]
        more = [f"one more, {name!r}" for name in shard.names if name not in fields]
        if lacks or more:
            raise TableError(
                f"Expected the columns of {first.name} in {shard.name}; got "
                f"{' and '.join([*lacks[:1], *more[:1]])}. Give all files the same columns, or "
                "move those that differ."
            )
        for field in shard.schema:
            known = fields[field.name]
            kind = _common_type(known.type, field.type)
            units = [about(each, "unit") or "no unit" for each in (known, field)]
            if kind is None or units[0] != units[1]:
                wanted, got = (known.type, field.type) if kind is None else units
                raise TableError(
                    f"Expected column {field.name!r} {'as' if kind is None else 'in'} {wanted} in "
                    f"{shard.name}, as in {first.name}; got {got}. Convert it in one of them."
                )
            fields[field.name] = known.with_type(kind)
    return pa.schema(list(fields.values()))


def _common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that holds both, or None."""
    if one == other:
        return one
    one, other = (t.value_type if pa.types.is_dictionary(t) else t for t in (one, other))
    pair = [pa.schema([("x", kind)]) for kind in (one, other)]
    try:
        return pa.unify_schemas(pair, promote_options="permissive").field("x").type
    except pa.ArrowException:
        return None


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
