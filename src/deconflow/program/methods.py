"""The methods by their names, and estimators made of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace as Namespace
from typing import Any

from deconflow.checks import refuse_if
from deconflow.tables import parse_atoms, parse_bounds

#: Of Extreme Deconvolution with a number of components: it must not collapse.
SINGLE_FLOOR = 0.1


@dataclass(frozen=True)
class Method:
    """An estimator of the library by its class's name.

    Attributes
    ----------
    resumable : bool
        Whether its fits keep checkpoints; those of the others are short.
    """

    class_name: str
    words: str
    resumable: bool = False


METHODS = {
    "auto": Method(
        "Deconvolver", "mixtures, log-splines and flows, averaged by held-out rows", resumable=True
    ),
    "xd": Method("XDGMM", "Extreme Deconvolution: a Gaussian mixture; quick"),
    "bayes": Method(
        "BayesianXDGMM",
        "Bayesian Gaussian mixture: averages over all that fit, nothing to choose",
        resumable=True,
    ),
    "flow": Method("FlowDeconvolver", "one normalizing flow", resumable=True),
    "spline": Method("LogSplineDeconvolver", "penalised log density; one or two columns"),
    "kde": Method("DeconvolvingKDE", "deconvolving kernel density estimate; up to three columns"),
    "wavelet": Method("WaveletDeconvolver", "wavelets; one column"),
}


def method_of_class(class_name: str) -> str:
    """Name the method of an estimator's class; no other class is ever looked up."""
    known = {method.class_name: name for name, method in METHODS.items()}
    refuse_if(
        class_name not in known,
        f"Expected a model of {', '.join(METHODS)}; got one of {class_name!r}.",
    )
    return known[class_name]


def check_method(method: str) -> Method:
    """Return a method by its name."""
    refuse_if(
        method not in METHODS, f"Expected --method as one of {', '.join(METHODS)}; got {method!r}."
    )
    return METHODS[method]


def takes(method: str, fact: str) -> bool:
    """Whether a method fits rows with a fact, such as atoms."""
    from deconflow.estimators import ESTIMATORS

    return fact in ESTIMATORS[check_method(method).class_name]._engine_type.takes


def check_known(options: Namespace, method: str) -> None:
    """Raise if a method does not take a fact about true values, before a table is read."""
    check_method(method)
    refuse_if(
        options.background not in (None, "uniform"),
        f"Expected --background uniform; got {options.background!r}.",
    )
    for name in ("given", "bounds", "atoms", "background"):
        fact = "covariates" if name == "given" else name
        if getattr(options, name) is not None and not takes(method, fact):
            *able, last = [each for each in METHODS if takes(each, fact)]
            raise ValueError(
                f"Expected no --{name} with --method {method}; got one. Use --method "
                f"{', '.join(able)} or {last}, which take it."
            )


def parameters_of(options: Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Return parameters of an estimator of these columns: what options say of true values."""
    found: dict[str, Any] = {}
    if options.bounds is not None:
        ends = parse_bounds(options.bounds, names)
        found["bounds"] = ends and [ends.get(name) for name in names]
    if options.atoms is not None:
        found["atoms"] = parse_atoms(options.atoms, names)
    if options.background is not None:
        found["background"] = options.background
    for name, values in found.items():
        refuse_if(not values, f"Expected values after --{name}; got none.")
    return found


def settings_of(method: str, settings: Sequence[str] | None, *, quick: bool = False) -> list[str]:
    """Return what ``--set`` and ``--quick`` say of a method, checked before a table is read."""
    refuse_if(
        quick and method != "auto", f"Expected --quick with --method auto; got --method {method}."
    )
    said = [*(settings or ()), *["quick=true"] * quick]
    if said:
        make_estimator(method, said)
    return said


def make_estimator(
    method: str,
    settings: Sequence[str] = (),
    known: Mapping[str, Any] | None = None,
    **about_the_run: Any,
) -> Any:
    """Make an unfitted estimator.

    Parameters
    ----------
    method
        A name in :data:`METHODS`.
    settings
        ``NAME=VALUE``, as after ``--set``.
    known
        Parameters by which options say what is known of the truth.
    **about_the_run
        Parameters that not every estimator has, such as a seed; who lacks one is not given it.

    Raises
    ------
    ValueError
        If a setting makes no sense, before any work.
    """
    from deconflow.estimators import ESTIMATORS

    cls = ESTIMATORS[check_method(method).class_name]
    usual = cls().get_params()
    given: dict[str, Any] = {}
    for item in settings:  # a value is JSON, or else text
        name, equals, text = item.partition("=")
        refuse_if(
            not equals or name not in usual,
            f"Expected --set NAME=VALUE, with a parameter of {method}: "
            f"{', '.join(sorted(usual))}; got {item!r}.",
        )
        try:
            given[name] = json.loads(text)
        except json.JSONDecodeError:
            given[name] = text
    for name in (known or {}).keys() & given.keys():
        raise ValueError(f"Expected {name} once; got --{name} and --set {name}. Leave one out.")
    about = {name: value for name, value in about_the_run.items() if name in usual}
    if method == "xd" and given.setdefault("n_components", "auto") != "auto":
        about["floor"] = SINGLE_FLOOR
    model = cls(**(about | given | dict(known or {})))
    model._check_parameters()
    return model
