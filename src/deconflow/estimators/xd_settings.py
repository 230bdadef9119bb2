"""What XDGMM's parameters mean: checked, and turned into settings and a start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array
from deconflow.checks import as_floats, check_choice, check_integer
from deconflow.mixtures import GaussianMixture
from deconflow.xd import (
    STARTS,
    STARTS_TO_COMPARE,
    FitSettings,
    Stopping,
    who_chose,
)

CHOICES = {
    "method": ("anderson", "em", "minibatch"),
    "init": STARTS,
    "average_over": ("starts", "folds"),
}
COUNTS = {
    "n_init": 1, "max_iter": 1, "n_average": 1, "split_merge": 0, "batch_size": 1, "epochs": 1,
}  # fmt: skip


N_FOLDS = 5
"""Unless the user says another number."""
STARTS_GIVEN = ("weights_init", "means_init", "covariances_init")
IGNORED_BY_MINIBATCH = {"regularisation": 0.0, "n_average": 1, "n_init": 1, "split_merge": 0}


AUTO = "auto"
IGNORED_BY_AUTO: dict[str, Any] = {
    "floor": 0.0, "regularisation": 0.0, "n_average": 1, "n_init": 1, "split_merge": 0,
    "weights_init": None, "means_init": None, "covariances_init": None,
    "fixed_weights": None, "fixed_means": None, "fixed_covariances": None, "warm_start": False,
}  # fmt: skip
"""What ``n_components="auto"`` decides itself, or has no use for."""


def several(value: Any) -> Sequence[Any]:
    """One value or several, as a sequence."""
    return [value] if np.ndim(value) == 0 else list(value)


def check_settings(model: Any) -> None:
    """Raise where a parameter makes no sense, before any work."""
    for name, known in CHOICES.items():
        check_choice(name, getattr(model, name), known)
    for name, least in COUNTS.items():
        check_integer(name, getattr(model, name), least)
    auto = is_auto(model)
    counts = [1] if auto else check_counts(model.n_components)
    if not len(several(model.floor)):
        raise ValueError("Expected at least one value of floor; got none.")
    if model.n_jobs is not None and model.n_jobs != -1:
        check_integer("n_jobs", model.n_jobs, 1)
    if auto:
        _check_auto(model)
    _check_combinations(model, counts)
    for name in ("tol", "regularisation", "learning_rate", "floor"):
        given = getattr(model, name)
        for value in several(given) if name == "floor" else [given]:
            if not isinstance(value, Real) or not 0 <= float(value) < np.inf:
                raise ValueError(f"Expected {name} of at least 0; got {value!r}.")
    check_integer("n_folds", model.n_folds, 2)


def is_auto(model: Any) -> bool:
    """Whether the number of components is left to the rows."""
    return isinstance(model.n_components, str) and model.n_components == AUTO


def averages_what_it_compares(model: Any) -> bool:
    """Whether several settings are compared without each fold, and these fits averaged."""
    if is_auto(model) or model.n_average == 1 or model.average_over != "folds":
        return False
    return len(several(model.n_components)) * len(several(model.floor)) > 1


def starts_to_compare(model: Any) -> int:
    """Number of starts of every setting that is averaged over folds."""
    return max(STARTS_TO_COMPARE, model.n_init)


def _check_auto(model: Any) -> None:
    """Refuse what would be ignored."""
    if model.method == "minibatch":
        raise ValueError(
            'Expected n_components as a number with method="minibatch"; got "auto". Give one.'
        )
    for name, plain in IGNORED_BY_AUTO.items():
        given = getattr(model, name)
        if np.ndim(given) > 0 or given != plain:
            raise ValueError(
                f'Expected {name}={plain!r} with n_components="auto", which tries its own; '
                f"got {given!r}. Leave it out, or give n_components."
            )


def check_counts(n_components: Any) -> Sequence[Any]:
    """Return numbers of components, one or several, or raise."""
    counts = several(n_components)
    for count in counts:
        check_integer("n_components", count, 1)
    if not counts:
        raise ValueError("Expected at least one value of n_components; got none.")
    return counts


def _check_combinations(model: Any, counts: Sequence[Any]) -> None:
    """Refuse settings that would be ignored together."""
    given = [name for name in STARTS_GIVEN if getattr(model, name) is not None]
    if len(counts) > 1 and given:
        raise ValueError(f"Expected one n_components with {given[0]}; got {list(counts)}.")
    if averages_what_it_compares(model) and model.n_folds not in (N_FOLDS, model.n_average):
        raise ValueError(
            "Expected n_folds left out where several settings are averaged over folds, since "
            f"n_average is the number of folds; got n_folds={model.n_folds}."
        )
    if model.method != "minibatch":
        return
    for name, plain in IGNORED_BY_MINIBATCH.items():
        if getattr(model, name) != plain:
            raise ValueError(
                f'Expected {name}={plain} with method="minibatch"; got {getattr(model, name)!r}.'
            )


def threads(model: Any) -> int | None:
    """Turn ``n_jobs`` into a number of threads; None for one per processor."""
    return model.n_jobs if model.n_jobs is not None and model.n_jobs > 0 else None


def as_settings(model: Any, n_components: int, floor: float) -> FitSettings:
    """Turn an estimator's parameters into the settings of a fit."""
    stopping = Stopping(
        model.tol,
        model.max_iter,
        model.method == "anderson",
        threads(model),
        penalised=model.regularisation > 0,
    )
    names = ("fixed_weights", "fixed_means", "fixed_covariances")
    fixed = tuple(_flags(getattr(model, name), n_components, name) for name in names)
    return FitSettings(
        n_components=n_components,
        floor=float(floor),
        regularisation=model.regularisation,
        init=model.init,
        split_merge=model.split_merge,
        stopping=stopping,
        fixed=fixed,
    )


def _flags(value: Any, n_components: int, name: str) -> NDArray[np.bool_]:
    flags = np.asarray(False if value is None else value)
    if flags.dtype != bool or flags.shape not in ((), (1,), (n_components,)):
        raise ValueError(
            f"Expected {name} as a boolean, or one for each of {n_components} components; "
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
    shapes = {
        "weights_init": (n_components,),
        "means_init": (n_components, dim),
        "covariances_init": (n_components, dim, dim),
    }
    arrays: list[Array | None] = []
    for name, shape in shapes.items():
        value = getattr(model, name)
        if value is None:
            arrays.append(None)
            continue
        array = as_floats(value, name)
        if array.shape != shape or not np.isfinite(array).all():
            raise ValueError(
                f"Expected {name} as finite numbers of shape {shape}; got {array.shape}."
            )
        arrays.append(array.copy())
    weights, means, covariances = arrays
    if weights is not None:
        if (weights < 0).any() or not weights.sum() > 0:
            raise ValueError(
                "Expected weights_init of at least 0, with a positive sum; got others."
            )
        weights = weights / weights.sum()
    if covariances is not None:
        _check_covariances(covariances)
    return Start(weights, means, covariances)


def _check_covariances(covariances: Array) -> None:
    size = np.abs(covariances).max((1, 2), keepdims=True)
    uneven = np.abs(covariances - np.swapaxes(covariances, 1, 2)) > 1e-6 * size
    low = np.linalg.eigvalsh(covariances)[:, 0] < -1e-7 * size[:, 0, 0]
    bad = np.flatnonzero(uneven.any((1, 2)) | low)
    if len(bad):
        raise ValueError(
            "Expected covariances_init symmetric and positive semi-definite; "
            f"got another for component {bad[0]}."
        )


def describe_average(table: dict[str, NDArray[Any]], n_folds: int, *, floors: bool) -> str:
    """Say in one sentence what an average without each fold is made of, and what was tried.

    With ``floors``, name all of them, if there were several.
    """
    share, chosen = table["share"], table["chosen"]
    counts = np.unique(table["n_components"][chosen])
    used, tried = np.unique(table["floor"][chosen]), np.unique(table["floor"])
    shrunken = share[table["shrinkage"] > 0].sum() if "shrinkage" in table else 0.0
    words = f"Average of Gaussian mixtures with {_listed(counts)} "
    words += f"component{'s' if counts[-1] > 1 else ''} and floor{'s' if len(used) > 1 else ''} "
    words += f"{_listed(used)}, without each of {n_folds} folds; "
    words += f"tried were {_listed(np.unique(table['n_components']))}"
    if floors and len(tried) > 1:
        words += f", with floors {_listed(tried)}"
    if shrunken > 0:
        words += f". Rows are few: in {shrunken:.0%} of it covariances are shrunk towards those "
        words += "of independent columns"
    return f"{words}.{who_chose(table)}"


def _listed(values: NDArray[Any]) -> str:
    *first, last = (f"{value:g}" for value in values)
    return f"{', '.join(first)} and {last}" if first else last
