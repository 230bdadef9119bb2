"""A model on disk: the estimator's own folder, with a file about the table beside its weights."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from deconflow.estimators.persistence import DESCRIPTION
from deconflow.files import clear_write_errors
from deconflow.program.methods import METHODS, estimator_class
from deconflow.program.posteriors import closed_form
from deconflow.tables import Columns, RowReader, Source, find_columns

TABLE, FORMAT = "table.json", 1


@dataclass(frozen=True)
class SavedModel:
    """A fitted estimator, and what is known of the table that it was fitted to.

    Attributes
    ----------
    estimator : estimator
        Fitted.
    columns : Columns or None
        Names, errors and noise; None for a model that was saved from Python.
    about : dict
        What ``fit`` wrote of the method, the table and the fit, for people.
    """

    estimator: Any
    columns: Columns | None
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the dimensions."""
        if self.columns is not None:
            return self.columns.names
        given = getattr(self.estimator, "feature_names_in_", None)
        if given is None:
            return tuple(f"v{d}" for d in range(self.estimator.n_features_in_))
        return tuple(map(str, given))

    @property
    def labels(self) -> list[str]:
        """Names of the dimensions with their units, where these are known."""
        units = self.columns.units if self.columns else ()
        known = units or (None,) * len(self.names)
        pairs = zip(self.names, known, strict=True)
        return [f"{name} [{unit}]" if unit else name for name, unit in pairs]

    @cached_property
    def answering(self) -> Any:
        """What answers about rows: a closed form, where mixtures were chosen and noise Gaussian."""
        mixtures = getattr(self.estimator, "method_", None) == "xd"
        if mixtures and self.columns is not None and self.columns.law == "gaussian":
            return closed_form(self.estimator)
        return self.estimator

    def reader(self, source: Source, only: list[str] | None = None) -> RowReader:
        """Return what reads this model's measurements from a table."""
        columns = self.columns or find_columns(source.names, self.names)
        return RowReader(columns, source, only)

    def save(self, path: Path) -> None:
        """Write a folder, all or nothing."""
        about = {"format": FORMAT, **self.about}
        if self.columns is not None:
            about["columns"] = self.columns.as_dict()
        self.estimator.save(path, extra_files={TABLE: json.dumps(about, indent=1) + "\n"})


def check_free(path: Path) -> None:
    """Raise, before any work, if a model cannot be written there."""
    if path.exists() and not (path / DESCRIPTION).is_file():
        raise FileExistsError(
            f"Expected {path} to be free or an older model; got something else there. "
            "Choose another path."
        )
    with clear_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()


def load(path: Path) -> SavedModel:
    """Read a model's folder; nothing in it is executed."""
    if path.is_file():
        raise ValueError(
            f"Expected the folder of a model; got the file {path}. Models are folders of JSON and "
            "safetensors; pickles are not loaded."
        )
    description = _json(path / DESCRIPTION, path)
    cls = estimator_class(str(description.get("class")))
    estimator = cls.load(path)
    about = _json(path / TABLE, path) if (path / TABLE).is_file() else {}
    if about and about.pop("format", None) != FORMAT:
        raise ValueError(
            f"Expected {TABLE} of format {FORMAT} at {path}; got another. "
            "Load it with the version of deconflow that wrote it."
        )
    columns = about.pop("columns", None)
    return SavedModel(estimator, None if columns is None else Columns.from_dict(columns), about)


def method_of(saved: SavedModel) -> str:
    """Name the method of a model."""
    name = type(saved.estimator).__name__
    return next(key for key, method in METHODS.items() if method.class_name == name)


def _json(file: Path, path: Path) -> dict[str, Any]:
    if not file.is_file():
        raise FileNotFoundError(f"Expected a model's folder at {path}; got none. Fit one first.")
    try:
        content = json.loads(file.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"Expected a whole model at {path}; got a damaged {file.name}: {error}"
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"Expected a whole model at {path}; got a damaged {file.name}.")
    return content
