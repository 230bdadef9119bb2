"""A log density on a plane: a product of two bases on a lattice."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from deconflow._types import Array
from deconflow.splines.basis import Basis, plane_penalty, polynomials
from deconflow.splines.domain import Domain
from deconflow.splines.newton import Penalty, log_start
from deconflow.splines.planes import Lattice, PlaneLikelihood, bins_on_a_plane
from deconflow.splines.rows import Rows

INTERVALS, NODES_PER_INTERVAL = 16, 4
MARGIN = 0.05
"""Share of its length by which the domain is widened to both sides, within bounds."""
FINER = 2
"""Steps of the answer's grid in one of the fit's."""


class PlaneFrame:
    """Knots, lattice and penalty that all fits to some rows share.

    Attributes
    ----------
    orders : tuple of int
        Orders of the derivatives that are penalised; answers are averages over them.
    """

    orders = (3,)

    def __init__(self, domain: Domain, n_intervals: int | None) -> None:
        intervals = INTERVALS if n_intervals is None else n_intervals
        margin = MARGIN * (domain.high - domain.low)
        low = np.maximum(domain.low - margin, domain.low_bound)
        high = np.minimum(domain.high + margin, domain.high_bound)
        knots = np.linspace(low, high, intervals + 1).T
        self.bases = Basis(knots[0]), Basis(knots[1])
        self.lattice = self._lattice(NODES_PER_INTERVAL)
        self._designs = self._design(self.lattice)

    def _lattice(self, per_interval: int) -> Lattice:
        low, high = (np.array([basis.knots[end] for basis in self.bases]) for end in (0, -1))
        n = (len(self.bases[0].knots) - 1) * per_interval + 1
        return Lattice(low, (high - low) / (n - 1), (n, n))

    def _design(self, lattice: Lattice) -> tuple[Array, Array]:
        first, second = (basis.design(lattice.axis(d)) for d, basis in enumerate(self.bases))
        return first, second

    @cached_property
    def start(self) -> Array:
        """Coefficients of a law to start from."""
        x, y = (np.square(self.lattice.axis(d)) for d in (0, 1))
        first, second = (np.linalg.pinv(design) for design in self._designs)
        return (first @ log_start(np.add.outer(x, y)) @ second.T).ravel()

    def penalty(self, order: int) -> Penalty:
        """Penalty on one order of derivatives."""
        return Penalty(plane_penalty(self.bases, order), polynomials(self.bases, order))

    def likelihood(self, rows: Rows) -> PlaneLikelihood:
        """Likelihoods of rows, in bins if many share their noise."""
        return PlaneLikelihood(self.lattice, self._designs, self.binned(rows))

    def binned(self, rows: Rows) -> Rows:
        """Put rows into bins if many share their noise."""
        return bins_on_a_plane(rows, self.lattice.step / 4)

    def grid(self, betas: list[Array]) -> tuple[Array, Array, Array]:
        """First node, steps and values of a grid with the average of some densities."""
        lattice = self._lattice(FINER * NODES_PER_INTERVAL)
        first, second = self._design(lattice)
        sizes = first.shape[1], second.shape[1]
        mass = lattice.mass.reshape(lattice.shape)
        values = np.zeros(lattice.shape)
        for beta in betas:
            log_p = first @ beta.reshape(sizes) @ second.T
            p = np.exp(log_p - log_p.max())
            values += p / (p * mass).sum() / len(betas)
        return lattice.low, lattice.step, values
