"""A model on disk: the estimator's own folder, with a file about the table beside its weights."""

import warnings
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

from deconflow.certificate import Certificate
from deconflow.checks import refuse_if
from deconflow.program.methods import method_of_class
from deconflow.program.reading import refuse_too_large
from deconflow.saving import TABLE, ModelFiles, parse_json, read_folder
from deconflow.tables import (
    Columns,
    GivenColumns,
    Measurements,
    RowReader,
    Source,
    find_columns,
    gathered,
    open_table,
    read_rows,
)

SAVED_COLUMN = {
    "name": str, "measured": int, "mean": float, "sd": float, "median_error": float
}  # fmt: skip
#: What ``fit`` has written of the table and the fit.
SAVED_ABOUT = {
    "command": str | None,
    "date": str,
    "fitted": str,
    "known": list[str],
    "method": str,
    "seconds": float,
    "special_settings": dict[str, str],
    "certificate": Certificate | None,
    "columns": Columns,
    "table": {
        "path": str, "rows": int, "used": int, "columns": [SAVED_COLUMN], "weights": str | None
    },
}  # fmt: skip


@dataclass(frozen=True)
class ModelFolder:
    """What a model's folder says; the estimator itself is read when it is asked for.

    Attributes
    ----------
    files : ModelFiles
        What is in the folder.
    columns : Columns or None
        Names, errors and noise; None for a model that was saved from Python.
    about : dict
        What ``fit`` wrote of the method, the table and the fit, for people.
    """

    files: ModelFiles
    columns: Columns | None
    about: dict[str, Any]

    @cached_property
    def estimator(self) -> Any:
        """The fitted estimator."""
        from deconflow.estimators import of_files

        return of_files(self.files)

    @property
    def method(self) -> str:
        """Name of the method."""
        return method_of_class(self.files.description["class"])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the dimensions."""
        return self.columns.names if self.columns else tuple(self.files.description["fit"]["names"])

    @property
    def units(self) -> dict[str, str | None]:
        """Unit of each dimension, None where it is not known."""
        return dict(zip_longest(self.names, self.columns.units if self.columns else ()))

    @property
    def labels(self) -> list[str]:
        """Names of the dimensions with their units, where these are known."""
        return [f"{name} [{unit}]" if unit else name for name, unit in self.units.items()]

    @property
    def certificate(self) -> Certificate | None:
        """The certificate of the fit, if it was kept."""
        return self.about.get("certificate")

    def known(self) -> list[str]:
        """Say what was known of the truth, and what became of it."""
        return list(self.about.get("known", []) if self.about else self.estimator.known_)

    def reader(self, source: Source, *, weighted: bool = False) -> RowReader:
        """Return what reads this model's measurements from a table.

        ``weighted`` rows have the weights that the fit had.
        """
        columns = self.columns or find_columns(source, self.names)
        source, given = gathered(source, columns), None
        covariates = self.estimator.fit_.covariates
        if covariates is not None:
            own = covariates.columns[len(covariates.errors) :]
            labels = {column.name: column.categories for column in own}
            given = GivenColumns(labels, errors=bool(covariates.errors))
        weights = self.about.get("table", {}).get("weights") if weighted else None
        if weights is not None and weights not in source.names:
            warnings.warn(
                f"the model was fitted with weights in column {weights!r}, which {source.name} "
                "does not have: its rows count equally",
                stacklevel=2,
            )
            weights = None
        return RowReader(columns, source, given=given, weights=weights)

    def measurements(self, table: str | Path) -> Measurements:
        """Read the measurements of a whole table, as ``fit`` has read them."""
        reader = self.reader(open_table(Path(table), typed=False), weighted=True)
        refuse_too_large(reader)
        return read_rows(reader)


def load(path: str | Path) -> ModelFolder:
    """Read what a model's folder says of itself; nothing in it is executed."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"Expected a model's folder at {path}; got none. Fit one first.")
    files = read_folder(path)
    method_of_class(files.description["class"])
    about: dict[str, Any] = {}
    if TABLE in files.contents:
        about = parse_json(files.contents[TABLE], path / TABLE, SAVED_ABOUT)
    known, n = about.pop("columns", None), files.description["n_features_in"]
    if known is not None:
        per_column = (known.names, known.errors, known.units, known.limits, known.replicate_columns)
        shares = (known.replicate_covariance, *known.replicate_covariance)
        refuse_if(
            any(len(values) not in (0, n) for values in (*per_column, *shares)),
            f"Expected a whole model; got a damaged {TABLE} at {path}: its columns are not "
            "those of the model.",
        )
    return ModelFolder(files, known, about)
