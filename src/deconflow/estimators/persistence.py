"""Saving and loading fitted models: safetensors and JSON, never a pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors.numpy import load, save

from deconflow._version import __version__
from deconflow.devices import device_here
from deconflow.errors import LearnedErrors
from deconflow.estimators.knowledge import Knowledge
from deconflow.estimators.unseen_rows import SeenShare
from deconflow.files import as_path, replacing_folder
from deconflow.mixtures import GaussianMixture
from deconflow.saving import (
    ABOUT_ONE_RUN,
    DESCRIPTION,
    FORMAT,
    WEIGHTS,
    ModelFiles,
    check_free,
    from_json,
    refuse,
    to_json,
    with_checksums,
)

Model = TypeVar("Model")

KNOWN_OF_TRUTH = ("bounds", "atoms", "background")
"""Parameters that a fitted model cannot change: its density was made with them."""
BESIDE = {
    "knowledge": Knowledge | None, "errors": LearnedErrors | None, "selected": SeenShare | None
}  # fmt: skip
"""What any model may have learned of the truth, the errors and the selection, by their types."""
DESCRIBED = ("n_features_in", "n_latent", "noise_given")
UNFIT = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError
)  # fmt: skip
"""What values that do not fit together raise; torch raises a ``RuntimeError``."""


def write_model(path: str | Path, model: Any, extra_files: dict[str, str]) -> None:
    """Write a fitted estimator's folder, all or nothing; an older model there is replaced.

    ``extra_files`` are texts that others keep in the folder, by the names of their files.
    """
    path = as_path(path)
    check_free(path)
    arrays: dict[str, np.ndarray] = {}
    description = json.dumps(_describe(model, arrays), indent=1) + "\n"
    files = with_checksums({DESCRIPTION: description, **extra_files}, save(arrays))
    with replacing_folder(path) as new:
        for name, content in files.items():
            (new / name).write_bytes(content)


def read_model(files: ModelFiles, cls: type[Model], changes: dict[str, Any]) -> Model:
    """Make an estimator of what :func:`write_model` wrote, or say in one line why not.

    ``changes`` replace parameters.
    """
    said, path = files.description, files.path
    if said["class"] != cls.__name__:
        raise ValueError(f"Expected a {cls.__name__} at {path}; got a {said['class']}.")
    changed = [name for name in KNOWN_OF_TRUTH if name in changes]
    if changed and said["learned"].get("knowledge"):
        raise ValueError(
            f"Expected {changed[0]} as in the fit, for which the density was made; got "
            f"{changes[changed[0]]!r}. Fit again with it."
        )
    try:
        parameters = said["parameters"]
        if "device" in parameters:  # a model of a GPU answers without one, too
            parameters = {**parameters, "device": device_here(parameters["device"])}
        model: Any = cls(**{**parameters, **changes})
        model._check_parameters()
        names = said["feature_names_in"]
        refuse("feature_names_in", names and len(names) != said["n_features_in"], "one per column")
        for name in DESCRIBED:
            setattr(model, f"{name}_", said[name])
        for name in ("column_names", "units", "rows_of_stream"):
            setattr(model, f"_{name}", said[name])
        if names:
            model.feature_names_in_ = np.array(names, dtype=object)
        kinds = {"own": model._saved, **BESIDE}
        learned = from_json(said["learned"], kinds, load(files.contents[WEIGHTS]), "learned")
        for name in BESIDE:
            setattr(model, f"_{name}", learned[name])
        model.parameters_ = model.get_params()
        model._restore(learned["own"])
    except UNFIT as error:
        raise ValueError(
            f"Expected a whole model at {path}; got one that is not: {' '.join(str(error).split())}"
        ) from error
    return model


def _describe(model: Any, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    parameters = {
        name: _as_json(value)
        for name, value in model.parameters_.items()
        if name not in ABOUT_ONE_RUN and not isinstance(value, np.random.RandomState)
    }
    learned = {"own": model._state(), **{name: getattr(model, f"_{name}") for name in BESIDE}}
    return {
        "format": FORMAT,
        "deconflow": __version__,
        "class": type(model).__name__,
        "parameters": parameters,
        **{name: getattr(model, f"{name}_") for name in DESCRIBED},
        "feature_names_in": list(getattr(model, "feature_names_in_", [])),
        "column_names": model._column_names,
        "units": model._units,
        "rows_of_stream": model._rows_of_stream,
        "learned": to_json(learned, arrays, "learned"),
    }


def _as_json(value: Any) -> Any:
    if isinstance(value, GaussianMixture):
        value = vars(value)
    if isinstance(value, dict):
        return {str(key): _as_json(part) for key, part in value.items()}
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    if isinstance(value, range | list | tuple):
        return [_as_json(part) for part in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
