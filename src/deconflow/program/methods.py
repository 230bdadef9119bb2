"""The methods by their names, and estimators made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import deconflow

COMPONENTS = (1, 2, 4, 8)
ROWS_A_COMPONENT, ROWS_TO_AVERAGE = 20, 100


@dataclass(frozen=True)
class Method:
    """An estimator of the library by its class's name, with settings of the program's own."""

    class_name: str
    words: str
    settings: dict[str, Any] = field(default_factory=dict)


METHODS = {
    "auto": Method("Deconvolver", "mixtures and flows, chosen and mixed on held-out rows"),
    "xd": Method(
        "XDGMM",
        "Extreme Deconvolution: a Gaussian mixture; quick",
        {"n_components": COMPONENTS, "floor": 0.1, "n_average": 5, "average_over": "folds"},
    ),
    "flow": Method("FlowDeconvolver", "one normalizing flow"),
    "kde": Method("DeconvolvingKDE", "deconvolving kernel density estimate; up to three columns"),
    "wavelet": Method("WaveletDeconvolver", "wavelets; one column"),
}


def estimator_class(class_name: str) -> Any:
    """Return a class that a method names; no other is ever looked up."""
    known = {method.class_name: name for name, method in METHODS.items()}
    if class_name not in known:
        raise ValueError(f"Expected a model of {', '.join(known)}; got {class_name!r}.")
    found = getattr(deconflow, class_name, None)
    if found is None:
        raise ValueError(
            f"Expected a method of deconflow {deconflow.__version__}; got "
            f"{known[class_name]!r}, which this version lacks. Take --method xd or flow."
        )
    return found


def can_resume(method: str) -> bool:
    """Whether fits of a method keep checkpoints; those of the others are short."""
    known = METHODS.get(method)
    return known is not None and "checkpoint" in estimator_class(known.class_name)().get_params()


def make_estimator(
    method: str, n_rows: int, settings: Sequence[str] = (), **about_the_run: Any
) -> Any:
    """Make an unfitted estimator.

    Parameters
    ----------
    method
        A name in :data:`METHODS`.
    n_rows
        Number of rows that will be fitted.
    settings
        ``NAME=VALUE``, as after ``--set``.
    **about_the_run
        Parameters that not every estimator has, such as a seed; who lacks one is not given it.
    """
    if method not in METHODS:
        raise ValueError(f"Expected --method as one of {', '.join(METHODS)}; got {method!r}.")
    cls = estimator_class(METHODS[method].class_name)
    known = cls().get_params()
    parameters = dict(METHODS[method].settings)
    if "n_components" in parameters:
        most = max(1, n_rows // ROWS_A_COMPONENT)
        parameters["n_components"] = [n for n in COMPONENTS if n <= most]
    if n_rows < ROWS_TO_AVERAGE:
        parameters = {k: v for k, v in parameters.items() if k not in ("n_average", "average_over")}
    parameters |= {name: value for name, value in about_the_run.items() if name in known}
    return cls(**(parameters | _parse(settings, known, method)))


def _parse(settings: Sequence[str], known: dict[str, Any], method: str) -> dict[str, Any]:
    """Read ``NAME=VALUE``; a value is JSON, or else text."""
    parameters = {}
    for item in settings:
        name, equals, text = item.partition("=")
        if not equals or name not in known:
            raise ValueError(
                f"Expected --set NAME=VALUE, with a parameter of {method}: "
                f"{', '.join(sorted(known))}; got {item!r}."
            )
        try:
            parameters[name] = json.loads(text)
        except json.JSONDecodeError:
            parameters[name] = text
    return parameters
