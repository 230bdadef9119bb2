r"""What would change in the answer if the errors were smaller or larger than they are said to be.

A working Gaussian mixture is fitted under the errors times 0.8, 1 and 1.2, all from one start; of a
model that averages mixtures, each of these. What is reported are the differences between these
fits, added to the model's own figures: so it matters little how good the working mixture is, and it
costs a few dozen passes over the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.xd import FitSettings, PreparedData, Stopping, fit_exact

FACTORS = (0.8, 1.0, 1.2)
SHARES = (0.1, 0.5, 0.9)
MOST_ROWS, DRAWS = 20_000, 20_000
MOST_MEMBERS, MOST_COMPONENTS = 10, 32
"""Mixtures of a model that are taken as they are, and components of each."""
WORKING = 8
"""Components of a mixture that is fitted to draws of the model."""
STEPS = Stopping(tol=1e-6, max_iter=200, accelerate=True)
FLOOR = 0.02
"""Smallest covariance, in units of the noise: so components do not collapse on the way."""


@dataclass(frozen=True)
class Sensitivity:
    """Figures of the truth under errors times 0.8, 1 and 1.2: axes of length 3 come first.

    Attributes
    ----------
    names : tuple of str
        Names of the columns of the truth.
    factors : tuple of float
        What the errors are multiplied by.
    mean, sd : array
        ``(3, D)``.
    quantiles : array
        ``(3, 3, D)``: those of 10, 50 and 90 % on the second axis.
    correlation : array
        ``(3, D, D)``.
    n_rows : int
        How many rows were used.
    """

    names: tuple[str, ...]
    factors: tuple[float, ...]
    mean: Array
    sd: Array
    quantiles: Array
    correlation: Array
    n_rows: int

    def figures(self) -> Iterator[tuple[str, str, Array, float]]:
        """Go through all: of which columns, which figure, its three values, and their unit."""
        for d, name in enumerate(self.names):
            unit = float(self.sd[1, d])
            yield name, "mean", self.mean[:, d], unit
            yield name, "spread", self.sd[:, d], unit
            for q, share in enumerate(SHARES):
                yield name, f"{100 * share:g} % quantile", self.quantiles[:, q, d], unit
        for a, b in combinations(range(len(self.names)), 2):
            both = f"{self.names[a]}, {self.names[b]}"
            yield both, "correlation", self.correlation[:, a, b], 1.0

    def in_rows(self) -> list[list[str]]:
        """Return a row per figure: columns, figure, its value, and the two changes.

        Values are rounded to hundredths of the spread: less is chance.
        """
        return [
            [
                name,
                figure,
                rounded(now, unit),
                *(rounded(x - now, unit, "+") for x in (low, high)),
            ]
            for name, figure, (low, now, high), unit in self.figures()
        ]

    def in_words(self) -> str:
        """Say it line by line."""
        heads = ("", "", "as they are", "20 % smaller", "20 % larger")
        return "\n".join(
            f"{name:<20}{figure:<16}{now:>16}{low:>16}{high:>16}"
            for name, figure, now, low, high in [heads, *self.in_rows()]
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON."""
        return {
            "names": list(self.names),
            "factors": list(self.factors),
            "mean": self.mean.tolist(),
            "sd": self.sd.tolist(),
            "quantiles": self.quantiles.tolist(),
            "correlation": self.correlation.tolist(),
            "n_rows": self.n_rows,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Sensitivity:
        """Take what :meth:`as_dict` gave."""
        arrays = {k: np.array(values[k]) for k in ("mean", "sd", "quantiles", "correlation")}
        names, factors = tuple(values["names"]), tuple(values["factors"])
        return cls(names=names, factors=factors, n_rows=values["n_rows"], **arrays)


def sensitivity(model: Any, data: Observations, seed: int = 0) -> Sensitivity:
    """See what 20 % smaller or larger errors would change in a fitted model's answer.

    Parameters
    ----------
    model
        A fitted estimator.
    data
        The rows that it was fitted to; of more than 20,000 so many are taken at random.
    seed
        Of these rows, and of draws of a model that is no mixture.
    """
    if not data.noise.additive:
        raise ValueError(
            "Expected noise that is added to the truth, to see what larger errors would change; "
            "got values with a likelihood, as counts."
        )
    density = model.density_
    rows = check_random_state(seed).permutation(len(data))[:MOST_ROWS]
    some = data[np.sort(rows)].with_weight()
    starts = _starts(density, seed)
    changes = zip(*(_changes(some, start, density.threads) for start in starts), strict=True)
    mean, sd, quantiles, correlation = (
        own + np.mean(change, axis=0)
        for own, change in zip(_own_figures(density, seed), changes, strict=True)
    )
    # sums of figures and differences may leave what is possible, where little is known
    return Sensitivity(
        tuple(density.names), FACTORS, mean, np.maximum(sd, 0.0), np.sort(quantiles, axis=1),
        correlation.clip(-1.0, 1.0), len(some),
    )  # fmt: skip


def _changes(data: Observations, start: GaussianMixture, threads: int | None) -> list[Array]:
    """By how much each figure differs from that under the errors as they are, ``(3, ...)``."""
    settings = FitSettings(
        start.n_components, floor=FLOOR, stopping=replace(STEPS, threads=threads)
    )
    rng = np.random.RandomState(0)  # not drawn from: there is a start
    middle = PreparedData(data).fit(settings, rng, start).mixture
    found = []
    for factor in FACTORS:
        scale = torch.full((data.dim,), 1 / factor, dtype=data.w.dtype)
        prepared = PreparedData(replace(data, noise=data.noise.divide(scale)))
        found.append(_figures(prepared.fit(settings, rng, middle).mixture))
    each = [np.stack(values) for values in zip(*found, strict=True)]
    return [values - values[FACTORS.index(1.0)] for values in each]


def _starts(density: Any, seed: int) -> list[GaussianMixture]:
    """Return the mixtures that the model averages; else one that is fitted to its draws."""
    members = getattr(density, "members", None) or []
    few = all(each.n_components <= MOST_COMPONENTS for each in members)
    if few and 0 < len(members) <= MOST_MEMBERS:
        return list(members)
    return [fit_exact(density.sample(DRAWS, seed), WORKING, seed)]


def _own_figures(density: Any, seed: int) -> tuple[Array, ...]:
    """Return the figures of the model itself, in closed form where it is a mixture."""
    mixture = getattr(density, "mixture", None)
    if isinstance(mixture, GaussianMixture):
        return _figures(mixture)
    draws = density.sample(DRAWS, seed)
    correlation = np.atleast_2d(np.corrcoef(draws.T))
    return draws.mean(0), draws.std(0), np.quantile(draws, SHARES, axis=0), correlation


def _figures(mixture: GaussianMixture) -> tuple[Array, ...]:
    """Mean, spread, quantiles and correlations of a mixture."""
    sd = mixture.sd
    correlation = mixture.covariance / np.outer(sd, sd)
    return mixture.mean, sd, np.stack([mixture.quantile(share) for share in SHARES]), correlation


def rounded(value: float, unit: float, sign: str = "") -> str:
    """Write a number to hundredths of a unit.

    Examples
    --------
    >>> rounded(1234.5678, 2.0), rounded(-0.0001, 2.0, "+"), rounded(3.21e-20, 5e-20)
    ('1234.57', '+0', '3.21e-20')
    """
    digits = 2 - int(np.floor(np.log10(unit))) if unit > 0 else 12
    return f"{round(float(value), digits) + 0.0:{sign}.12g}"
