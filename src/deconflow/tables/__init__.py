"""Tables on disk: read and written in chunks, with their columns of errors as noise.

Importing this package imports neither pyarrow, astropy nor torch; reading a table does.
"""

from deconflow.tables.columns import (
    NOISE_KINDS,
    Columns,
    correlation_column,
    error_columns,
    find_columns,
)
from deconflow.tables.io import (
    Sink,
    Source,
    described,
    format_of,
    need,
    open_table,
    split_part,
    writing,
)
from deconflow.tables.measurements import Measurements, RowReader, read_rows
from deconflow.tables.option_syntax import split_list
from deconflow.tables.packed import STANDARD

__all__ = [
    "NOISE_KINDS",
    "STANDARD",
    "Columns",
    "Measurements",
    "RowReader",
    "Sink",
    "Source",
    "correlation_column",
    "described",
    "error_columns",
    "find_columns",
    "format_of",
    "need",
    "open_table",
    "read_rows",
    "split_list",
    "split_part",
    "writing",
]
