r"""Gaussian noise, the fast path: shared or per row, diagonal or full."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from deconflow._limits import row_slices
from deconflow._types import Array, Complex
from deconflow.checks import (
    array_namespace,
    as_array,
    as_parameter,
    diagonals,
    first_bad,
    like,
    place,
    solve_lower,
    take,
)
from deconflow.noise.base import KeptDraws, Noise, flatten_cholesky
from deconflow.noise.free_errors import FreeErrors, free_errors
from deconflow.noise.gaussian_parts import JointMixture
from deconflow.randomness import normal

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
#: Arrays of the size of the covariances that it takes to check and factor them.
ARRAYS = 8


@dataclass(frozen=True, repr=False)
class GaussianNoise(Noise):
    r"""Noise :math:`n_i \sim N(0, S_i)`.

    Make one with :func:`gaussian`; the fields hold what has been checked.

    Attributes
    ----------
    factor : array
        Standard deviations ``(N or 1, D)``, or Cholesky factors ``(N or 1, D, D)``.
    observed : array or None
        Boolean ``(N, D)``: the values that :meth:`log_prob` looks at; None for all.
    """

    factor: Any
    shared: bool
    n_rows: int | None
    observed: Any = None
    kept: KeptDraws | None = None
    by_row = ("factor",)

    @property
    def dim(self) -> int:  # type: ignore[override]
        """Number of measured values per row."""
        return self.factor.shape[-1]

    @property
    def diagonal(self) -> bool:
        """Whether the values of a row have independent noise."""
        return self.factor.ndim == 2

    @property
    def independent(self) -> bool:  # type: ignore[override]
        """Whether the values of a row have independent noise."""
        return self.diagonal

    @cached_property
    def _product(self) -> Any:
        """Covariances of full factors, multiplied out once."""
        return self.factor @ self.factor.swapaxes(-1, -2)

    def log_prob(self, residual: Any) -> Any:
        """Log density of residuals ``(..., N, D)``, as ``(..., N)``."""
        xp, factor = array_namespace(residual), like(self.factor, residual)
        pivots = factor if self.diagonal else xp.linalg.diagonal(factor)
        if 0 not in pivots.shape and xp.min(pivots) == 0:
            raise ValueError(
                "Expected noise of positive variance where its density is asked for; got none. "
                "Exact values have no density about the truth: leave them out, or give them one."
            )
        white = residual / factor if self.diagonal else _whiten(factor, residual)
        per_value = -0.5 * white**2 - xp.log(pivots) - HALF_LOG_2PI
        if self.observed is not None:
            per_value = xp.where(like(self.observed, residual), per_value, 0.0)
        return xp.sum(per_value, axis=-1)

    def sample(self, k: int) -> Any:
        """Draw ``(k, N, D)``."""
        white = normal((k, len(self), self.dim), self.factor)
        if self.diagonal:
            return white * self.factor
        return (self.factor @ white[..., None])[..., 0]

    def from_uniform(self, share: Array) -> Array:
        """Make noise ``(K, N, D)`` of as many uniform numbers."""
        white, factor = ndtri(share), as_array(self.factor)
        if self.diagonal:
            return white * factor
        factor = np.broadcast_to(factor, (white.shape[1], self.dim, self.dim))
        return np.einsum("nij,knj->kni", factor, white)

    def mean(self) -> Any:
        """Zeros, ``(1, D)``."""
        return 0 * self.factor[:1, ..., 0] if not self.diagonal else 0 * self.factor[:1]

    def covariance(self) -> Any:
        """Covariances ``(N or 1, D, D)``."""
        return diagonals(self.factor**2) if self.diagonal else self._product

    def variance(self) -> Any:
        """Variances ``(N or 1, D)``."""
        return self.factor**2 if self.diagonal else (self.factor**2).sum(-1)

    def cholesky(self) -> Any:
        """Cholesky factors ``(N or 1, D, D)``."""
        return diagonals(self.factor) if self.diagonal else self.factor

    def features(self) -> Any:
        """Flattened Cholesky factors ``(N or 1, D (D + 1) / 2)``."""
        return flatten_cholesky(self.cholesky())

    def as_mixture(self) -> JointMixture:
        """Return the mixture of one Gaussian, itself."""
        covariance = self.variance() if self.diagonal else self.covariance()
        return JointMixture(np.ones((1, 1)), None, as_array(covariance)[:, None])

    def value_characteristics(self, t: Array) -> Complex:
        """Characteristic functions ``(N or 1, T, D)`` of each value by itself."""
        return np.exp(-0.5 * np.square(self.factor[:, None] * t)) + 0j

    def characteristic(self, t: Array) -> Complex:
        """Characteristic functions ``(N or 1, T)`` of rows."""
        return gaussian_waves(self.covariance(), t)

    def restrict(self, observed: Any) -> "GaussianNoise":
        """Return the marginal law of the observed values; the others get an idle unit variance."""
        if self.diagonal:
            factor = np.where(observed, self.factor, 1.0)
        else:
            both = observed[:, :, None] & observed[:, None]
            factor = psd_cholesky(np.where(both, self.covariance(), np.eye(self.dim)))
        return GaussianNoise(factor, shared=False, n_rows=len(observed), observed=observed)

    def divide(self, scale: Any) -> Self:
        """Return the law of ``n / scale``."""
        factor = self.factor / (scale if self.diagonal else scale[..., None])
        if self.observed is not None:  # keep the idle pivots at one
            idle = ~self.observed
            factor = np.where(idle if self.diagonal else idle[..., None] * _eye(self), 1.0, factor)
        return replace(self, factor=factor, kept=None)

    def floor(self, sd: float) -> "GaussianNoise":
        """Return the law with covariance ``S + sd^2 I``."""
        if self.diagonal:
            return replace(self, factor=np.sqrt(self.factor**2 + sd**2))
        try:
            factor = np.linalg.cholesky(self.covariance() + sd**2 * np.eye(self.dim))
        except np.linalg.LinAlgError:  # too thin for a sum: S + sd^2 I = [L, sd I] [L, sd I]'
            beside = np.broadcast_to(sd * np.eye(self.dim), self.factor.shape)
            factor = _lower_from_root(np.concatenate([self.factor.swapaxes(1, 2), beside], 1))
        return replace(self, factor=factor)

    def _take(self, rows: Any, n_rows: int) -> Self:
        if self.shared and n_rows == self.n_rows:
            return self
        taken = super()._take(rows, n_rows)
        if "_product" in vars(self):  # what is known of all rows is known of some
            known = self._product if self.shared else take(self._product, rows)
            vars(taken)["_product"] = known
        return taken


@overload
def gaussian(
    *, sd: ArrayLike | None = None, covariance: ArrayLike | None = None
) -> GaussianNoise: ...


@overload
def gaussian(
    *,
    sd: ArrayLike | None = None,
    covariance: ArrayLike | None = None,
    scale: Literal["fit"] | None = None,
    jitter: Literal["fit"] | None = None,
    correlation: Literal["fit"] | None = None,
    groups: Any = None,
    replicates: Any = None,
) -> GaussianNoise | FreeErrors: ...


def gaussian(
    *,
    sd: ArrayLike | None = None,
    covariance: ArrayLike | None = None,
    scale: Literal["fit"] | None = None,
    jitter: Literal["fit"] | None = None,
    correlation: Literal["fit"] | None = None,
    groups: Any = None,
    replicates: Any = None,
) -> GaussianNoise | FreeErrors:
    r"""Make Gaussian noise from standard deviations or from covariances.

    Where these are not quite known, ``fit`` learns what is left open, with the density:

    .. math:: \mathrm{Var}(n_{id}) = s_d^2 \sigma_{id}^2 + j_d^2

    Parameters
    ----------
    sd
        Standard deviations: ``(D,)`` for all rows, ``(N, D)`` row by row.
    covariance
        Covariances: ``(D, D)`` for all rows, ``(N, D, D)`` row by row. Singular ones are allowed.
    scale
        ``"fit"`` for errors that are known up to a factor :math:`s_d` for each column. Rows with
        different errors tell it, or replicates.
    jitter
        ``"fit"`` for a scatter :math:`j_d` of each column that the errors leave out. Only
        replicates tell it from a wider truth.
    correlation
        ``"fit"`` for errors whose columns go together in an unknown way, the same in all rows. Rows
        with different errors tell it, or replicates.
    groups
        ``(N,)`` labels of rows that share a zero point, as those of one instrument. The zero points
        are learned, up to their sum, which is zero: the truth is taken to have the same density in
        all groups.
    replicates
        ``(N,)`` labels, the same for rows that measure the same truth.

    Returns
    -------
    GaussianNoise or FreeErrors
        The latter if something is to be learned.

    Examples
    --------
    >>> gaussian(sd=[0.1, 0.2])
    GaussianNoise(rows=any number of, dim=2, shared=True)
    >>> gaussian(covariance=[[[0.1, 0.0], [0.0, 0.2]]] * 5)
    GaussianNoise(rows=5, dim=2, shared=False)
    >>> gaussian(sd=[[0.1], [0.2]], scale="fit")
    FreeErrors(GaussianNoise(rows=2, dim=1, shared=False), learned=scale)
    """
    if (sd is None) == (covariance is None):
        raise ValueError("Expected exactly one of sd and covariance; got both or neither.")
    if sd is not None:
        said = _from_sd(as_parameter(sd, "sd"))
    else:
        assert covariance is not None
        said = _from_covariance(as_parameter(covariance, "covariance"))
    free = (scale, jitter, correlation, groups, replicates)
    if all(each is None for each in free):
        return said
    return free_errors(
        said, scale=scale, jitter=jitter, correlation=correlation, groups=groups,
        replicates=replicates,
    )  # fmt: skip


def _from_sd(sd: Array) -> GaussianNoise:
    if sd.ndim not in (1, 2):
        raise ValueError(
            f"Expected standard deviations (sd) of shape (D,) or (N, D); got {tuple(sd.shape)}."
        )
    shared = sd.ndim == 1
    rows = sd[None] if shared else sd
    _refuse(~np.isfinite(rows), "finite standard deviations (sd)", rows, shared)
    _refuse(rows < 0, "standard deviations (sd) of at least zero", rows, shared)
    return GaussianNoise(rows.copy(), shared, None if shared else len(rows))


def _from_covariance(covariance: Array) -> GaussianNoise:
    if covariance.ndim not in (2, 3) or covariance.shape[-1] != covariance.shape[-2]:
        raise ValueError(
            f"Expected covariances of shape (D, D) or (N, D, D); got {tuple(covariance.shape)}."
        )
    shared = covariance.ndim == 2
    rows = covariance[None] if shared else covariance
    _refuse(~np.isfinite(rows), "finite covariances", rows, shared)
    return GaussianNoise(checked_factor(rows, shared), shared, None if shared else len(rows))


def checked_factor(rows: Array, shared: bool) -> Array:
    """Factor covariances ``(N, D, D)``, or name the first that is none, whatever its units."""
    factor = np.empty_like(rows)
    for some in row_slices(len(rows), ARRAYS * rows[0].size):
        factor[some] = _factor_of_piece(rows[some], shared, some.start)
    return factor


def _factor_of_piece(rows: Array, shared: bool, first: int) -> Array:
    """Factor some covariances, the first of which has this number."""
    variances = np.diagonal(rows, axis1=1, axis2=2)
    _refuse(variances < 0, "variances of at least zero", variances, shared, first)
    sds = np.sqrt(variances)
    size = sds[:, :, None] * sds[:, None]
    uneven = np.abs(rows - rows.swapaxes(1, 2)) > 1e-6 * size
    _refuse(uneven, "symmetric covariances", rows, shared, first)
    units = np.where(sds > 0, sds, 1.0)
    correlation = 0.5 * (rows + rows.swapaxes(1, 2)) / (units[:, :, None] * units[:, None])
    return psd_cholesky(correlation, shared=shared, first=first) * units[..., None]


def _refuse(bad: Any, expected: str, values: Array, shared: bool, first: int = 0) -> None:
    position = first_bad(bad)
    if position is not None:
        where = place(position[1:] if shared else (first + position[0], *position[1:]))
        where = where.replace("row", "dimension", 1).replace("column", "and") if shared else where
        raise ValueError(f"Expected {expected} as noise; got {values[position]:g} at {where}.")


def psd_cholesky(covariance: Array, *, shared: bool = False, first: int = 0) -> Array:
    """Factor positive semi-definite ``(N, D, D)`` as ``L L'`` with ``L`` lower triangular.

    Errors count rows from ``first``.
    """
    try:
        return np.asarray(np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
    position = first_bad(values[:, 0] < -1e-7 * np.abs(values).max(-1))
    if position is not None:
        row = "" if shared else f" in row {first + position[0]}"
        raise ValueError(
            "Expected positive semi-definite covariances as noise; "
            f"got the eigenvalue {values[position][0]:g}{row}."
        )
    singular = values[:, 0] <= 1e-13 * values[:, -1]
    factor = np.empty_like(covariance)
    factor[~singular] = np.linalg.cholesky(covariance[~singular])
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None]
    factor[singular] = _lower_from_root(roots[singular].swapaxes(1, 2))
    return factor


def gaussian_waves(covariance: Array, t: Array) -> Complex:
    """``exp(-t' S t / 2)``, with the quadratic form of all rows and frequencies as one product."""
    dim = t.shape[1]
    products = (t[:, :, None] * t[:, None]).reshape(-1, dim * dim)
    form = covariance.reshape(-1, dim * dim) @ products.T
    return np.exp(-0.5 * np.maximum(form, 0.0)) + 0j


def _lower_from_root(root: Array) -> Array:
    """Turn ``A'`` into the lower-triangular ``L`` with ``L L' = A A'`` and a positive diagonal."""
    upper = np.linalg.qr(root)[1]
    signs = np.where(np.diagonal(upper, axis1=1, axis2=2) < 0, -1.0, 1.0)
    return (upper * signs[..., None]).swapaxes(1, 2)


def _eye(noise: GaussianNoise) -> Any:
    return np.eye(noise.dim, dtype=bool)


def _whiten(factor: Any, residual: Any) -> Any:
    """Solve ``L x = r`` for factors ``(N or 1, D, D)`` and residuals ``(..., N, D)``."""
    xp, dim = array_namespace(residual), residual.shape[-1]
    if len(factor) == 1:
        white = solve_lower(factor[0], residual.reshape(-1, dim).swapaxes(0, 1))
        return white.swapaxes(0, 1).reshape(residual.shape)
    columns = xp.moveaxis(residual, -2, 0).reshape(residual.shape[-2], -1, dim).swapaxes(1, 2)
    white = solve_lower(factor, columns).swapaxes(1, 2)
    return xp.moveaxis(white.reshape(-1, *residual.shape[:-2], dim), 0, -2)
