"""The estimators that the records compare, by their names; their candidates, each alone."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import deconflow
from benchmarks.laws import Array
from deconflow.program.methods import make_estimator


def make(name: str, n_rows: int, seed: int) -> Any:
    """Make an unfitted estimator by its name.

    Raises
    ------
    ValueError
        If there is none of this name.
    """
    if name not in MAKERS:
        raise ValueError(f"Expected --estimator of {', '.join(MAKERS)}; got {name!r}.")
    return MAKERS[name](n_rows, seed)


def fit(name: str, seed: int, w: Array, noise: Any) -> tuple[Any, float]:
    """Fit an estimator; return it, and the seconds that took."""
    model = make(name, len(w), seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what matters of them is in the scores
        begin = time.perf_counter()
        model.fit(w, noise=noise)
        return model, time.perf_counter() - begin


def log_densities(model: Any, v: Array) -> dict[str, Array]:
    """Return ``log p(v)`` of every candidate of a fitted model by its name; empty without any."""
    candidates = getattr(model, "candidates_", {})
    return {name: density.log_prob(v) for name, density in candidates.items()}


def shares(model: Any) -> dict[str, float] | None:
    """Return the weight of every candidate; None where a model has none."""
    weights = getattr(model, "weights_", None)
    return {k: float(w) for k, w in weights.items()} if isinstance(weights, dict) else None


def _by_class(name: str, *args: Any, **settings: Any) -> Callable[[int, int], Any]:
    def make_one(n_rows: int, seed: int) -> Any:
        model = getattr(deconflow, name)(*args, **settings)
        seeded = {"random_state": seed} if "random_state" in model.get_params() else {}
        return model.set_params(**seeded)

    return make_one


MAKERS: dict[str, Callable[[int, int], Any]] = {
    "deconvolver": _by_class("Deconvolver"),
    "quick": _by_class("Deconvolver", quick=True),
    "bayes": _by_class("BayesianXDGMM"),
    "spline": _by_class("LogSplineDeconvolver"),
    "xd": lambda n_rows, seed: make_estimator("xd", random_state=seed),
    "xd-1": _by_class("XDGMM", 1),
    "xd-2": _by_class("XDGMM", 2),
}
