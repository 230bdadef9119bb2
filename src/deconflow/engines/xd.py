"""The engine of XDGMM: Extreme Deconvolution."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from deconflow._types import AnyArray, Array, BoolArray, IntArray
from deconflow.checks import as_floats, check_choice, check_integer, check_number, warn_caller
from deconflow.core import EVERYTHING, Run
from deconflow.engines.shared import Engine, beyond_sample, fit_stream
from deconflow.fits import MixtureFit, Replicates
from deconflow.mixtures import GaussianMixture, mix
from deconflow.observations import Observations
from deconflow.xd import (
    FITTING,
    N_FOLDS,
    STARTS,
    Adam,
    FitSettings,
    Minibatches,
    PreparedData,
    Stopping,
    fit_averaged,
    fit_minibatch,
    lay_out,
    row_weights,
    who_chose,
)

METHODS = ("anderson", "em", "minibatch")
#: Parts of a mixture, by the names that ``init`` and ``fixed`` have for them.
PARTS = ("weights", "means", "covariances")
AUTO = "auto"
#: What these settings decide themselves, or have no use for.
DECIDED_BY: dict[str, dict[str, Any]] = {
    'n_components="auto"': {"floor": 0.0, "n_init": 1, "fixed": None},
    'method="minibatch"': {"n_init": 1},
}
#: Parameters about these parts: their kinds, and what they are in words.
OF_PARTS: dict[str, tuple[Any, str]] = {
    "init": (
        str | GaussianMixture | Mapping,
        f"one of {sorted(STARTS)}, a GaussianMixture, or a dict of weights, means or covariances",
    ),
    "fixed": (Mapping | None, 'a dict, such as {"means": True}, or None'),
}


@dataclass(frozen=True)
class XDSolution:
    """Mixtures that are averaged, and how they were fitted.

    Attributes
    ----------
    mixtures : list of GaussianMixture
        One for each fold that is left out; a single one without an average.
    converged : bool
        Whether all of them converged.
    n_iter : int
        Number of passes over the rows.
    log_likelihood : float
        Mean log-likelihood of the rows; of an average that of the rows left out.
    history : list of float
        The same for every step.
    table : dict of arrays
        What was tried, and its share; empty for a single fit.
    images : int
        Mirror images of every row among the fitted rows, with the row itself.
    """

    mixtures: list[GaussianMixture]
    converged: bool
    n_iter: int
    log_likelihood: float
    history: list[float]
    table: dict[str, AnyArray] = field(default_factory=dict)
    images: int = 1

    def density(self, names: list[str], threads: int | None) -> MixtureFit:
        """Return the average, with its parts as replicates."""
        density = MixtureFit(self.mixtures, names, threads)
        parts = density.averaged()
        if parts:
            density.replicates = Replicates(parts, "folds")
        return density

    @property
    def counts(self) -> IntArray:
        """Number of components of each mixture; a component and its mirror images are one."""
        images = self.images if len(self.mixtures) == 1 else 1
        return np.array([each.n_components // images for each in self.mixtures])

    @property
    def n_components(self) -> int:
        """The most frequent number of components."""
        return int(np.bincount(self.counts).argmax())

    def words(self) -> str:
        """Return what was fitted, and what it was chosen from."""
        if len(self.mixtures) > 1:
            return _words_of_average(self.table, len(self.mixtures), self.images)
        count = self.n_components
        return f"Gaussian mixture with {count} component{'s' if count > 1 else ''}."

    def attributes(self) -> dict[str, Any]:
        """Return what XDGMM shows; mirror images are not shown as components."""
        shown = {
            "mixtures_": self.mixtures,
            "component_counts_": self.counts,
            "n_components_": self.n_components,
            "converged_": self.converged,
            "n_iter_": self.n_iter,
            "lower_bound_": self.log_likelihood,
            "lower_bounds_": np.array(self.history),
        }
        if self.images == 1:
            whole = mix(self.mixtures)
            shown |= {f"{part}_": getattr(whole, part) for part in PARTS}
        return shown | ({"selection_": self.table} if self.table else {})


class XD(Engine):
    """Extreme Deconvolution with the settings of an estimator."""

    name = "XDGMM"
    takes = EVERYTHING
    solution = XDSolution

    def __init__(self, settings: Any) -> None:
        self.settings, self.batches = settings, minibatches(settings)
        self.auto = isinstance(settings.n_components, str)
        if not isinstance(settings.init, str) or settings.fixed is not None:
            # both are in the units of rows that these two would change
            self.takes = EVERYTHING - {"bounds", "covariates"}
            self.name = "init or fixed"

    def fit(self, rows: Observations, run: Run) -> XDSolution:
        """Fit mixtures to rows; of a stream, whose sample these are, to all its rows."""
        if run.beyond is not None and self.batches is not None:
            raise ValueError(
                "Expected method='anderson' with rows beyond memory; got "
                f"{self.settings.method!r}. Leave it out."
            )
        several = self.auto and (len(rows) > 1 or run.beyond is not None)
        rng = run.generator()
        if run.beyond is not None:
            rng = np.random.RandomState(run.stream_seed())
        found = (self._climb if several else self._single)(rows, run, rng)
        self._check(found)
        return found

    def _single(self, rows: Observations, run: Run, rng: np.random.RandomState) -> XDSolution:
        """Fit one mixture."""
        # With bounds every component has a mirror image, which is a component of the same fit.
        count = (1 if self.auto else int(self.settings.n_components)) * rows.images
        settings, start = self._settings(count, run), self._start(count, rows.latent_dim)
        if start:
            settings = replace(settings, complete=lambda other: replace(other, **start))
        n_init = 1 if len(start) == len(PARTS) else self.settings.n_init
        if run.beyond is not None:
            found = fit_stream(rows, settings, n_init, rng, run)
        elif self.batches is not None:
            adam = Adam.start(rows, settings, rng)
            found = fit_minibatch(adam, rows, settings.stopping, self.batches, rng, run.progress)
        else:
            run.progress.begin(FITTING)
            found = PreparedData(rows).fit_from([None] * n_init, settings, rng)[0]
        return XDSolution(
            [found.mixture], found.converged, found.n_iter, found.log_likelihood,
            list(found.history), images=rows.images,
        )  # fmt: skip

    def _climb(self, rows: Observations, run: Run, rng: np.random.RandomState) -> XDSolution:
        """Leave the number of components and the floor to the rows."""
        beyond = beyond_sample(rows, N_FOLDS, run)
        lay_out(rows)  # so that an error counts the rows of all data, not of a fold
        fit = fit_averaged(rows, self._settings(1, run), rng, progress=run.progress, **beyond)
        value = float(np.average(fit.held_out, weights=row_weights(rows)))
        return XDSolution(
            list(fit.mixtures), fit.converged, fit.n_iter, value, [value], fit.table, rows.images
        )

    def _settings(self, count: int, run: Run) -> FitSettings:
        """Return the settings of a single fit."""
        given, fixed = self.settings, self.settings.fixed or {}
        return FitSettings(
            n_components=count,
            floor=float(given.floor),
            init=given.init if isinstance(given.init, str) else STARTS[0],
            stopping=Stopping(given.tol, given.max_iter, given.method == "anderson", run.threads),
            fixed=tuple(_flags(fixed.get(part, False), count, part) for part in PARTS),
        )

    def _start(self, count: int, dim: int) -> dict[str, Array]:
        """Return the parts of a start that are given, checked."""
        init = self.settings.init
        if isinstance(init, GaussianMixture):
            init = {part: getattr(init, part) for part in PARTS}
        given = init if isinstance(init, Mapping) else {}
        shapes = zip(PARTS, ((count,), (count, dim), (count, dim, dim)), strict=True)
        return {p: _part(given[p], p, shape) for p, shape in shapes if given.get(p) is not None}

    def _check(self, found: XDSolution) -> None:
        """Raise for steps that led nowhere; warn where they had not ended."""
        arrays = [getattr(each, part) for each in found.mixtures for part in PARTS]
        if not all(np.isfinite(array).all() for array in arrays):
            raise ValueError(
                "Expected steps that lead to finite weights, means and covariances; got NaN or "
                "inf. Lower learning_rate, set a floor, or look for rows far from all others."
            )
        if not found.converged and self.settings.tol > 0:
            advice = (
                f"EM did not converge in {self.settings.max_iter} steps. Raise max_iter or tol, or "
                "set a floor."
            )
            if self.batches is not None:
                advice = (
                    f"Minibatches still gained after {self.batches.epochs} epochs. Raise epochs."
                )
            warn_caller(advice, ConvergenceWarning)


def check_settings(model: Any) -> None:
    """Raise where parameters make no sense together, or name parts that there are not."""
    check_number("floor", model.floor, 0)
    if isinstance(model.method, Mapping):
        _check_minibatches(model.method)
    else:
        check_choice("method", model.method, METHODS)
    if isinstance(model.init, str):
        check_choice("init", model.init, STARTS)
    for name, (kinds, wanted) in OF_PARTS.items():
        value = getattr(model, name)
        if not isinstance(value, kinds):
            raise TypeError(f"Expected {name} as {wanted}; got {type(value).__name__}.")
        for part in value if isinstance(value, Mapping) else ():
            check_choice(f"a part in {name}", part, PARTS)
    auto = isinstance(model.n_components, str) and model.n_components == AUTO
    batches = minibatches(model) is not None
    if not auto:
        check_integer("n_components", model.n_components, 1)
    elif batches or not isinstance(model.init, str):
        raise ValueError(
            "Expected n_components as a number with minibatches, or with a mixture to start from; "
            'got "auto". Give one.'
        )
    for setting, there in zip(DECIDED_BY, (auto, batches), strict=True):
        for name, plain in DECIDED_BY[setting].items() if there else ():
            if getattr(model, name) != plain:
                raise ValueError(
                    f"Expected {name}={plain!r} with {setting}; got {getattr(model, name)!r}. "
                    "Leave it out."
                )


def _check_minibatches(method: Mapping[str, Any]) -> None:
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


def minibatches(model: Any) -> Minibatches | None:
    """Return how to take minibatches; None for EM."""
    if isinstance(model.method, Mapping):
        return Minibatches(**model.method["minibatch"])
    return Minibatches() if model.method == "minibatch" else None


def _flags(value: Any, n_components: int, part: str) -> BoolArray:
    flags = np.asarray(value)
    if flags.dtype != bool or flags.shape not in ((), (1,), (n_components,)):
        raise ValueError(
            f'Expected fixed["{part}"] as a boolean, or one for each of {n_components} components; '
            f"got {value!r}."
        )
    return flags


def _part(value: Any, part: str, shape: tuple[int, ...]) -> Array:
    """Check one part of a start."""
    array = as_floats(value, f'init["{part}"]')
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(
            f'Expected init["{part}"] as finite numbers of shape {shape}; got {array.shape}.'
        )
    if part == "weights":
        if (array >= 0).all() and array.sum() > 0:
            return array / array.sum()
        raise ValueError('Expected init["weights"] of at least 0, with a positive sum; got others.')
    if part == "covariances":
        size = np.abs(array).max((1, 2), keepdims=True)
        uneven = np.abs(array - np.swapaxes(array, 1, 2)) > 1e-6 * size
        low = np.linalg.eigvalsh(array)[:, 0] < -1e-7 * size[:, 0, 0]
        bad = np.flatnonzero(uneven.any((1, 2)) | low)
        if len(bad):
            raise ValueError(
                'Expected init["covariances"] symmetric and positive semi-definite; '
                f"got another for component {bad[0]}."
            )
    return array.copy()


def _words_of_average(table: dict[str, AnyArray], n_folds: int, images: int) -> str:
    """Return what an average without each fold is made of, and what was tried, in a sentence."""
    share, chosen = table["share"], table["chosen"]
    counts = np.unique(table["n_components"][chosen])
    used = np.unique(table["floor"][chosen])
    shrunken = share[table["shrinkage"] > 0].sum()
    images_too = " (with mirror images)" if images > 1 else ""
    shrinking = (
        f". Rows are few: in {shrunken:.0%} of it covariances are shrunk towards those of "
        "independent columns"
    )
    return (
        f"Average of Gaussian mixtures with {_listed(counts)} "
        f"component{'' if counts[-1] == 1 else 's'}{images_too} "
        f"and floor{'' if len(used) == 1 else 's'} {_listed(used)}, without each of {n_folds} "
        f"folds; tried were {_listed(np.unique(table['n_components']))}"
        f"{shrinking if shrunken > 0 else ''}.{who_chose(table)}"
    )


def _listed(values: AnyArray) -> str:
    *first, last = (f"{value:g}" for value in values)
    return f"{', '.join(first)} and {last}" if first else last
