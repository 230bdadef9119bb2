"""Saving and loading fitted models: safetensors and JSON, never a pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors.torch import load_file, save
from torch import Tensor

from deconflow._version import __version__
from deconflow.files import replacing_folder
from deconflow.model_files import (
    ABOUT_ONE_RUN,
    DESCRIPTION,
    FORMAT,
    RENAMED,
    WEIGHTS,
    check_free,
    read_description,
)

Model = TypeVar("Model")


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
    path = Path(path)
    check_free(path)
    description = json.dumps({**_describe(model), "details": details}, indent=1) + "\n"
    with replacing_folder(path) as new:
        for name, text in {DESCRIPTION: description, **(extra_files or {})}.items():
            (new / name).write_text(text)
        # save_file would let only the owner read its file, and hide what the disk says
        contiguous = {name: tensor.contiguous() for name, tensor in weights.items()}
        (new / WEIGHTS).write_bytes(save(contiguous))


def read_model(path: str | Path, cls: type[Model], changes: dict[str, Any]) -> Model:
    """Read a folder that :func:`write_model` wrote, or say in one line why not.

    ``changes`` replace parameters. The estimator takes details and weights by its ``_restore``.
    """
    description = read_description(Path(path))
    weights = load_file(Path(path) / WEIGHTS)
    if description.get("class") != cls.__name__:
        raise ValueError(f"Expected a {cls.__name__} at {path}; got a {description.get('class')}.")
    try:
        parameters = {RENAMED.get(k, k): v for k, v in description["parameters"].items()}
        model: Any = cls(**{**parameters, **changes})
        model.n_features_in_ = description["n_features_in"]
        model.n_latent_ = description["n_latent"]
        model.noise_given_ = description["noise_given"]
        model._column_names = description.get("column_names")
        model._units = description.get("units")
        if description["feature_names_in"]:
            model.feature_names_in_ = np.array(description["feature_names_in"], dtype=object)
        model._restore(description["details"], weights)
        model.parameters_ = model.get_params()
    except (KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"Expected a whole model at {path}; got a part: {error}") from error
    return model


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
    }


def _as_json(value: Any) -> Any:
    if isinstance(value, range | list | tuple):
        return [_as_json(part) for part in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
