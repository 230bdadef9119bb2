"""Covariates of rows, as they were given."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deconflow._types import AnyArray
from deconflow.frames import refuse_other_rows
from deconflow.truth import NOISE, columns_by_name, given_parts


@dataclass(frozen=True)
class Given:
    """Covariates of rows: whether the rows' own errors are among them, and columns by name."""

    with_errors: bool
    columns: dict[str, AnyArray]

    @classmethod
    def of(cls, given: Any, w: Any, n_rows: int) -> "Given":
        """Check that covariates have the rows of ``w``."""
        with_errors, table = given_parts(given)
        if hasattr(table, "iloc"):
            refuse_other_rows(w, table, "given")
        return cls(with_errors, columns_by_name(table, n_rows))

    @property
    def parts(self) -> Any:
        """The same in the words of ``given=``."""
        if not self.with_errors:
            return self.columns
        return (NOISE, self.columns) if self.columns else NOISE

    def take(self, rows: Any) -> "Given":
        """Return the covariates of some rows."""
        rows = rows if isinstance(rows, slice) else np.asarray(rows)
        return replace(self, columns={name: values[rows] for name, values in self.columns.items()})
