"""Saving and loading fitted models: safetensors and JSON, never a pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors.torch import load, save
from torch import Tensor

from deconflow._version import __version__
from deconflow.devices import device_here
from deconflow.estimators.saved_values import PARTS, check_arrays, refuse
from deconflow.files import as_path, replacing_folder
from deconflow.mixtures import GaussianMixture
from deconflow.saving import (
    ABOUT_ONE_RUN,
    DESCRIPTION,
    FORMAT,
    WEIGHTS,
    ModelFiles,
    check_free,
    with_checksums,
)

Model = TypeVar("Model")

KNOWN_OF_TRUTH = ("bounds", "atoms", "background")
"""Parameters that a fitted model cannot change: its density was made with them."""
UNFIT = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError
)  # fmt: skip
"""What values that do not fit together raise; torch raises a ``RuntimeError``."""


def write_model(
    path: str | Path,
    model: Any,
    details: dict[str, Any],
    weights: dict[str, Tensor],
    extra_files: dict[str, str] | None = None,
) -> None:
    """Write a fitted estimator's folder, all or nothing; an older model there is replaced.

    ``extra_files`` are texts that others keep in the folder, by the names of their files.
    """
    path = as_path(path)
    check_free(path)
    description = json.dumps({**_describe(model), "details": details}, indent=1) + "\n"
    # save_file would let only the owner read its file, and hide what the disk says
    arrays = save({name: tensor.contiguous() for name, tensor in weights.items()})
    files = with_checksums({DESCRIPTION: description, **(extra_files or {})}, arrays)
    with replacing_folder(path) as new:
        for name, content in files.items():
            (new / name).write_bytes(content)


def read_model(files: ModelFiles, cls: type[Model], changes: dict[str, Any]) -> Model:
    """Make an estimator of what :func:`write_model` wrote, or say in one line why not.

    ``changes`` replace parameters. The estimator takes details and weights by its ``_restore``.
    """
    said, path = files.description, files.path
    if said["class"] != cls.__name__:
        raise ValueError(f"Expected a {cls.__name__} at {path}; got a {said['class']}.")
    changed = [name for name in KNOWN_OF_TRUTH if name in changes]
    if changed and "known" in said["details"]:
        raise ValueError(
            f"Expected {changed[0]} as in the fit, for which the density was made; got "
            f"{changes[changed[0]]!r}. Fit again with it."
        )
    try:
        arrays = load(files.contents[WEIGHTS])
        check_arrays(arrays)
        parameters = said["parameters"]
        if "device" in parameters:  # a model of a GPU answers without one, too
            parameters = {**parameters, "device": device_here(parameters["device"])}
        model: Any = cls(**{**parameters, **changes})
        model._check_parameters()
        _take_description(model, said)
        model._restore_whole(said["details"], arrays)
        model.parameters_ = model.get_params()
    except UNFIT as error:
        about = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise ValueError(
            f"Expected a whole model at {path}; got one that is not: {about}"
        ) from error
    return model


def _take_description(model: Any, said: dict[str, Any]) -> None:
    names = said["feature_names_in"]
    refuse("feature_names_in", names and len(names) != said["n_features_in"], "one per column")
    model.n_features_in_ = said["n_features_in"]
    model.n_latent_ = said["n_latent"]
    model.noise_given_ = said["noise_given"]
    model._column_names = said["column_names"]
    model._units = said["units"]
    counts = said["rows_of_stream"]
    model._rows_of_stream = None if counts is None else tuple(counts)
    if names:
        model.feature_names_in_ = np.array(names, dtype=object)


def _describe(model: Any) -> dict[str, Any]:
    parameters = {
        name: _as_json(value)
        for name, value in model.parameters_.items()
        if name not in ABOUT_ONE_RUN and not isinstance(value, np.random.RandomState)
    }
    return {
        "format": FORMAT,
        "deconflow": __version__,
        "class": type(model).__name__,
        "parameters": parameters,
        "n_features_in": model.n_features_in_,
        "n_latent": model.n_latent_,
        "noise_given": model.noise_given_,
        "feature_names_in": list(getattr(model, "feature_names_in_", [])),
        "column_names": model._column_names,
        "units": model._units,
        "rows_of_stream": model._rows_of_stream,
    }


def _as_json(value: Any) -> Any:
    if isinstance(value, GaussianMixture):
        value = {part: getattr(value, part) for part in PARTS}
    if isinstance(value, dict):
        return {str(key): _as_json(part) for key, part in value.items()}
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    if isinstance(value, range | list | tuple):
        return [_as_json(part) for part in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
