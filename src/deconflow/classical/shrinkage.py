r"""Which wavelet coefficients to keep: a level for the linear estimator, thresholds for the other.

A coefficient is a sum over rows, so its variance is estimated from the rows' own shares: whatever
the noise laws are, and wherever the rows lie.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from deconflow._types import Array, Complex
from deconflow.classical.empirical import AT_ONCE, FourierRows, empirical_characteristic
from deconflow.classical.kde import FourierFit
from deconflow.classical.lattice import Lattice
from deconflow.classical.meyer import analyse, order_of, synthesise

COARSEST, FINEST = 1, 10
"""Levels that may be chosen or given."""


@dataclass(frozen=True)
class Coefficients:
    """Coefficients ``(2^level,)`` of one level, with the variances of their estimates.

    ``within_reach`` says whether the noise lets the frequencies through that the level adds.
    """

    level: int
    kind: str
    values: Array
    variances: Array
    within_reach: bool

    @property
    def gain(self) -> float:
        """Fall of the integrated squared error from keeping them all, less twice its own error.

        The estimate without bias subtracts two variances. A few frequencies cause most of the
        variance, so that the error of the estimate is as large as the variance itself.
        """
        return float((np.square(self.values) - 4 * self.variances).sum())

    def thresholded(self, bar: float, soft: bool) -> Coefficients:
        """Keep those that exceed ``bar`` standard deviations, if ``soft`` by what they exceed."""
        bars = bar * np.sqrt(self.variances)
        size = np.abs(self.values)
        kept = np.where(size > bars, size - bars * soft, 0.0) * np.sign(self.values)
        return replace(self, values=kept)


def measure(rows: FourierRows, low: Array, length: Array, level: int, kind: str) -> Coefficients:
    """Estimate one level's coefficients and their variances from rows in one dimension."""
    lattice = Lattice(low, length, (order_of(level, kind),))
    ecf = empirical_characteristic(rows, lattice)
    values, squares = np.zeros(2**level), np.zeros(2**level)
    for part in rows.chunks(max(1, AT_ONCE // 2 ** (level + 1))):
        shares = analyse(_waves(part, lattice) / ecf.denominator, level, kind)
        values += shares.sum(0)
        squares += np.square(shares).sum(0)
    variances = squares - np.square(values) / rows.effective_number
    within_reach = bool(ecf.power[int(np.ceil(2**level / 3))] > ecf.ridge)
    return Coefficients(level, kind, values, np.clip(variances, 0, None), within_reach)


def informative_levels(
    rows: FourierRows, low: Array, length: Array, level: int | None
) -> list[Coefficients]:
    """Wavelets below a level; without one, up to the last level that can tell anything.

    That is where errors exceed the signal, the noise lets nothing through, or two levels in a row
    have no coefficient above its threshold.
    """
    levels: list[Coefficients] = []
    empty = 0
    signal = np.square(measure(rows, low, length, COARSEST, "scaling").values).sum()
    for j in range(COARSEST, FINEST if level is None else level):
        wavelets = measure(rows, low, length, j, "wavelet")
        hopeless = not wavelets.within_reach or wavelets.variances.sum() > signal
        if level is None and (hopeless or empty == 2):
            break
        levels.append(wavelets)
        empty = 0 if wavelets.thresholded(universal_bar(rows), False).values.any() else empty + 1
    return levels


def universal_bar(rows: FourierRows) -> float:
    """Standard deviations that pure error hardly ever exceeds."""
    return float(np.sqrt(2 * np.log(rows.effective_number)))


def best_level(levels: list[Coefficients]) -> int:
    """Level of the linear estimator: the one up to which wavelets gain most."""
    gains = np.cumsum([0.0, *(wavelets.gain for wavelets in levels)])
    return COARSEST + int(gains.argmax())


def nonlinear(
    rows: FourierRows, low: Array, length: Array, levels: list[Coefficients], soft: bool
) -> list[Coefficients]:
    """The linear estimator, and thresholded wavelets from its level upwards."""
    start = best_level(levels)
    bar = universal_bar(rows)
    finer = [part.thresholded(bar, soft) for part in levels if part.level >= start]
    return [measure(rows, low, length, start, "scaling"), *finer]


def fit_wavelets(
    rows: FourierRows, low: Array, length: Array, threshold: str | None, level: int | None
) -> tuple[list[Coefficients], FourierFit]:
    """Estimate the density's characteristic function in one dimension.

    ``threshold`` is None for the linear estimator of ``level``, else "hard" or "soft" for
    thresholded wavelets below ``level``; without a level the data choose.
    """
    near = rows.are_near(Lattice(low, length, (1,)))
    rows, far = rows.only(near), rows.weights[~near]
    if threshold is None and level is not None:
        kept = [measure(rows, low, length, level, "scaling")]
    elif threshold is None:
        best = best_level(informative_levels(rows, low, length, None))
        kept = [measure(rows, low, length, best, "scaling")]
    else:
        kept = nonlinear(
            rows, low, length, informative_levels(rows, low, length, level), threshold == "soft"
        )
    order = max(order_of(part.level, part.kind) for part in kept)
    parts = [synthesise(part.values, part.level, part.kind, order) for part in kept]
    lattice = Lattice(low, length, (order,))
    return kept, FourierFit(lattice, np.sum(parts, 0), _relative_error(kept), far)


def _relative_error(kept: list[Coefficients]) -> float:
    """Variance of what is kept over its squares, without the constant that all densities share."""
    signal = sum(np.square(part.values).sum() for part in kept) - 1
    error = sum(part.variances[part.values != 0].sum() for part in kept)
    if not kept[0].within_reach or signal <= 0:
        return 1.0
    return float(error / signal)


def _waves(rows: FourierRows, lattice: Lattice) -> Complex:
    """Each row's share of the numerator, ``(N, T)``."""
    t = lattice.axis(0)
    phi = rows.noise.characteristic(t[:, None])
    wave = np.exp(1j * (rows.w - lattice.low) * t)
    return rows.weights[:, None] * wave * phi.conj()
