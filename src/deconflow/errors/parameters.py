r"""What of Gaussian errors is learned, as one vector of numbers, and the law that follows from it.

.. math:: S_i = t_i t_i^T \circ C, \qquad t_{id}^2 = s_d^2 \sigma_{id}^2 + u_d, \qquad
          y_i = w_i - b_{g(i)}

with a factor :math:`s` and a jitter of variance :math:`u` for each column, the correlation
:math:`C` of the errors, and zero points :math:`b` that sum to zero over the groups. Errors that are
said as covariances keep these in the place of :math:`C`: :math:`S_i = s s^T \circ S_i^0 +
\mathrm{diag}(u)`.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from deconflow._types import Array, BoolArray, IntArray

#: Factors on the errors stay within a thousand, and a thousandth.
LARGEST_LOG = 7.0
LARGEST_CORRELATION = 0.999


@dataclass(frozen=True)
class Values:
    """The parameters in words; units are those of the rows.

    Attributes
    ----------
    scale, jitter : array
        ``(D,)`` factors on the errors, and standard deviations that are added to them.
    correlation : array
        ``(D, D)``.
    shifts : array
        ``(G, D)`` zero points; ``(0, D)`` without groups.
    """

    scale: Array
    jitter: Array
    correlation: Array
    shifts: Array


@dataclass(frozen=True)
class Layout:
    """Which parameters there are, and where in the vector they stand.

    Attributes
    ----------
    dim : int
        Number of columns.
    scale, jitter, correlation : bool
        What is learned.
    n_groups : int
        Groups that have zero points; 0 for none.
    """

    dim: int
    scale: bool
    jitter: bool
    correlation: bool
    n_groups: int

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Pairs of columns."""
        return np.triu_indices(self.dim, 1)

    @cached_property
    def places(self) -> dict[str, slice]:
        """Where each kind of parameter stands."""
        sizes = {
            "scale": self.dim * self.scale,
            "jitter": self.dim * self.jitter,
            "correlation": len(self.pairs[0]) * self.correlation,
            "shifts": self.dim * max(0, self.n_groups - 1),
        }
        ends = np.cumsum([0, *sizes.values()])
        return {name: slice(*ends[j : j + 2]) for j, name in enumerate(sizes)}

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.places["shifts"].stop

    @property
    def contrasts(self) -> Array:
        """``(G, G - 1)``: shifts of all groups from those of all but the last; they sum to zero."""
        free = max(0, self.n_groups - 1)
        return np.vstack([np.eye(free), -np.ones((min(self.n_groups, 1), free))])

    def start(self, jitter: float) -> Array:
        """Return the errors as they were said, with a small jitter to begin with."""
        theta = np.zeros(self.size)
        theta[self.places["jitter"]] = jitter**2
        return theta

    def feasible(self, theta: Array) -> Array:
        """Bring parameters back to where they have a meaning."""
        theta = theta.copy()
        scale, jitter = self.places["scale"], self.places["jitter"]
        theta[scale] = np.clip(theta[scale], -LARGEST_LOG, LARGEST_LOG)
        theta[jitter] = np.maximum(theta[jitter], 0.0)
        theta[self.places["correlation"]] = self._possible(theta[self.places["correlation"]])
        return theta

    def _possible(self, rho: Array) -> Array:
        """Shrink correlations until they are those of some law."""
        rho = np.clip(rho, -LARGEST_CORRELATION, LARGEST_CORRELATION)
        if len(rho) > 1:
            lowest = np.linalg.eigvalsh(self._matrix(rho))[0]
            if lowest < 1 - LARGEST_CORRELATION:
                rho = rho * (LARGEST_CORRELATION / (1 - lowest))
        return rho

    def _matrix(self, rho: Array) -> Array:
        found = np.eye(self.dim)
        if self.correlation:
            found[self.pairs] = rho
            found.T[self.pairs] = rho
        return found

    def held(self, theta: Array, slope: Array) -> BoolArray:
        """Which parameters stay where they are: jitters of zero that would fall below."""
        found = np.zeros(self.size, bool)
        jitter = self.places["jitter"]
        found[jitter] = (theta[jitter] <= 0) & (slope[jitter] <= 0)
        return found

    def values(self, theta: Array) -> Values:
        """Say what a vector of parameters means."""
        ones, none = np.ones(self.dim), np.zeros(self.dim)
        shifts = theta[self.places["shifts"]].reshape(-1, self.dim)
        return Values(
            np.exp(theta[self.places["scale"]]) if self.scale else ones,
            np.sqrt(theta[self.places["jitter"]]) if self.jitter else none,
            self._matrix(theta[self.places["correlation"]]),
            self.contrasts @ shifts if self.n_groups else np.zeros((0, self.dim)),
        )


def covariances(said: Array, values: Values) -> Array:
    """Covariances ``(N, D, D)`` of errors that were said to be ``said``."""
    made = said * values.scale[:, None] * values.scale
    columns = np.arange(said.shape[1])
    made[:, columns, columns] += np.square(values.jitter)
    if np.array_equal(values.correlation, np.eye(len(columns))):
        return made
    sd = np.sqrt(made[:, columns, columns])
    return sd[:, :, None] * sd[:, None, :] * values.correlation


def error_scores(
    layout: Layout,
    said: Array,
    values: Values,
    by_law: Array,
    by_shift: Array,
    group: IntArray | None,
) -> Array:
    r"""Derivatives ``(N, P)`` of each row's log-likelihood by the parameters.

    Parameters
    ----------
    layout, said, values
        The parameters, and the errors as they were said, ``(N, D, D)``.
    by_law
        ``(N, D, D)`` derivatives :math:`A` by the covariance: a change :math:`dS` is worth
        :math:`\mathrm{tr}(A \, dS)`.
    by_shift
        ``(N, D)`` derivatives by a shift of the row.
    group
        ``(N,)`` group of each row.
    """
    columns = np.arange(layout.dim)
    scaled = said * values.scale[:, None] * values.scale
    parts = []
    variance = scaled[:, columns, columns] + np.square(values.jitter)
    if layout.correlation:
        sd = np.sqrt(variance)
        law = sd[:, :, None] * sd[:, None, :] * values.correlation
        by_variance = np.einsum("nab,nab->na", by_law, law) / np.maximum(variance, 1e-300)
        by_scale = 2 * by_variance * scaled[:, columns, columns]
    else:
        by_variance = by_law[:, columns, columns]
        by_scale = 2 * np.einsum("nab,nab->na", by_law, scaled)
    if layout.scale:
        parts.append(by_scale)
    if layout.jitter:
        parts.append(by_variance)
    if layout.correlation:
        a, b = layout.pairs
        parts.append(2 * by_law[:, a, b] * sd[:, a] * sd[:, b])
    if layout.n_groups:
        assert group is not None
        parts.append((layout.contrasts[group][:, :, None] * by_shift[:, None, :]).reshape(
            len(said), -1
        ))  # fmt: skip
    return np.concatenate(parts, axis=1)
