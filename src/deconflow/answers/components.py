"""The Gaussians of a mixture as a table, where they are few; those of an average are matched."""

from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from deconflow._types import Array
from deconflow.answers.moments import continuous_part
from deconflow.answers.regression import told
from deconflow.fits import BoundedFit, FittedDensity, GivenFit, MixtureFit, Replicates
from deconflow.mixtures import GaussianMixture

#: So many Gaussians are still read one by one.
FEW = 6


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
        spreads = self.values[:, 1 + dim : 1 + 2 * dim]
        ones = np.ones((len(self.values), 1))
        units = np.hstack([ones, spreads, spreads, np.ones_like(self.values[:, 1 + 2 * dim :])])
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

    def __str__(self) -> str:
        return self.in_words()

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
        raise ValueError(f"Expected a mixture of Gaussians, to show its parts; got {_words(own)}.")
    sizes = sorted({member.n_components for member in own.members})
    if len(sizes) > 1 or sizes[0] > FEW:
        size = " to ".join(str(size) for size in dict.fromkeys([sizes[0], sizes[-1]]))
        fits = f"{len(own.members)} fits of " if len(own.members) > 1 else ""
        raise ValueError(
            f"Expected fits of the same number of components, at most {FEW}, to show them one by "
            f"one; got {fits}{size}."
        )
    numbers = partial(_numbers, first=own.members[0])
    values = np.mean([numbers(member) for member in own.members], axis=0)
    heaviest, errors = np.argsort(-values[:, 0], kind="stable"), None
    if own.replicates is not None and own.replicates.kind == "folds":
        folds = Replicates(own.averaged(), "folds")
        errors = folds.error(values, lambda each: numbers(each.as_mixture()))[heaviest]
    return Components(list(own.names), values[heaviest], errors, len(own.members))


def _numbers(mixture: GaussianMixture | None, first: GaussianMixture) -> Array:
    """Weights, means, spreads and correlations ``(K, P)``, in the order of the first fit."""
    assert mixture is not None
    order = linear_sum_assignment(_distances(first, mixture))[1]
    weights, means = mixture.weights[order], mixture.means[order]
    covariances = mixture.covariances[order]
    sd = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    pairs = [
        covariances[:, a, b] / sd[:, a] / sd[:, b] for a, b in combinations(range(mixture.dim), 2)
    ]
    return np.column_stack([weights, means, sd, *pairs])


def _distances(one: GaussianMixture, other: GaussianMixture) -> Array:
    """Bhattacharyya's distance ``(K, K)`` of each Gaussian of one from each of the other."""
    middle = 0.5 * (one.covariances[:, None] + other.covariances[None])
    apart = one.means[:, None] - other.means[None]
    turned = np.linalg.solve(middle, apart[..., None])[..., 0]
    logs = [np.linalg.slogdet(each)[1] for each in (middle, one.covariances, other.covariances)]
    volume = 0.5 * (logs[0] - 0.5 * (logs[1][:, None] + logs[2][None]))
    return np.asarray(0.125 * (apart * turned).sum(-1) + volume, dtype=np.float64)


def _words(density: FittedDensity) -> str:
    """Say what else a density is."""
    if isinstance(density, GivenFit):
        return "a density given covariates"
    if isinstance(density, BoundedFit):
        return "one that is folded at bounds"
    return "an average with other densities" if density.averaged() else "another density"
