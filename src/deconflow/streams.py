"""Rows that are too many for memory: they come in chunks, the same at every pass.

Each process of a fit (:mod:`deconflow.ranks`) passes over rows of its own; what is said of all rows
is the same on all of them, and does not depend on how many they are.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from deconflow import ranks
from deconflow._types import Array, ArrowTable
from deconflow.checks import check_integer, refuse_if
from deconflow.extras import need
from deconflow.observations import Labels, Observations, OutOfReachError
from deconflow.tables import (
    Measurements,
    RowReader,
    Rows,
    Source,
    TableError,
    find_columns,
    open_table,
)

#: Drawn rows are joined after so many chunks: small pieces that stay between large arrays that go
#: keep their memory from being given back, which was a gigabyte for 10^8 rows.
MOST_PIECES = 64
#: Rows of a chunk: enough to make the work per chunk small beside that per row.
ROWS_AT_ONCE = 100_000


@dataclass(frozen=True)
class Overview:
    """Counts of all rows of a stream, and a sample of them; the same on all processes.

    Attributes
    ----------
    n_rows : int
        Rows that can be used.
    weight : float
        Sum of the weights of usable rows.
    sample : Rows
        Rows drawn by chance from all, in random order.
    sample_numbers : array
        The random number of each of these, as :meth:`RowStream.numbered_chunks` has it.
    seed : int
        The seed of these numbers.
    """

    n_rows: int
    weight: float
    sample: Rows
    sample_numbers: Array
    seed: int


class RowStream:
    """Rows of a table on disk, or of a folder of tables, in chunks.

    Make one with :func:`open_rows`, and give it to ``fit`` in the place of ``w``.

    Parameters
    ----------
    reader
        What is measured, in which table.
    """

    def __init__(self, reader: RowReader) -> None:
        self.reader = reader
        self.source = reader.source
        self.names = list(reader.columns.names)
        self._at = ("", 0)

    def __repr__(self) -> str:
        return f"RowStream({self.source.name!r}, {self.names})"

    @property
    def units(self) -> dict[str, str | None]:
        """Unit of each measured column, where the table says."""
        columns = self.reader.columns
        return {name: self.source.unit(columns.place(name)) for name in self.names}

    @property
    def n_rows(self) -> int | None:
        """Number of rows of all processes, usable or not, where that is known before a pass."""
        return self.source.n_rows

    def with_errors(self, noise: Any) -> "RowStream":
        """Return the same rows with other columns of errors: a name for each measured column."""
        columns = self.reader.columns
        found = find_columns(
            self.source, self.names, errors=_said_errors(noise, self.names), noise=columns.noise,
            df=columns.df, missing=columns.missing,
        )  # fmt: skip
        return RowStream(RowReader(found, self.source, weights=self.reader.weights))

    def chunks(self) -> Iterator[Observations]:
        """Walk through this process's usable rows, with weights as the table has them.

        The next chunk is read while the caller is busy with the last.
        """
        return (rows for rows, _ in self.numbered_chunks())

    def numbered_chunks(self, seed: int = 0) -> Iterator[tuple[Observations, Array]]:
        """Walk through the same chunks, with a random number between 0 and 1 for each row.

        A row's number depends on the seed, its file and its place there: it is the same at every
        pass, however the files are shared out.
        """
        parts = self._read()
        with ThreadPoolExecutor(1) as reading:
            coming = reading.submit(next, parts, None)
            while (found := coming.result()) is not None:
                coming = reading.submit(next, parts, None)
                piece, first, _, rows = found
                if len(rows.rows):
                    self._at = piece, first
                    usable = rows.rows
                    with self.named_errors():
                        data = Observations.from_arrays(
                            usable.w, usable.noise, limits=usable.limits
                        )
                    labels = Labels(usable.names or None, limits_given="limits" in usable.facts)
                    data = replace(data, labels=labels, weights=usable.weights)  # as they are
                    yield data, row_numbers(seed, piece, first, len(rows))[rows.usable]

    def _rows(self, piece: str, first: int, table: ArrowTable) -> Measurements:
        with _about(piece, first):
            return self.reader(table, first)

    def named_errors(self) -> AbstractContextManager[None]:
        """Say which chunk an error is about: the one that the caller has."""
        return _about(*self._at)

    def overview(
        self, n_sample: int, seed: int = 0, step: Callable[[int], None] = lambda n: None
    ) -> Overview:
        """Pass over all rows once: count them, and draw some by chance.

        ``step`` is called after every chunk, with its number of rows.
        """
        check_integer("n_sample", n_sample, 1)
        check_integer("seed", seed, 0)
        drawn = _Drawn(n_sample, seed)
        counts = ranks.together(lambda: self._count_and_draw(drawn, step))
        n_rows, n_all, weight = ranks.total(counts)[0].tolist()
        refuse_if(
            n_rows < 2,
            f"Expected at least 2 rows that can be used in {self.source.name}; "
            f"got {n_rows:.0f} of {n_all:.0f}.",
        )
        refuse_if(
            not weight > 0,
            f"Expected a weight above 0 in column {self.reader.weights!r} of "
            f"{self.source.name}; got zeros only.",
        )
        sample = self.reader(drawn.chosen(), 0).rows
        return Overview(int(n_rows), weight, sample, drawn.keys[0], seed)

    def _count_and_draw(self, drawn: "_Drawn", step: Callable[[int], None]) -> Array:
        """Count usable rows, all rows and weights of this process, and draw from its rows."""
        counts = np.zeros(3)
        for piece, first, table, rows in self._read():
            usable = rows.rows
            weight = len(usable) if usable.weights is None else usable.weights.sum()
            counts += [len(usable), len(rows), weight]
            drawn.add(table, rows.usable, piece, first)
            step(len(rows))
        return counts

    def _read(self) -> Iterator[tuple[str, int, ArrowTable, Measurements]]:
        """Read this process's chunks, each with its piece and its first row there."""
        sizes = [source.n_rows or source.n_bytes or 1 for _, source in self._pieces]
        largest_first = np.argsort(-np.array(sizes), kind="stable")
        for number in sorted(largest_first[ranks.rank() :: ranks.world()]):
            piece, source = self._pieces[number]
            first = 0
            for table in source.chunks(ROWS_AT_ONCE, self.reader.needed):
                yield piece, first, table, self._rows(piece, first, table)
                first += table.num_rows

    @cached_property
    def _pieces(self) -> list[tuple[str, Source]]:
        """What the processes share out."""
        found = self.source.pieces
        refuse_if(
            len(found) < ranks.world(),
            f"Expected at least {ranks.world()} files or row groups in {self.source.name}, one "
            f"for each process; got {len(found)}. Split the table, or start fewer processes.",
        )
        return found


@contextmanager
def _about(piece: str, first: int) -> Iterator[None]:
    """Say which chunk an error is about."""
    try:
        yield
    except TableError:
        raise  # it names its file
    except ValueError as error:
        kind = OutOfReachError if isinstance(error, OutOfReachError) else ValueError
        raise kind(f"{error} This is about {piece}, from row {first}.") from error


class _Drawn:
    """Rows drawn by chance while they pass: those with the smallest of random numbers.

    A row's number depends on the seed, its file and its place there, so that the same rows are
    drawn however the files are shared out.
    """

    def __init__(self, wanted: int, seed: int) -> None:
        self.wanted, self.seed = wanted, seed
        self.keys: list[Array] = []
        self.tables: list[ArrowTable] = []
        #: Rows with larger numbers have no chance any more.
        self.most = 1.0

    def add(self, table: ArrowTable, usable: Any, piece: str, first: int) -> None:
        """Draw from a chunk's usable rows."""
        keys = row_numbers(self.seed, piece, first, table.num_rows)
        chosen = np.flatnonzero(usable & (keys < self.most))
        self.keys.append(keys[chosen])
        self.tables.append(table.take(chosen))
        if sum(map(len, self.keys)) > 2 * self.wanted or len(self.tables) > MOST_PIECES:
            self._cut()

    def _cut(self) -> None:
        """Keep as many as are wanted, in one piece."""
        keys = np.concatenate(self.keys)
        order = np.argsort(keys)[: self.wanted]
        table = need("pyarrow").concat_tables(self.tables).combine_chunks()
        self.keys, self.tables = [keys[order]], [table.take(order)]
        if len(order) == self.wanted:
            self.most = float(keys[order[-1]])

    def chosen(self) -> ArrowTable:
        """Return the rows that all processes together have drawn, in random order."""
        found = ranks.gathered((self.keys, self.tables))
        self.keys = [each for keys, _ in found for each in keys]
        self.tables = [each for _, tables in found for each in tables]
        self._cut()
        return self.tables[0]


def row_numbers(seed: int, piece: str, first: int, n: int) -> Array:
    """Return a random number for each row of a chunk that begins at some row of a piece."""
    key = int.from_bytes(hashlib.sha256(piece.encode()).digest()[:8], "little")
    return np.random.default_rng([seed, key, first]).random(n)


def open_rows(
    path: str | Path,
    columns: Sequence[str],
    *,
    errors: Sequence[str] | Mapping[str, Any] = (),
    covariances: Sequence[str] = (),
    correlations: Sequence[str] = (),
    noise: str = "gaussian",
    df: float = 3.0,
    missing: Sequence[float] = (),
    weights: str | None = None,
) -> RowStream:
    """Open a table, or a folder of tables, whose rows are too many for memory.

    Parameters
    ----------
    path
        A file, or a folder of files, as ``deconflow fit`` takes them.
    columns
        The measured columns.
    errors, covariances, correlations, noise, df, missing
        As for :func:`deconflow.tables.find_columns`; errors that are not said are found by name.
        Errors may also be a mapping: ``{"x": "x_sig"}``.
    weights
        Column that says how much each row counts.

    Examples
    --------
    ``XDGMM(16).fit(open_rows("survey/", ["x", "y"]))``
    """
    said: Sequence[str] = _said_errors(errors, columns) if isinstance(errors, Mapping) else errors
    for argument, value in (
        ("columns", columns), ("errors", said), ("covariances", covariances),
        ("correlations", correlations), ("missing", missing),
    ):  # fmt: skip
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise TypeError(f"Expected {argument} as a list; got {value!r}. Write [{value!r}].")
        for each in value:
            if argument != "missing" and not isinstance(each, str):
                raise TypeError(f"Expected {argument} as a list of names; got {each!r} in it.")
    source = open_table(path, typed=False)
    found = find_columns(
        source, columns, errors=said, covariances=covariances, correlations=correlations,
        noise=noise, df=df, missing=missing,
    )  # fmt: skip
    return RowStream(RowReader(found, source, weights=weights))


def _said_errors(noise: Any, names: Sequence[str]) -> list[str]:
    """Write columns of errors, or numbers, for each measured column as ``x=x_err``."""
    given: Any = noise
    if not isinstance(noise, Mapping):
        listed = isinstance(noise, Sequence | np.ndarray) and not isinstance(noise, str | bytes)
        given = dict(zip(names, noise, strict=True)) if listed and len(noise) == len(names) else {}
    refuse_if(
        not given or not all(isinstance(each, str | int | float) for each in given.values()),
        f"Expected a column or a number for the errors of each of {', '.join(names)} in a "
        f"RowStream; got {type(noise).__name__}. Write {dict.fromkeys(names, 'COLUMN')}.",
    )
    return [f"{name}={column}" for name, column in given.items()]
