"""Tables on disk: read and written in chunks, with their columns of errors as noise.

Importing this package imports neither pyarrow, astropy nor torch; reading a table does.
"""

from deconflow.tables.columns import NOISE_KINDS, Columns, find_columns
from deconflow.tables.conventions import correlation_column, error_columns, one_sign
from deconflow.tables.covariates import (
    GivenColumns,
    find_given,
)
from deconflow.tables.error_bars import independent_noise
from deconflow.tables.gathered import gathered
from deconflow.tables.how import COUNTS, How, find_how
from deconflow.tables.io import (
    Source,
    described,
    format_of,
    need,
    row_name,
    split_part,
    writing,
)
from deconflow.tables.measurements import (
    Measurements,
    RowReader,
    Rows,
    conversion,
    read_rows,
    refuse_empty_columns,
)
from deconflow.tables.opening import is_many, open_table
from deconflow.tables.option_syntax import (
    finite_number,
    parse_atoms,
    parse_bounds,
    split_list,
)
from deconflow.tables.packed import STANDARD, TableError

__all__ = [
    "COUNTS",
    "NOISE_KINDS",
    "STANDARD",
    "Columns",
    "GivenColumns",
    "How",
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
    "find_how",
    "finite_number",
    "format_of",
    "gathered",
    "independent_noise",
    "is_many",
    "need",
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
