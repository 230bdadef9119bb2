r"""The M-step, from the three sums of a pass, under a floor, a prior and fixed parameters.

What EM needs to know of rows: sums, which can be added over chunks, processes and machines.

Whoever has rows in many places, in partitions of Dask or on the ranks of a cluster, asks each place
for its :func:`statistics`, adds them up, and takes the step of :meth:`EMStatistics.maximise`.
"""

from collections.abc import Sized
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from deconflow._types import Array, BoolArray
from deconflow.checks import as_floats, refuse_if
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations, check_weights
from deconflow.xd.expectation import expectation
from deconflow.xd.layout import KernelRows, lay_out

#: Smallest Cholesky pivot of a correlation matrix that double precision can work with.
NEARLY_SINGULAR = 1e-11


@dataclass(frozen=True)
class Constraints:
    r"""What an M-step must respect; all in the units of the rows.

    Attributes
    ----------
    floor : array or None
        ``(D, D)``, positive definite: every covariance is at least this,
        :math:`V - F \succeq 0`. None to take covariances as they come.
    prior : array or None
        ``(D, D)``: covariances are ``(sum + r prior) / (q0 + r)``; None for no prior.
    fixed : array
        Boolean ``(3, K)``: components that keep their weights, means and covariances.
    prior_rows : float
        ``r``, the rows that the prior counts as.
    """

    floor: Array | None
    prior: Array | None
    fixed: BoolArray
    prior_rows: float = field(default=1.0, kw_only=True)

    @classmethod
    def free(cls, n_components: int, floor: Array | None) -> "Constraints":
        """Nothing fixed, and no prior."""
        return cls(floor, None, np.zeros((3, n_components), bool))

    def log_prior(self, mixture: GaussianMixture) -> float:
        r"""Log density that the prior gives the free covariances, but for a constant.

        The M-step ``(sum + r W) / (q0 + r)`` maximises the likelihood times
        :math:`|V|^{-r/2} \exp(-r \, \mathrm{tr}(W V^{-1}) / 2)` for each component.
        """
        if self.prior is None:
            return 0.0
        free = mixture.covariances[~self.fixed[2]]
        ratio = np.linalg.solve(free, np.broadcast_to(self.prior, free.shape))
        total = np.linalg.slogdet(free)[1] + np.trace(ratio, axis1=1, axis2=2)
        return float(-0.5 * self.prior_rows * total.sum())

    def but_for(self, free: list[int]) -> "Constraints":
        """Return the same with all other components fixed."""
        return replace(self, fixed=self.fixed | ~np.isin(np.arange(self.fixed.shape[1]), free))

    def kept(
        self, old: GaussianMixture, weights: Array, means: Array, covariances: Array
    ) -> GaussianMixture:
        """Return a mixture of new parameters, but for those that are fixed.

        The new weights are scaled to what the fixed ones leave.
        """
        weight, mean, covariance = self.fixed
        left = max(0.0, 1.0 - float(old.weights[weight].sum()))
        total = weights[~weight].sum()
        scaled = old.weights if total <= 0 else weights / total * left
        return GaussianMixture(
            np.where(weight, old.weights, scaled),
            np.where(mean[:, None], old.means, means),
            np.where(covariance[:, None, None], old.covariances, covariances),
        )


def maximisation(mixture: GaussianMixture, sums: Any, constraints: Constraints) -> GaussianMixture:
    r"""Take one M-step.

    .. math:: m' = m + V u / q_0, \qquad
              V' = V + V G V / q_0 - (m' - m)(m' - m)^T

    The constrained maximum over :math:`V \succeq F` clips eigenvalues in units of ``F``, so the
    likelihood does not fall under a floor either. A component without rows stays where it is.
    """
    alive = sums.q0 > 0
    q0 = np.where(alive, sums.q0, 1.0)[:, None]
    step = sums.vu / q0
    step[~alive | constraints.fixed[1]] = 0.0
    V, count = mixture.covariances, q0[..., None]
    new = (V * count + sums.vgv) / count - step[:, :, None] * step[:, None, :]
    if constraints.prior is not None:
        rows = constraints.prior_rows
        new = (count * new + rows * constraints.prior) / (count + rows)
    new = with_floor(0.5 * (new + np.swapaxes(new, 1, 2)), constraints.floor)
    new[~alive] = V[~alive]
    return constraints.kept(mixture, sums.q0, mixture.means + step, new)


def with_floor(covariances: Array, floor: Array | None) -> Array:
    """Raise symmetric matrices to at least the floor, by their eigenvalues in its units.

    Those that are still too close to singular for double precision get rounder.
    """
    if floor is None:
        return covariances
    if not _positive(covariances - floor, 0.0):
        root = np.linalg.cholesky(floor)
        inverse = np.linalg.inv(root)
        lifted = root @ _clipped(inverse @ covariances @ inverse.T, 1.0) @ root.T
        below = np.linalg.eigvalsh(covariances - floor)[:, 0] < 0
        covariances = np.where(
            below[:, None, None], 0.5 * (lifted + np.swapaxes(lifted, 1, 2)), covariances
        )
    sd = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    square = sd[:, :, None] * sd[:, None, :]
    correlations = covariances / square
    if not _positive(correlations, NEARLY_SINGULAR):
        covariances = _clipped(correlations, 2 * NEARLY_SINGULAR) * square
    return covariances


def _positive(matrices: Array, least: float) -> bool:
    """Whether all have Cholesky pivots above ``least``."""
    try:
        factors = np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        return False
    return bool((np.diagonal(factors, axis1=1, axis2=2) ** 2 > least).all())


def _clipped(matrices: Array, least: float) -> Array:
    """Raise the eigenvalues that are below ``least``."""
    values, vectors = np.linalg.eigh(matrices)
    raised_values = np.maximum(values, least)[:, None, :]
    raised = (vectors * raised_values) @ np.swapaxes(vectors, 1, 2)
    return 0.5 * (raised + np.swapaxes(raised, 1, 2))


@dataclass(frozen=True)
class EMStatistics:
    r"""The sums of one pass of EM over some rows; add those of other rows with ``+`` or ``sum``.

    Attributes
    ----------
    n_rows : int
        Number of rows.
    weight : float
        Sum of their weights; as many as rows, without weights.
    log_likelihood : float
        Sum of ``log p(w)``, by the weights.
    q0, vu, vgv : array
        ``(K,)``, ``(K, D)``, ``(K, D, D)``: with responsibilities :math:`q`,
        :math:`T = V + S` and :math:`t = T^{-1} (w - m)` the sums of :math:`q`,
        :math:`q V t` and :math:`q V (t t^T - T^{-1}) V`, in the units of the mixture.
    """

    n_rows: int
    weight: float
    log_likelihood: float
    q0: Array
    vu: Array
    vgv: Array

    @property
    def mean_log_likelihood(self) -> float:
        """Mean of ``log p(w)`` over the rows, by their weights."""
        self._refuse_none()
        return self.log_likelihood / self.weight

    def __add__(self, other: "EMStatistics | int") -> "EMStatistics":
        """Return the sums of these rows and others, seen by the same mixture."""
        if not isinstance(other, EMStatistics):
            began = isinstance(other, int) and other == 0  # where ``sum`` begins
            return self if began else NotImplemented
        refuse_if(
            self.vu.shape != other.vu.shape,
            "Expected statistics of the same mixture; got "
            f"{self.vu.shape[0]} components in {self.vu.shape[1]} dimensions, and "
            f"{other.vu.shape[0]} in {other.vu.shape[1]}.",
        )
        return EMStatistics(*(a + b for a, b in zip(self.parts, other.parts, strict=True)))

    __radd__ = __add__

    @classmethod
    def none(cls, mixture: GaussianMixture) -> "EMStatistics":
        """Return the sums over no rows."""
        K, D = mixture.means.shape
        return cls(0, 0.0, 0.0, np.zeros(K), np.zeros((K, D)), np.zeros((K, D, D)))

    @property
    def parts(self) -> tuple[Any, ...]:
        """All sums, in the order in which they are declared."""
        return tuple(vars(self).values())

    def maximise(self, mixture: GaussianMixture, floor: ArrayLike | None = None) -> GaussianMixture:
        """Take the M-step from the mixture that these are statistics of.

        Parameters
        ----------
        mixture
            The mixture that was given to :func:`statistics`.
        floor
            ``(D,)`` standard deviations that no component shall be narrower than.
        """
        refuse_if(
            self.vu.shape != mixture.means.shape,
            f"Expected the mixture of these statistics, of shape {self.vu.shape}; got one of "
            f"shape {mixture.means.shape}.",
        )
        self._refuse_none()
        least = None
        if floor is not None:
            sd = as_floats(floor, "floor")
            refuse_if(
                sd.shape != (mixture.dim,) or not (np.isfinite(sd) & (sd >= 0)).all(),
                f"Expected floor as {mixture.dim} numbers of at least 0, one for each "
                f"dimension; got {sd.tolist()}.",
            )
            least = np.diag(sd**2)
        return maximisation(mixture, self, Constraints.free(mixture.n_components, least))

    def _refuse_none(self) -> None:
        """Raise if nothing was added up that a mean or a step could be made of."""
        refuse_if(
            not self.weight > 0,
            "Expected statistics of one or more rows of a weight above 0; got those of none. "
            "Add up those of all parts first.",
        )


def statistics(
    rows: Observations | ArrayLike,
    mixture: GaussianMixture,
    *,
    noise: Any = None,
    sample_weight: ArrayLike | None = None,
    threads: int | None = None,
) -> EMStatistics:
    """Pass over rows once, and return the sums that a step of EM needs of them.

    Parameters
    ----------
    rows
        ``(N, D)`` measurements, with ``noise``; or :class:`~deconflow.Observations` without
        weights, which would be on a scale of their own. No rows at all, as in a partition of which
        a filter has left nothing, add nothing.
    mixture
        The mixture as it is, in the units of the rows.
    noise
        As for :meth:`deconflow.XDGMM.fit`.
    sample_weight
        ``(N,)`` row weights, on one scale for all the parts that are added up.
    threads
        How many to use at most; None for one per processor.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> w = rng.normal(size=(2, 500, 1)) * 5**0.5
    >>> mixture = GaussianMixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)))
    >>> for _ in range(50):
    ...     parts = [statistics(part, mixture, noise=[1.0]) for part in w]
    ...     mixture = sum(parts).maximise(mixture)
    >>> mixture.covariances.round().item()
    4.0
    """
    if not isinstance(mixture, GaussianMixture):
        raise TypeError(
            f"Expected mixture as a GaussianMixture; got {type(mixture).__name__}. A fitted XDGMM "
            "has one: model.mixture_"
        )
    if isinstance(rows, Sized) and len(rows) == 0:
        return EMStatistics.none(mixture)
    data = rows if isinstance(rows, Observations) else Observations.from_arrays(rows, noise)
    refuse_if(
        data is rows and (noise is not None or sample_weight is not None),
        "Expected no noise and sample_weight with Observations, which have theirs; got some.",
    )
    refuse_if(
        data.weights is not None,
        "Expected Observations without weights, which have a mean of one there and so differ "
        "in scale from part to part; got some with. Give the rows with noise and sample_weight.",
    )
    refuse_if(
        data.latent_dim != mixture.dim,
        f"Expected rows of {mixture.dim} columns, the dimensions of the mixture; got "
        f"{data.latent_dim}.",
    )
    if sample_weight is not None:
        weights = check_weights(rows, sample_weight)
        if not weights.any():
            return replace(EMStatistics.none(mixture), n_rows=len(data))
        data = replace(data, weights=weights)
    laid_out = lay_out(data)
    units, scale = laid_out.units, np.asarray(laid_out.units.scale)
    found = one_pass(units.mixture_to_standard(mixture), laid_out, threads)
    return replace(found, vu=found.vu * scale, vgv=found.vgv * np.outer(scale, scale))


def one_pass(mixture: GaussianMixture, rows: KernelRows, threads: int | None) -> EMStatistics:
    """Pass over rows; mixture and sums are in their units."""
    sums = expectation(mixture, rows, threads=threads)
    value = float((rows.weights * sums.log_p).sum())
    return EMStatistics(rows.n_rows, rows.total_weight, value, sums.q0, sums.vu, sums.vgv)
