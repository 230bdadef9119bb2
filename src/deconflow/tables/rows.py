"""Tables opened and written; their rows with all their facts, and why others cannot be used."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from deconflow._types import AnyArray, Array, BoolArray, IntArray
from deconflow.checks import refuse_if
from deconflow.extras import need
from deconflow.tables.columns import MULTIPLYING, Columns, check_available, split_list
from deconflow.tables.formats import (
    Source,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from deconflow.noise import FreeErrors, Noise
    from deconflow.tables.kinds import Cells


ROWS_AT_ONCE = 100_000
#: The word for the logarithms of the rows' own errors among the given columns.
ERRORS = "noise"


@dataclass(frozen=True)
class GivenColumns:
    """Columns that are known exactly, and that true values may depend on.

    Attributes
    ----------
    labels : dict
        For each column None if it holds numbers, or else the texts that a model knows, empty for
        any.
    errors : bool
        Whether the rows' own errors are covariates, too.
    """

    labels: dict[str, Collection[str] | None]
    errors: bool = False


@dataclass(frozen=True)
class Rows:
    """Rows that can be used, with all that is known of them.

    Attributes
    ----------
    w : array
        ``(n, D)`` measurements, NaN where missing.
    noise : Noise, FreeErrors or None
        Their noise, or errors that are partly to be estimated; None without rows.
    limits : array of int or None
        ``(n, D)``: -1 for an upper limit, 1 for a lower one, 0 for a measured value.
    groups : array or None
        ``(n,)``: labels of rows that belong together.
    weights : array or None
        ``(n,)``: how much each row counts in a fit.
    given : dict or None
        Values of columns that are known exactly, ``(n,)`` each, by their names.
    given_errors : bool
        Whether the errors are covariates, too.
    selection : dict
        Arguments of ``fit`` about the rows that were seen at all.
    names : tuple of str
        Names of the columns of ``w``; empty for none.
    """

    w: Array
    noise: "Noise | FreeErrors | None"
    limits: IntArray | None = None
    groups: AnyArray | None = None
    weights: Array | None = None
    given: dict[str, AnyArray] | None = None
    given_errors: bool = False
    selection: dict[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.w)

    def __getitem__(self, rows: Any) -> "Rows":
        noise: Any = self.noise
        if noise.n_rows is None:  # pooled errors are those of any number of rows
            noise = noise.bind(len(self.w))
        limits, groups, weights = (
            None if each is None else each[rows]
            for each in (self.limits, self.groups, self.weights)
        )
        given = self.given and {name: each[rows] for name, each in self.given.items()}
        return Rows(
            self.w[rows], noise[rows], limits, groups, weights, given, self.given_errors,
            self.selection, self.names,
        )  # fmt: skip

    @property
    def stated(self) -> "Noise":
        """The noise as it was stated, also where parts of it are to be estimated."""
        noise: Any = self.noise
        return getattr(noise, "said", noise)

    @property
    def errors(self) -> Array:
        """``(n, D)`` standard deviations of the stated noise."""
        return np.broadcast_to(np.sqrt(self.stated.variance()), self.w.shape)

    @property
    def facts(self) -> dict[str, Any]:
        """What is known of the rows, by the arguments of :func:`deconflow.observe`.

        Cells show limits, so that rows without any are said to have none.
        """
        given: Any = self.given
        if self.given_errors:
            given = (ERRORS, given) if given else ERRORS
        limits = self.limits
        if limits is None and self.noise is not None and self.stated.additive:
            limits = np.zeros(self.w.shape, dtype=np.int64)
        found = {
            "noise": self.noise, "limits": limits, "groups": self.groups,
            "sample_weight": self.weights, "given": given, "names": self.names or None,
            **self.selection,
        }  # fmt: skip
        return {name: value for name, value in found.items() if value is not None}

    def ask(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a method of an estimator with these rows and all facts about them."""
        return method(*arguments, w=self.w, **self.facts, **options)


@dataclass(frozen=True)
class Measurements:
    """The usable rows of a chunk, and why the others cannot be used.

    Attributes
    ----------
    rows : Rows
        The usable rows.
    usable : array of bool
        ``(N,)``, for all rows of the chunk.
    status : array of str
        ``(N,)``: why a row cannot be used, ``"ok"`` for those that can.
    without_error : int
        Number of values that have no error, and count as missing.
    """

    rows: Rows
    usable: BoolArray
    status: AnyArray
    without_error: int = 0

    def __len__(self) -> int:
        return len(self.usable)

    @property
    def places(self) -> IntArray:
        """Numbers of the usable rows among all rows."""
        return np.flatnonzero(self.usable)


class RowReader:
    """Turns chunks of one table into :class:`Measurements`.

    Parameters
    ----------
    columns
        What is measured, and the columns of its errors.
    source
        The table.
    groups
        Column with labels of rows that belong together, in text or whole numbers.
    given
        Columns that are known exactly; rows with no value in one of them cannot be used.
    weights
        Column with the weights of rows, in numbers of at least zero.
    """

    def __init__(
        self,
        columns: Columns,
        source: Source,
        groups: str | None = None,
        given: GivenColumns | None = None,
        weights: str | None = None,
    ) -> None:
        self.source, self.groups, self.given, self.weights = source, groups, given, weights
        more = [name for name in (groups, weights, *(given.labels if given else ())) if name]
        self.needed = list(dict.fromkeys([*columns.needed(), *more]))
        check_available(source.names, self.needed, source.name)
        #: What is measured, with what the rows have shown of it.
        self.columns = columns
        #: By how much to multiply columns of errors, to bring them to the units of their values.
        self.factors: dict[tuple[str, tuple[str, ...]], float] = {}
        units = {name: source.unit(columns.place(name)) for name in columns.names}
        for name, unit in zip(columns.names, columns.units, strict=False):  # units may be unknown
            refuse_if(
                unit and units[name] and conversion(str(units[name]), [unit], name) != 1.0,
                f"Expected column {name!r} in {unit}, as in the fit; got {units[name]}. "
                "Convert it.",
            )
        for column, names in columns.scales():
            theirs, wanted = source.unit(column), [str(units[name] or "") for name in names]
            refuse_if(
                columns.noise == MULTIPLYING and theirs,
                f"Expected errors without a unit in column {column!r}, since those of "
                f"noise={MULTIPLYING!r} are relative; got {theirs}. Divide them by the values.",
            )
            known = conversion(theirs, wanted, column) if theirs and all(wanted) else 1.0
            self.factors[column, names] = known
        #: The sign of the lower errors in a column, once a chunk has shown it.
        self.signs: dict[str, int] = {}

    def __call__(self, chunk: "pa.Table", first_row: int) -> Measurements:
        """Read a chunk that begins at ``first_row`` of the table."""
        from deconflow.tables.kinds import Cells, kind_of

        cells = Cells(chunk, first_row, self.columns.missing)
        values = kind_of(self.columns)(cells, self)
        cells.mark(np.isnan(values.w).all(1), "no measured value")
        groups = None if self.groups is None else cells.labels(self.groups)
        labels = self.given.labels if self.given else {}
        given = {name: _covariate(cells, name, known) for name, known in labels.items()}
        w, noise = values.law() if cells.usable.any() else (values.w[:0], None)
        weights = None
        if self.weights is not None:  # no row may lack its weight
            weights = cells.numbers(self.weights)
            cells.refuse(
                ~(weights >= 0) | np.isinf(weights), weights,
                f"weights of at least 0 in column {self.weights!r}",
                "Correct it, or write 0 for rows that do not count.",
            )  # fmt: skip
        limits = cells.usable_of(values.limits)
        rows = Rows(
            w, noise, limits if limits.any() else None, cells.usable_of(groups),
            cells.usable_of(weights),
            {name: cells.usable_of(each) for name, each in given.items()} if self.given else None,
            self.given is not None and self.given.errors, names=tuple(self.columns.names),
        )  # fmt: skip
        return Measurements(rows, cells.usable, cells.status, values.without_error)


def read_rows(reader: RowReader) -> Measurements:
    """Read a complete table, to fit it; an error if there is too little that can be used."""
    source = reader.source
    table = _whole(source, reader.needed)
    try:
        found = reader(table, 0)
    except ValueError:
        _name_file(reader)
        raise
    rows = found.rows
    refuse_empty_columns(reader.columns.names, (~np.isnan(rows.w)).sum(0), len(found))
    refuse_if(len(rows) < 2, f"Expected at least 2 rows that can be used; got {len(rows)}.")
    refuse_if(
        rows.weights is not None and not rows.weights.any(),
        f"Expected a weight above 0 in column {reader.weights!r}; got zeros only.",
    )
    return found


def _whole(source: Source, names: Sequence[str]) -> "pa.Table":
    """Read some columns of all rows into memory."""
    chunks = list(source.chunks(ROWS_AT_ONCE, names))
    refuse_if(not chunks, f"Expected one or more rows in {source.name}; got none.")
    return need("pyarrow").concat_tables(chunks)


def refuse_empty_columns(names: Sequence[str], measured: AnyArray, n_rows: int) -> None:
    """Raise for a column without any measured value."""
    for name, count in zip(names, measured, strict=True):
        refuse_if(
            count == 0,
            f"Expected measured values, with errors, in column {name!r}; got none in "
            f"{n_rows} rows. Leave the column out.",
        )


def _name_file(reader: RowReader) -> None:
    """Name the file of a folder that an error is about, and the row in that file."""
    for name, piece in reader.source.pieces if len(reader.source.files) > 1 else ():
        first = 0
        for chunk in piece.chunks(ROWS_AT_ONCE, reader.needed):
            try:
                reader(chunk, first)
            except ValueError as error:
                raise ValueError(f"{error} This is about {reader.source.name}/{name}.") from error
            first += chunk.num_rows


def find_given(items: Sequence[str], source: Source, measured: Sequence[str]) -> GivenColumns:
    """Find covariates by their names in a table, and which of them are numbers.

    ``noise`` is the word for the errors, not a column.
    """
    from deconflow.tables.kinds import holds_numbers

    parts = list(dict.fromkeys(split_list(items, source.names)))
    names = [part for part in parts if part != ERRORS]
    check_available(source.names, names, source.name)
    for name in names:
        refuse_if(
            name in measured,
            f"Expected given= with columns that are not measured; got {name!r}. Take it out of "
            "one of them.",
        )
    refuse_if(not parts, "Expected given= with columns, or the word noise; got none.")
    labels: dict[str, Collection[str] | None] = dict.fromkeys(names)
    for table in source.chunks(ROWS_AT_ONCE, names) if names else ():
        labels |= {name: () for name in names if not holds_numbers(table[name])}
    return GivenColumns(labels, errors=ERRORS in parts)


def gathered(source: Source, columns: Columns) -> Source:
    """Return a table with a row for each object: the draws of each in lists, held in memory."""
    if columns.id is None:
        return source
    import pyarrow.dataset as ds

    from deconflow.tables.kinds import Cells
    from deconflow.tables.sources import ArrowSource

    pa, id = need("pyarrow"), columns.id
    lists = [*columns.names, *([columns.log_prior] if columns.log_prior else [])]
    check_available(source.names, [id, *lists], source.name)
    cells = Cells(_whole(source, [id, *lists]), 0, ())
    labels = cells.labels(id)
    cells.refuse(
        ~cells.usable, np.full(len(cells.usable), np.nan),
        f"the object of each draw in column {id!r}", "Fill it in, or leave the row out.",
    )  # fmt: skip
    table = pa.table({id: labels.tolist()} | {name: cells.numbers(name) for name in lists})
    table = table.group_by(id, use_threads=False).aggregate([(name, "list") for name in lists])
    table = table.select([id, *(f"{name}_list" for name in lists)])
    pairs = zip([id, *lists], table.schema.types, strict=True)
    schema = pa.schema([source.schema.field(name).with_type(kind) for name, kind in pairs])
    found = ArrowSource(ds.dataset(pa.table(table.columns, schema=schema)), source.name)
    found.kept = [id]
    return found


def _covariate(cells: "Cells", name: str, labels: Collection[str] | None) -> AnyArray:
    """Read a column that is known exactly; a row without a value cannot be used."""
    reason = f"no value in {name}, which is given"
    if labels is None:
        values = cells.numbers(name)
        cells.mark(np.isnan(values), reason)
        cells.mark(np.isinf(values), f"{name} is infinite")
        return values
    words = cells.words(name)
    cells.mark(np.array([word is None for word in words], dtype=bool), reason)
    for word in {*words[cells.usable]} - {*labels} if labels else ():
        cells.mark(np.equal(words, word), f"{name} is {word!r}, which no row of the fit had")
    return words


def conversion(unit: str, wanted: Sequence[str], column: str) -> float:
    """Return the factor from a unit to the product of the wanted ones.

    Examples
    --------
    >>> conversion("km", ["m"], "distance_err")
    1000.0
    >>> conversion("km2", ["m", "m"], "distance_variance")
    1000000.0
    >>> conversion("mag", ["mag(AB)"], "g_err")
    1.0
    """
    if [unit] == [*wanted]:
        return 1.0
    units = need("astropy.units")
    try:
        found = [units.Unit(one) for one in (unit, *wanted)]
        # Errors are differences: of magnitudes on any scale they are magnitudes.
        theirs, *parts = (getattr(each, "function_unit", each) for each in found)
        return float(theirs.to(math.prod(parts, start=units.dimensionless_unscaled)))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"Expected column {column!r} in a unit like {' * '.join(wanted)}; got {unit}. "
            "Convert it."
        ) from error
