"""Saving and loading fitted models: safetensors and JSON, never a pickle."""

import json
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from deconflow._types import Array
from deconflow._version import __version__
from deconflow.files import as_path, replacing_folder
from deconflow.guests import device_here
from deconflow.mixtures import GaussianMixture
from deconflow.models.fit import Fit, Streamed
from deconflow.observations import Labels
from deconflow.reductions import (
    REDUCTIONS,
    Known,
    LearnErrors,
)
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
from deconflow.truth import Bounds, UniformBackground

LEARNED: Any = reduce(or_, (each.finds for each in (LearnErrors, *REDUCTIONS)), Streamed)
#: Types of what is saved of a fit, beside its solution.
TYPES: dict[str, Any] = {
    "known": {
        "bounds": Bounds | None, "atoms": Array, "background": UniformBackground | None,
    },
    "learned": list[LEARNED],
    "traits": list[str],
    "labels": {
        "names": tuple[str, ...] | None, "units": list[str | None] | None, "noise_given": bool,
        "of_table": bool,
    },
    "names": list[str],
    "threads": int | None,
}  # fmt: skip
#: Errors of values that do not fit together; torch raises a ``RuntimeError``.
UNFIT = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError
)  # fmt: skip


def write_model(path: str | Path, model: Any, extra_files: dict[str, str] | None = None) -> None:
    """Write a fitted estimator's folder, all or nothing; an older model there is replaced.

    ``extra_files`` are texts that others keep in the folder, by the names of their files.
    """
    path = as_path(path)
    check_free(path)
    arrays: dict[str, np.ndarray] = {}
    description = {
        "format": FORMAT,
        "deconflow": __version__,
        "class": type(model).__name__,
        "n_features_in": model.n_features_in_,
        "parameters": {
            name: _as_json(value)
            for name, value in model.parameters_.items()
            if name not in ABOUT_ONE_RUN and not isinstance(value, np.random.RandomState)
        },
        "fit": to_json(_parts(model.fit_), arrays, "fit"),
    }
    texts = {DESCRIPTION: json.dumps(description, indent=1) + "\n", **(extra_files or {})}
    with replacing_folder(path) as new:
        for name, content in with_checksums(texts, save(arrays)).items():
            (new / name).write_bytes(content)


def read_model(files: ModelFiles, cls: type[Any], changes: dict[str, Any]) -> Any:
    """Make an estimator of what :func:`write_model` wrote, or say in one line why not.

    ``changes`` replace parameters.
    """
    about, path = files.description, files.path
    if about["class"] != cls.__name__:
        raise ValueError(f"Expected a {cls.__name__} at {path}; got a {about['class']}.")
    for name in TYPES["known"]:
        if name in changes:
            raise ValueError(
                f"Expected {name} as in the fit, for which the density was made; got "
                f"{changes[name]!r}. Fit again with it."
            )
    try:
        parameters = about["parameters"]
        if "device" in parameters:  # a model of a GPU can be used without one, too
            parameters = {**parameters, "device": device_here(parameters["device"])}
        model = cls(**{**parameters, **changes})
        model._check_parameters()
        kinds = {"solution": cls._engine_type.solution, **TYPES}
        arrays = load(files.contents[WEIGHTS])
        fit, size = _whole(from_json(about["fit"], kinds, arrays, "fit")), about["n_features_in"]
        _check_sizes(fit, size)
        model._take(fit)
        model._remember(size)
    except UNFIT as error:
        raise ValueError(
            f"Expected a whole model at {path}; got one that is not: {' '.join(str(error).split())}"
        ) from error
    return model


def _parts(fit: Fit) -> dict[str, Any]:
    """Return what is saved of a fit; solutions that hold what cannot be saved give a lean copy."""
    solution = fit.solution.lean() if hasattr(fit.solution, "lean") else fit.solution
    labels = {name: getattr(fit.labels, name) for name in TYPES["labels"]}
    return {
        "solution": solution, "known": vars(fit.known), "learned": fit.learned,
        "traits": sorted(fit.traits), "labels": labels, "names": fit.names, "threads": fit.threads,
    }  # fmt: skip


def _check_sizes(fit: Fit, n_features: int) -> None:
    """Raise unless names, columns and the density go together."""
    own, size = fit.labels.names, len(fit.names)
    refuse("names", own is not None and len(own) != n_features, "one per column")
    refuse("n_features_in", "projected" not in fit.traits and n_features != size, "that of names")
    fit.own.log_prob(np.zeros((1, size)))


def _whole(parts: dict[str, Any]) -> Fit:
    """Return the fit that these are the parts of."""
    solution = parts["solution"]
    return Fit(
        solution.whole() if hasattr(solution, "whole") else solution,
        Known(**parts["known"]), tuple(parts["learned"]), frozenset(parts["traits"]),
        Labels(**parts["labels"]), parts["names"], parts["threads"],
    )  # fmt: skip


def _as_json(value: Any) -> Any:
    """Return a parameter as JSON holds it."""
    if isinstance(value, GaussianMixture):
        value = {part: getattr(value, part) for part in ("weights", "means", "covariances")}
    if isinstance(value, dict):
        return {str(key): _as_json(part) for key, part in value.items()}
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    if isinstance(value, range | list | tuple):
        return [_as_json(part) for part in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
