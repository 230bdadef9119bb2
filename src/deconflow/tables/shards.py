"""A folder of files as one table: plain, in hive layout, or in that of HATS."""

from __future__ import annotations

import copy
import glob
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.dataset as ds

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

TextTypes = dict[str, list[pa.DataType]]

NOT_ROWS = (".", "_")
"""Names that begin so are no tables: hidden files, unfinished output, ``_metadata``."""
HATS = ("Norder", "Dir", "Npix")
"""How HATS names its folders by places on the sky. They are no columns, as in LSDB."""
MOST_NAMED = 5


class Shard(Source):
    """One file of a folder, which is open only while it is read.

    Its columns have the types that all files of the folder have in common, once these are known;
    ``as_written`` has its own.

    Parameters
    ----------
    path
        The file.
    name
        What messages call it.
    part
        Which of the tables of a FITS file.
    folders
        Columns that the names of folders tell, with the value that all rows have: ``year=2020``.
    """

    def __init__(
        self, path: Path, name: str, part: str | None, folders: dict[str, pa.Scalar]
    ) -> None:
        self.path, self.name, self._table = path, name, part
        self._text_types: TextTypes | None = None
        opened = self._opened(quiet=False)
        self._own, self.n_rows, self.n_bytes = opened.names, opened.n_rows, opened.n_bytes
        self._folders = {key: cell for key, cell in folders.items() if key not in self._own}
        self._set_schema(opened.schema)

    @property
    def kept(self) -> list[str]:
        """Columns of the file itself: where it is written again, folders tell the others."""
        return self._own

    @property
    def as_written(self) -> Self:
        """The same file with the types that it has by itself."""
        alone = copy.copy(self)
        alone.schema = self._written
        return alone

    def _chunks(self, size: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        own = [name for name in columns if name not in self._folders] or self._own[:1]
        for table in self._opened().chunks(size, own):
            for key, cell in self._folders.items():
                table = table.append_column(key, pa.repeat(cell, table.num_rows))
            wanted = pa.schema([self.schema.field(name) for name in columns])
            table = table.select(wanted.names)
            yield table if table.schema.equals(wanted) else table.cast(wanted)

    @property
    def pieces(self) -> list[tuple[str, Source]]:
        """Row groups of a Parquet file that folders tell nothing of; else the file."""
        return [(self.name, self)] if self._folders else self._opened().pieces

    def possible_types(self) -> TextTypes:
        """Find the types that columns of a text file may have."""
        return self._opened().possible_types()  # type: ignore[attr-defined]

    def set_types(self, types: TextTypes) -> None:
        """Give columns of a text file the first of these types."""
        self._text_types = types
        self._set_schema(self._opened().schema)

    def _opened(self, *, quiet: bool = True) -> Source:
        """Open the file; if it is text, with the types that were found in all files."""
        with clear_read_errors(self.name), _quiet() if quiet else nullcontext():
            content = replace(Content.of_file(self.path), name=self.name)
            source = open_content(content, format_of(self.path), self._table, typed=False)
        if self._text_types is not None:
            source = source.with_types(self._text_types)  # type: ignore[attr-defined]
        return source

    def _set_schema(self, own: pa.Schema) -> None:
        more = [pa.field(key, cell.type) for key, cell in self._folders.items()]
        self.schema = self._written = pa.schema([*own, *more])

    def share(self, first: Shard) -> None:
        """Keep what is the same in another file only once: there may be thousands."""
        if self._written.equals(first._written, check_metadata=True):
            self.schema, self._written, self._own = first.schema, first._written, first._own

    def take_types(self, common: pa.Schema) -> None:
        """Give columns the types that all files have in common."""
        if not all(self.schema.field(field.name).equals(field) for field in common):
            self.schema = pa.schema([common.field(name) for name in self.names])


class ShardedSource(Source):
    """Several files as one table, in the order of their names.

    Their columns, types and units are checked when this is made; no rows are read.

    Parameters
    ----------
    name
        What messages call the folder.
    shards
        Each file's path in the folder, and the file.
    damaged
        Files that could not be opened, by their paths in the folder, with what is wrong.

    Attributes
    ----------
    shards, damaged
        The same.
    """

    def __init__(
        self,
        name: str,
        shards: Sequence[tuple[str, Shard]],
        damaged: dict[str, TableError] | None = None,
    ) -> None:
        self.name, self.shards, self.damaged = name, list(shards), damaged or {}
        self.schema = _common_schema([shard for _, shard in shards])
        for _, shard in shards:
            shard.take_types(self.schema)
        self.n_rows = _sum([shard.n_rows for _, shard in shards])
        self.n_bytes = _sum([shard.n_bytes for _, shard in shards])

    @property
    def whole(self) -> Self:
        """The table itself, unless one of its files is damaged."""
        for error in self.damaged.values():
            raise error
        return self

    def _chunks(self, size: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        for _, shard in self.shards:
            yield from shard.chunks(size, columns)

    def typed(self) -> Self:
        """Take the narrowest types that fit all files; those of text need a pass through them."""
        shards = [shard for _, shard in self.shards]
        if format_of(shards[0].path).is_text:
            left: TextTypes = {name: list(TYPES) for name in self.names}
            for shard in shards:
                found = shard.possible_types()
                left |= {
                    name: [kind for kind in left[name] if kind in found[name]] for name in found
                }
            for shard in shards:
                shard.set_types(left)
                shard.share(shards[0])
            self.schema = _common_schema(shards)
        return self

    @property
    def pieces(self) -> list[tuple[str, Source]]:
        """Files; of a single one its own pieces."""
        if len(self.shards) == 1:
            return self.shards[0][1].pieces
        return [(path, shard) for path, shard in self.shards]


def open_shards(path: Path, part: str | None = None) -> ShardedSource:
    """Open the tables of a folder, or those that match a pattern, as one.

    Files that cannot be opened are kept aside in ``damaged``; if none can be, the first one's error
    is raised.

    Parameters
    ----------
    path
        A folder, with all that is below it; or a pattern such as ``survey/*.csv``.
    part
        Which of the tables of FITS files.
    """
    found = _listed(path)
    folders = _folder_columns(found.files)
    shards: list[tuple[str, Shard]] = []
    damaged: dict[str, TableError] = {}
    for file, cells in zip(found.files, folders, strict=True):
        try:
            with _quiet() if shards else nullcontext():
                shard = Shard(found.root / file, f"{found.root.name}/{file}", part, cells)
        except TableError as error:
            damaged[file] = error
            continue
        if shards:
            shard.share(shards[0][1])
        shards.append((file, shard))
    if not shards:
        raise next(iter(damaged.values()))
    return ShardedSource(str(path), shards, damaged)


@dataclass(frozen=True)
class _Listed:
    """Files by their paths in a folder, in order."""

    root: Path
    files: list[str]


def _listed(path: Path) -> _Listed:
    """Find the tables, or raise if there is none, or if they are of several formats."""
    root, files = _below(path) if path.is_dir() else _matching(path)
    files = [file for file in files if not any(p.startswith(NOT_ROWS) for p in Path(file).parts)]
    on_the_sky = [file for file in files if f"{HATS[0]}=" in file]
    tables = [file for file in on_the_sky or files if _is_table(file)]
    others = sorted({*(on_the_sky or files)} - {*tables})
    if not tables:
        kinds = ", ".join(ENDINGS)
        got = "a folder without any" if path.is_dir() else "none that match"
        raise FileNotFoundError(f"Expected tables in {path}, that end in {kinds}; got {got}.")
    if others:
        named = ", ".join(others[:MOST_NAMED]) + (", ..." if len(others) > MOST_NAMED else "")
        warnings.warn(f"files of {path} that are no tables are left out: {named}", stacklevel=2)
    _refuse_mixture(tables, path)
    return _Listed(root, tables)


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


def _refuse_mixture(files: Sequence[str], path: Path) -> None:
    kinds: dict[str, list[str]] = {}
    for file in files:
        kinds.setdefault(format_of(file).name, []).append(file)
    if len(kinds) > 1:
        (one, *_), (other, *_), *_ = sorted(kinds.values(), key=len, reverse=True)
        ending = Path(one).suffix
        raise ValueError(
            f"Expected tables of one format in {path}; got {one} and {other}. Name those that "
            f"you mean by a pattern, such as '{path}/*{ending}'."
        )


def _folder_columns(files: Sequence[str]) -> list[dict[str, pa.Scalar]]:
    """Return what the names of hive's folders say, with the narrowest types for each key."""
    parts = [[p for p in Path(file).parts[:-1] if "=" in p] for file in files]
    names = dict.fromkeys(p.partition("=")[0] for each in parts for p in each)
    keys = [name for name in names if name not in HATS]
    texts = ds.partitioning(pa.schema([(key, pa.string()) for key in keys]), flavor="hive")
    said = [
        ds.get_partition_keys(texts.parse("/".join([*each, ""]))) if keys else {} for each in parts
    ]
    found: list[dict[str, Any]] = [{key: each[key] for key in keys if key in each} for each in said]
    for key in keys:
        cells = pa.array([each.get(key) for each in found], pa.string())
        kind = narrowest_type(cells)
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
        _refuse_other_columns(first, shard)
        for field in shard.schema:
            kind = _common_type(fields[field.name].type, field.type)
            if kind is None:
                raise _differing(
                    field.name, first, shard, f"as {fields[field.name].type}", str(field.type)
                )
            fields[field.name] = fields[field.name].with_type(kind)
            one, other = (about(each, "unit") for each in (fields[field.name], field))
            if one != other:
                raise _differing(
                    field.name, first, shard, f"in {one or 'no unit'}", other or "no unit"
                )
    return pa.schema(list(fields.values()))


def _refuse_other_columns(first: Shard, shard: Shard) -> None:
    lacking = [name for name in first.names if name not in shard.names]
    more = [name for name in shard.names if name not in first.names]
    if lacking or more:
        lacks = f"none called {lacking[0]!r}" if lacking else ""
        has = f"one more, {more[0]!r}" if more else ""
        raise TableError(
            f"Expected the columns of {first.name} in {shard.name}; got "
            f"{' and '.join(filter(None, [lacks, has]))}. Give all files the same columns, or move "
            "those that differ."
        )


def _differing(column: str, first: Shard, shard: Shard, wanted: str, got: str) -> TableError:
    return TableError(
        f"Expected column {column!r} {wanted} in {shard.name}, as in {first.name}; got {got}. "
        "Convert it in one of them."
    )


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


def _quiet() -> warnings.catch_warnings[None]:
    """Keep thousands of files from saying the same."""
    return warnings.catch_warnings(action="ignore")
