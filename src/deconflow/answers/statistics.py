"""The answer in a few numbers: mean, spread, quantiles and correlations; Gaussians of a mixture."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from deconflow._types import Array
from deconflow.fits import (
    FINE_POINTS,
    POINTS,
    BoundedFit,
    FittedDensity,
    GivenFit,
    MixtureFit,
    PartsFit,
    Replicates,
    fine_grid,
    quantiles_of,
)
from deconflow.mixtures import GaussianMixture

#: Draws for moments that are no closed forms.
DRAWS = 20_000
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
NO_ERRORS = (
    "no standard errors: the model keeps no other fits or draws to compare its answer with; "
    "Deconvolver, BayesianXDGMM, LogSplineDeconvolver and XDGMM with folds do"
)
#: Densities whose Gaussians are not shown.
OTHERS: dict[type, str] = {
    GivenFit: "a density given covariates",
    BoundedFit: "one that is folded at bounds",
}
#: So many Gaussians are still read one by one.
FEW = 6


class Points:
    """Means and covariances of a density and its replicates: closed forms, else weighted points.

    The points are draws of the density, and its atoms; for another density the same draws are
    weighed by the ratio of the two. So chance is the same for all, and cancels in their
    differences.

    Parameters
    ----------
    density
        Whose points these are. Its replicates have the same atoms, with the same shares.
    """

    def __init__(self, density: FittedDensity) -> None:
        self.density, self.own = density, continuous_part(density)

    @cached_property
    def draws(self) -> Array:
        """Draws of the continuous part."""
        drawn: Array = self.own.sample(DRAWS, 0)
        return drawn[np.isfinite(drawn).all(1)]  # a flow may leave the finite

    def moments(self, answer: FittedDensity) -> tuple[Array, Array]:
        """Return mean ``(D,)`` and covariance ``(D, D)`` of the density, or of a replicate."""
        mixture = answer.as_mixture()
        if mixture is not None:
            return mixture.mean, mixture.covariance
        points, weights = self.draws, np.ones(len(self.draws))
        if answer is not self.density:
            ratio = continuous_part(answer).log_prob(points) - self._log_p
            weights = np.exp(ratio - ratio.max())
        weights = weights / weights.sum()
        if isinstance(self.density, PartsFit):
            shares = self.density.atom_weights
            weights = np.concatenate([weights * (1 - shares.sum()), shares])
            points = np.concatenate([points, self.density.atoms])
        mean = np.average(points, axis=0, weights=weights)
        return mean, np.atleast_2d(np.cov(points.T, aweights=weights, bias=True))

    @cached_property
    def _log_p(self) -> Array:
        return np.asarray(self.own.log_prob(self.draws), dtype=np.float64)


def continuous_part(answer: Any) -> Any:
    """Return a density without its atoms, if it has some."""
    return answer.inner if isinstance(answer, PartsFit) else answer


@dataclass(frozen=True)
class Figures:
    """Mean, spread, quantiles and correlations of columns; or the standard errors of these.

    Attributes
    ----------
    mean, sd : array
        ``(D,)``.
    quantiles : array
        ``(5, D)``: those of 5, 25, 50, 75 and 95 %.
    correlation : array
        ``(D, D)``; NaN for a column that does not vary.
    """

    mean: Array
    sd: Array
    quantiles: Array
    correlation: Array

    @classmethod
    def of_rows(cls, w: Array, weights: Array | None = None) -> "Figures":
        """Return those of measurements ``(N, D)``, by the values that are not NaN.

        ``weights`` ``(N,)`` say how much each row counts.
        """
        dim = w.shape[1]
        if weights is not None:
            w, weights = w[weights > 0], weights[weights > 0]
        mean, sd, *quantiles = np.array([_of_column(w[:, d], weights) for d in range(dim)]).T
        correlation = np.eye(dim)
        for a, b in combinations(range(dim), 2):
            correlation[a, b] = correlation[b, a] = _correlation(w[:, [a, b]], weights)
        return cls(mean, sd, np.stack(quantiles), correlation)

    @classmethod
    def of_table(cls, table: Array) -> "Figures":
        """Return the figures of which the lines are these ``(7 + D, D)``, one below the other."""
        return cls(table[0], table[1], table[2 : -table.shape[1]], table[-table.shape[1] :])

    def each(self, names: list[str]) -> Iterator[tuple[str, str, float, float]]:
        """Go through all: of which columns, which figure, its value, and its unit."""
        for d, name in enumerate(names):
            unit = float(self.sd[d])
            yield name, "mean", float(self.mean[d]), unit
            yield name, "spread", unit, unit
            for share, values in zip(SHARES, self.quantiles, strict=True):
                yield name, f"{100 * share:g} % quantile", float(values[d]), unit
        for a, b in combinations(range(len(names)), 2):
            yield f"{names[a]}, {names[b]}", "correlation", float(self.correlation[a, b]), 1.0


@dataclass(frozen=True, repr=False)
class Statistics:
    """The truth in a few numbers, with standard errors, beside what was measured.

    Means, spreads and correlations are closed forms where the density is a mixture of Gaussians;
    else they come from 20,000 draws, and the atoms with their shares. Quantiles are those that
    ``band`` gives.

    Attributes
    ----------
    names : list of str
        Names of the columns.
    truth : Figures
        ``mean``, ``sd``, ``quantiles`` (5, 25, 50, 75 and 95 %) and ``correlation`` of the truth.
    errors : Figures or None
        Their standard errors; None if the model has no replicates.
    measured : Figures or None
        The same figures of the measurements, if these were given.
    how : str
        Where the errors come from, in words.

    Examples
    --------
    >>> from deconflow import XDGMM
    >>> w = np.random.default_rng(0).normal(size=(2000, 1))
    >>> model = XDGMM("auto", random_state=0).fit(w, noise=[0.6])
    >>> found = model.statistics(w)
    >>> found.truth.sd.round(1), found.errors.sd.round(2), found.measured.sd.round(1)
    (array([0.8]), array([0.01]), array([1.]))
    """

    names: list[str]
    truth: Figures
    errors: Figures | None
    measured: Figures | None
    how: str

    def in_rows(self) -> list[list[str]]:
        """Return a row per figure: columns, figure, deconvolved with its error, and measured.

        What has no error is rounded to hundredths of the spread.
        """
        truth = list(self.truth.each(self.names))
        nothing = [(name, figure, np.nan, np.nan) for name, figure, *_ in truth]
        errors = nothing if self.errors is None else self.errors.each(self.names)
        measured = nothing if self.measured is None else self.measured.each(self.names)
        return [
            [name, figure, told(v, error, unit), told(w, np.nan, w_unit)]
            for (name, figure, v, unit), (*_, error, _), (*_, w, w_unit) in zip(
                truth, errors, measured, strict=True
            )
        ]

    def in_words(self) -> str:
        """Say it line by line."""
        count = 3 if self.measured is None else 4
        heads = ["column", "figure", "deconvolved", "measured"]
        rows = [row[:count] for row in (heads, *self.in_rows())]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([*lines, f"({self.how})"])

    __str__ = in_words

    def __repr__(self) -> str:
        return f"Statistics({', '.join(self.names)})"


def statistics_of(
    density: FittedDensity, w: Array | None, weights: Array | None = None
) -> Statistics:
    """Put a density in a few numbers; see :meth:`DensityEstimator.statistics`."""
    points, shares = Points(density), np.array(SHARES)
    grids = [fine_grid(density.marginal([d]), POINTS, FINE_POINTS) for d in range(density.dim)]

    def figures(answer: FittedDensity) -> Array:
        quantiles = [
            quantiles_of(answer.marginal([d]), shares, grid) for d, grid in enumerate(grids)
        ]
        mean, covariance = points.moments(answer)
        sd = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        size = np.where(sd > 0, sd, np.nan)  # one after the other: variances may be huge, or tiny
        correlation = (covariance / size[:, None] / size).clip(-1.0, 1.0)
        return np.vstack([mean, sd, np.transpose(quantiles), correlation])

    value, others = figures(density), density.replicates
    errors, how = None, NO_ERRORS
    if others is not None:
        errors = Figures.of_table(others.error(value, figures))
        how = f"standard errors from {others.in_words()}"
        if isinstance(density, PartsFit) and len(density.atoms):
            how += "; the shares at atoms are taken as known"
    measured = None if w is None else Figures.of_rows(w, weights)
    return Statistics(list(density.names), Figures.of_table(value), errors, measured, how)


def _of_column(values: Array, weights: Array | None) -> Array:
    """Mean, spread and quantiles of the values that are not NaN; NaN if there are none."""
    seen = ~np.isnan(values)
    values, weights = values[seen], None if weights is None else weights[seen]
    if not len(values):
        return np.full(2 + len(SHARES), np.nan)
    mean = np.average(values, weights=weights)
    sd = np.sqrt(np.average((values - mean) ** 2, weights=weights))
    if weights is None:
        return np.array([mean, sd, *np.quantile(values, SHARES)])
    order = np.argsort(values)
    below = np.cumsum(weights[order])  # numpy < 2 has no quantiles with weights
    places = np.searchsorted(below, np.array(SHARES) * below[-1])
    return np.array([mean, sd, *values[order][places]])


def _correlation(pairs: Array, weights: Array | None) -> float:
    """Correlation of the pairs ``(N, 2)`` that are complete; NaN if they do not vary."""
    complete = ~np.isnan(pairs).any(1)
    whole = pairs[complete]
    if len(whole) < 2 or not (np.ptp(whole, axis=0) > 0).all():
        return float("nan")
    covariance = np.cov(whole.T, aweights=None if weights is None else weights[complete], ddof=0)
    return float(covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]))


@dataclass(frozen=True, repr=False)
class Components:
    """Gaussians of a mixture, the heaviest first; of an average of fits, their mean.

    Attributes
    ----------
    names : list of str
        Names of the columns.
    values : array
        ``(K, P)``: weight, means ``(D,)``, standard deviations ``(D,)`` and the correlations of
        the pairs of columns, of each component.
    errors : array or None
        Standard errors of these, from fits without a fold each; None for a single fit.
    n_fits : int
        How many fits are averaged.
    """

    names: list[str]
    values: Array
    errors: Array | None
    n_fits: int

    @property
    def heads(self) -> list[str]:
        """What the columns of :meth:`in_rows` are."""
        each = [f"{figure} of {name}" for figure in ("mean", "spread") for name in self.names]
        pairs = [f"correlation of {a}, {b}" for a, b in combinations(self.names, 2)]
        return ["component", "weight", *each, *pairs]

    def in_rows(self) -> list[list[str]]:
        """Return a row per component: its number, then its numbers."""
        dim = len(self.names)
        units = np.ones_like(self.values)
        units[:, 1 : 1 + 2 * dim] = np.tile(self.values[:, 1 + dim : 1 + 2 * dim], 2)
        errors = np.full_like(self.values, np.nan) if self.errors is None else self.errors
        return [
            [str(k + 1), *map(told, values, own, unit)]
            for k, (values, own, unit) in enumerate(zip(self.values, errors, units, strict=True))
        ]

    def in_words(self) -> str:
        """Say it line by line, one for each number."""
        rows = zip(self.heads, *self.in_rows(), strict=True)
        width = max(map(len, self.heads)) + 2
        return "\n".join(
            f"{head:<{width}}" + "".join(f"{cell:<20}" for cell in cells).rstrip()
            for head, *cells in rows
        )

    __str__ = in_words

    def __repr__(self) -> str:
        return f"Components({len(self.values)} of {', '.join(self.names)})"


def components_of(model: Any) -> Components:
    """Return the components of a fitted mixture, if they are few.

    Of an average of fits of the same size, each component of a fit is matched with the nearest of
    the first (by Bhattacharyya's distance, all at once), and means over the fits are returned.
    Beside atoms they are those of the rest.

    Parameters
    ----------
    model
        A fitted estimator.
    """
    own = continuous_part(model.density_)
    if not isinstance(own, MixtureFit):
        other = "an average with other densities" if own.averaged() else "another density"
        raise ValueError(
            "Expected a mixture of Gaussians, to show its parts; got "
            f"{OTHERS.get(type(own), other)}."
        )
    sizes = sorted({member.n_components for member in own.members})
    if len(sizes) > 1 or sizes[0] > FEW:
        size = " to ".join(str(size) for size in dict.fromkeys([sizes[0], sizes[-1]]))
        fits = f"{len(own.members)} fits of " if len(own.members) > 1 else ""
        raise ValueError(
            f"Expected fits of the same number of components, at most {FEW}, to show them one by "
            f"one; got {fits}{size}."
        )
    numbers = partial(_numbers, first=own.members[0])
    values = np.mean([*map(numbers, own.members)], axis=0)
    heaviest, errors = np.argsort(-values[:, 0], kind="stable"), None
    if own.replicates is not None and own.replicates.kind == "folds":
        folds = Replicates(own.averaged(), "folds")
        errors = folds.error(values, lambda each: numbers(each.as_mixture()))[heaviest]
    return Components(list(own.names), values[heaviest], errors, len(own.members))


def _numbers(mixture: Any, first: GaussianMixture) -> Array:
    """Weights, means, spreads and correlations ``(K, P)``, in the order of the first fit."""
    # By Bhattacharyya's distance of each Gaussian of one from each of the other.
    middle = 0.5 * (first.covariances[:, None] + mixture.covariances[None])
    apart = first.means[:, None] - mixture.means[None]
    turned = np.linalg.solve(middle, apart[..., None])[..., 0]
    logs = [np.linalg.slogdet(each)[1] for each in (middle, first.covariances, mixture.covariances)]
    volume = 0.5 * (logs[0] - 0.5 * (logs[1][:, None] + logs[2][None]))
    order = linear_sum_assignment(0.125 * (apart * turned).sum(-1) + volume)[1]
    parts = (mixture.weights, mixture.means, mixture.covariances)
    weights, means, covariances = (part[order] for part in parts)
    sd = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    pairs = [
        covariances[:, a, b] / sd[:, a] / sd[:, b] for a, b in combinations(range(mixture.dim), 2)
    ]
    return np.column_stack([weights, means, sd, *pairs])


def told(value: float, error: float, unit: float | None = None) -> str:
    """Write a number to two digits of its error; without one, to hundredths of a unit.

    Examples
    --------
    >>> told(2.01234, 0.0345), told(1234.5, 21.0), told(0.5, float("nan"))
    ('2.012 +- 0.035', '1234 +- 21', '0.5')
    >>> told(1234.5678, float("nan"), 2.0)
    '1234.57'
    """
    if np.isnan(value):
        return "-"
    if not error > 0:
        if unit is None:
            return f"{value:.4g}"
        digits = 2 - int(np.floor(np.log10(unit))) if unit > 0 else 12
        return f"{round(float(value), digits) + 0.0:.12g}"
    digits = 1 - int(np.floor(np.log10(error)))
    if not -3 <= digits <= 8:
        return f"{value:.6g} +- {error:.2g}"
    return f"{value:.{max(0, digits)}f} +- {error:.{max(0, digits)}f}"
