"""Tables of people: read and written in chunks, with their columns of errors."""

from deconflow.tables.columns import Columns, find_columns
from deconflow.tables.doors import open_table, writing
from deconflow.tables.rows import RowReader, Rows, read_rows
from deconflow.tables.source import Source

__all__ = [
    "Columns",
    "RowReader",
    "Rows",
    "Source",
    "find_columns",
    "open_table",
    "read_rows",
    "writing",
]
