"""Tables on disk: read and written in chunks, with their columns of errors as noise.

Importing this package imports neither pyarrow, astropy nor torch; reading a table does.
"""

from deconflow.tables.columns import (
    COUNTS,
    NOISE_KINDS,
    Columns,
    correlation_column,
    error_columns,
    find_columns,
    finite_number,
    independent_noise,
    one_sign,
    parse_atoms,
    parse_bounds,
    split_list,
)
from deconflow.tables.formats import (
    STANDARD,
    Source,
    TableError,
    described,
    format_of,
    row_name,
    split_part,
)
from deconflow.tables.opening import is_many, open_table, writing
from deconflow.tables.rows import (
    GivenColumns,
    Measurements,
    RowReader,
    Rows,
    conversion,
    find_given,
    gathered,
    read_rows,
    refuse_empty_columns,
)

__all__ = [
    "COUNTS",
    "NOISE_KINDS",
    "STANDARD",
    "Columns",
    "GivenColumns",
    "Measurements",
    "RowReader",
    "Rows",
    "Source",
    "TableError",
    "conversion",
    "correlation_column",
    "described",
    "error_columns",
    "find_columns",
    "find_given",
    "finite_number",
    "format_of",
    "gathered",
    "independent_noise",
    "is_many",
    "one_sign",
    "open_table",
    "parse_atoms",
    "parse_bounds",
    "read_rows",
    "refuse_empty_columns",
    "row_name",
    "split_list",
    "split_part",
    "writing",
]


def __dir__() -> list[str]:
    return list(__all__)
