"""What XDGMM's parameters mean: checked, and turned into settings and a start."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from deconflow._types import AnyArray, Array, BoolArray
from deconflow.checks import as_floats, check_choice, check_integer, check_number
from deconflow.mixtures import GaussianMixture
from deconflow.xd import (
    STARTS,
    FitSettings,
    Minibatches,
    Stopping,
    who_chose,
)

METHODS = ("anderson", "em", "minibatch")
#: What a mixture consists of, by the names that ``init`` and ``fixed`` have for it.
PARTS = ("weights", "means", "covariances")
AUTO = "auto"
#: What ``n_components="auto"`` decides itself, or has no use for.
IGNORED_BY_AUTO: dict[str, Any] = {"floor": 0.0, "n_init": 1, "fixed": None}


def check_settings(model: Any) -> None:
    """Raise where a parameter makes no sense, before any work."""
    _check_method(model.method)
    _check_parts(model)
    for name in ("n_init", "max_iter"):
        check_integer(name, getattr(model, name), 1)
    for name in ("tol", "floor"):
        check_number(name, getattr(model, name), 0)
    if model.n_jobs is not None and model.n_jobs != -1:
        check_integer("n_jobs", model.n_jobs, 1)
    if is_auto(model):
        _check_auto(model)
    else:
        check_integer("n_components", model.n_components, 1)
    if minibatches(model) is not None and model.n_init != 1:
        raise ValueError(f'Expected n_init=1 with method="minibatch"; got {model.n_init!r}.')


def _check_method(method: Any) -> None:
    if not isinstance(method, Mapping):
        check_choice("method", method, METHODS)
        return
    options, known = method.get("minibatch"), [part.name for part in fields(Minibatches)]
    if set(method) != {"minibatch"} or not isinstance(options, Mapping):
        raise ValueError(
            'Expected method as a name, or as {"minibatch": {"epochs": 50}} with options of '
            f"minibatches; got {method!r}."
        )
    for name, value in options.items():
        check_choice("an option of minibatches", name, known)
        if name == "learning_rate":
            check_number(name, value, 0)
        else:
            check_integer(name, value, 1)


def _check_parts(model: Any) -> None:
    """Raise unless ``init`` and ``fixed`` name parts of a mixture."""
    if isinstance(model.init, str):
        check_choice("init", model.init, STARTS)
    elif not isinstance(model.init, GaussianMixture | Mapping):
        raise TypeError(
            f"Expected init as one of {sorted(STARTS)}, a GaussianMixture, or a dict of weights, "
            f"means or covariances; got {type(model.init).__name__}."
        )
    if not isinstance(model.fixed, Mapping | None):
        raise TypeError(
            'Expected fixed as a dict, such as {"means": True}, or None; '
            f"got {type(model.fixed).__name__}."
        )
    for name in ("init", "fixed"):
        value = getattr(model, name)
        for part in value if isinstance(value, Mapping) else ():
            check_choice(f"a part in {name}", part, PARTS)


def is_auto(model: Any) -> bool:
    """Whether the number of components is left to the rows."""
    return isinstance(model.n_components, str) and model.n_components == AUTO


def minibatches(model: Any) -> Minibatches | None:
    """Return how to take minibatches; None for EM."""
    if isinstance(model.method, Mapping):
        return Minibatches(**model.method["minibatch"])
    return Minibatches() if model.method == "minibatch" else None


def _check_auto(model: Any) -> None:
    """Refuse what would be ignored."""
    if minibatches(model) is not None:
        raise ValueError(
            'Expected n_components as a number with method="minibatch"; got "auto". Give one.'
        )
    for name, plain in IGNORED_BY_AUTO.items():
        given = getattr(model, name)
        if given != plain:
            raise ValueError(
                f'Expected {name}={plain!r} with n_components="auto", which tries its own; '
                f"got {given!r}. Leave it out, or give n_components."
            )
    if not isinstance(model.init, str):
        raise ValueError(
            'Expected init as a name with n_components="auto", which tries several numbers; got a '
            "mixture. Leave it out, or give n_components."
        )


def threads(model: Any) -> int | None:
    """Turn ``n_jobs`` into a number of threads; None for one per processor."""
    return model.n_jobs if model.n_jobs is not None and model.n_jobs > 0 else None


def as_settings(model: Any, n_components: int) -> FitSettings:
    """Turn an estimator's parameters into the settings of a fit."""
    fixed = model.fixed or {}
    return FitSettings(
        n_components=n_components,
        floor=float(model.floor),
        init=model.init if isinstance(model.init, str) else STARTS[0],
        stopping=Stopping(model.tol, model.max_iter, model.method == "anderson", threads(model)),
        fixed=tuple(_flags(fixed.get(part, False), n_components, part) for part in PARTS),
    )


def _flags(value: Any, n_components: int, part: str) -> BoolArray:
    flags = np.asarray(value)
    if flags.dtype != bool or flags.shape not in ((), (1,), (n_components,)):
        raise ValueError(
            f'Expected fixed["{part}"] as a boolean, or one for each of {n_components} components; '
            f"got {value!r}."
        )
    return flags


@dataclass(frozen=True)
class Start:
    """What is given of a start; None for what is not."""

    weights: Array | None = None
    means: Array | None = None
    covariances: Array | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing is given."""
        return self.weights is None and self.means is None and self.covariances is None

    @property
    def whole(self) -> bool:
        """Whether everything is given."""
        return not any(part is None for part in (self.weights, self.means, self.covariances))

    def complete(self, other: GaussianMixture) -> GaussianMixture:
        """Fill in from another mixture."""
        return GaussianMixture(
            other.weights if self.weights is None else self.weights,
            other.means if self.means is None else self.means,
            other.covariances if self.covariances is None else self.covariances,
        )


def given_start(model: Any, n_components: int, dim: int) -> Start:
    """Check the start that a user gives."""
    given: Mapping[str, Any] = {}
    if isinstance(model.init, GaussianMixture):
        given = {part: getattr(model.init, part) for part in PARTS}
    elif isinstance(model.init, Mapping):
        given = model.init
    sizes = (n_components,), (n_components, dim), (n_components, dim, dim)
    arrays = [
        None if given.get(part) is None else _part(given[part], part, shape)
        for part, shape in zip(PARTS, sizes, strict=True)
    ]
    weights, means, covariances = arrays
    if weights is not None:
        if (weights < 0).any() or not weights.sum() > 0:
            raise ValueError(
                'Expected init["weights"] of at least 0, with a positive sum; got others.'
            )
        weights = weights / weights.sum()
    if covariances is not None:
        _check_covariances(covariances)
    return Start(weights, means, covariances)


def _part(value: Any, part: str, shape: tuple[int, ...]) -> Array:
    array = as_floats(value, f'init["{part}"]')
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(
            f'Expected init["{part}"] as finite numbers of shape {shape}; got {array.shape}.'
        )
    return array.copy()


def _check_covariances(covariances: Array) -> None:
    size = np.abs(covariances).max((1, 2), keepdims=True)
    uneven = np.abs(covariances - np.swapaxes(covariances, 1, 2)) > 1e-6 * size
    low = np.linalg.eigvalsh(covariances)[:, 0] < -1e-7 * size[:, 0, 0]
    bad = np.flatnonzero(uneven.any((1, 2)) | low)
    if len(bad):
        raise ValueError(
            'Expected init["covariances"] symmetric and positive semi-definite; '
            f"got another for component {bad[0]}."
        )


def describe_average(table: dict[str, AnyArray], n_folds: int) -> str:
    """Say in one sentence what an average without each fold is made of, and what was tried."""
    share, chosen = table["share"], table["chosen"]
    counts = np.unique(table["n_components"][chosen])
    used = np.unique(table["floor"][chosen])
    shrunken = share[table["shrinkage"] > 0].sum()
    words = f"Average of Gaussian mixtures with {_listed(counts)} "
    words += f"component{'s' if counts[-1] > 1 else ''} and floor{'s' if len(used) > 1 else ''} "
    words += f"{_listed(used)}, without each of {n_folds} folds; "
    words += f"tried were {_listed(np.unique(table['n_components']))}"
    if shrunken > 0:
        words += f". Rows are few: in {shrunken:.0%} of it covariances are shrunk towards those "
        words += "of independent columns"
    return f"{words}.{who_chose(table)}"


def _listed(values: AnyArray) -> str:
    *first, last = (f"{value:g}" for value in values)
    return f"{', '.join(first)} and {last}" if first else last
