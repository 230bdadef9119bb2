"""The answer in a few numbers: mean, spread, quantiles and correlations of the truth."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from deconflow._types import Array
from deconflow.answers.moments import Points
from deconflow.answers.regression import told
from deconflow.fits import (
    FINE_POINTS,
    POINTS,
    FittedDensity,
    PartsFit,
    fine_grid,
    quantiles_of,
)

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
HEADS = ["column", "figure", "deconvolved", "measured"]
UNKNOWN = "-"
NO_ERRORS = (
    "no standard errors: the model keeps no other fits or draws to compare its answer with; "
    "Deconvolver, BayesianXDGMM, LogSplineDeconvolver and XDGMM with folds do"
)
KNOWN_ATOMS = "; the shares at atoms are taken as known"


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
    def of_moments(cls, mean: Array, covariance: Array, quantiles: Array) -> "Figures":
        """Make them of a mean, a covariance and quantiles."""
        sd = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        size = np.where(sd > 0, sd, np.nan)  # one after the other: variances may be huge, or tiny
        return cls(mean, sd, quantiles, (covariance / size[:, None] / size).clip(-1.0, 1.0))

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

    @property
    def flat(self) -> Array:
        """All numbers, one after the other."""
        parts = (self.mean, self.sd, self.quantiles, self.correlation)
        return np.concatenate([part.ravel() for part in parts])

    @classmethod
    def from_flat(cls, numbers: Array, dim: int) -> "Figures":
        """Take what :attr:`flat` gave."""
        ends = np.cumsum([dim, dim, len(SHARES) * dim])
        mean, sd, quantiles, correlation = np.split(numbers, ends)
        return cls(mean, sd, quantiles.reshape(-1, dim), correlation.reshape(dim, dim))

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
            [name, figure, _told(v, error, unit), _told(w, np.nan, w_unit)]
            for (name, figure, v, unit), (*_, error, _), (*_, w, w_unit) in zip(
                truth, errors, measured, strict=True
            )
        ]

    def in_words(self) -> str:
        """Say it line by line."""
        rows = [HEADS, *self.in_rows()]
        if self.measured is None:
            rows = [row[:-1] for row in rows]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([*lines, f"({self.how})"])

    def __str__(self) -> str:
        return self.in_words()

    def __repr__(self) -> str:
        return f"Statistics({', '.join(self.names)})"


def statistics_of(
    density: FittedDensity, w: Array | None, weights: Array | None = None
) -> Statistics:
    """Put a density in a few numbers; see :meth:`DensityEstimator.statistics`."""
    points, shares = Points(density), np.array(SHARES)
    grids = [fine_grid(density.marginal([d]), POINTS, FINE_POINTS) for d in range(density.dim)]

    def figures(answer: FittedDensity) -> Array:
        columns = ((answer.marginal([d]), grid) for d, grid in enumerate(grids))
        quantiles = [quantiles_of(column, shares, grid) for column, grid in columns]
        return Figures.of_moments(*points.moments(answer), np.transpose(quantiles)).flat

    value, others = figures(density), density.replicates
    errors, how = None, NO_ERRORS
    if others is not None:
        errors = Figures.from_flat(others.error(value, figures), density.dim)
        atoms = isinstance(density, PartsFit) and len(density.atoms) > 0
        how = f"standard errors from {others.in_words()}{KNOWN_ATOMS if atoms else ''}"
    measured = None if w is None else Figures.of_rows(w, weights)
    truth = Figures.from_flat(value, density.dim)
    return Statistics(list(density.names), truth, errors, measured, how)


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


def _told(value: float, error: float, unit: float) -> str:
    return UNKNOWN if np.isnan(value) else told(value, error, unit)
