r"""Gaussian noise, the fast path: shared or per row, diagonal or full."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self, overload

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import ndtri
from torch import Tensor

from deconflow._limits import row_slices
from deconflow.checks import as_parameter, first_bad, place
from deconflow.noise import fourier
from deconflow.noise.base import KeptDraws, Noise, RowIndex, flatten_cholesky
from deconflow.noise.catalogue import Array, Complex, as_array
from deconflow.noise.free_errors import FreeErrors, free_errors
from deconflow.noise.gaussian_parts import JointMixture
from deconflow.randomness import own_generator

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
ARRAYS = 8
"""Arrays of the size of the covariances that it takes to check and factor them."""


@dataclass(frozen=True, repr=False)
class GaussianNoise(Noise):
    r"""Noise :math:`n_i \sim N(0, S_i)`.

    Make one with :func:`gaussian`; the fields hold what has been checked.

    Attributes
    ----------
    factor : Tensor
        Standard deviations ``(N or 1, D)``, or Cholesky factors ``(N or 1, D, D)``.
    observed : Tensor or None
        Boolean ``(N, D)``: the values that :meth:`log_prob` looks at; None for all.
    """

    factor: Tensor
    shared: bool
    n_rows: int | None
    observed: Tensor | None = None
    kept: KeptDraws | None = None

    @property
    def dim(self) -> int:  # type: ignore[override]
        """Number of measured values per row."""
        return self.factor.shape[-1]

    @property
    def diagonal(self) -> bool:
        """Whether the values of a row have independent noise."""
        return self.factor.dim() == 2

    @property
    def independent(self) -> bool:  # type: ignore[override]
        """Whether the values of a row have independent noise."""
        return self.diagonal

    @cached_property
    def _product(self) -> Tensor:
        """Covariances of full factors, multiplied out once."""
        return self.factor @ self.factor.mT

    def log_prob(self, residual: Tensor) -> Tensor:
        """Log density of residuals ``(..., N, D)``, as ``(..., N)``."""
        white = self._whiten(residual)
        pivots = self.factor if self.diagonal else self.factor.diagonal(dim1=-2, dim2=-1)
        if pivots.numel() and pivots.amin() == 0:
            raise ValueError(
                "Expected noise of positive variance where its density is asked for; got none. "
                "Exact values have no density about the truth: leave them out, or give them one."
            )
        per_value = -0.5 * white.square() - pivots.log() - HALF_LOG_2PI
        if self.observed is not None:
            per_value = torch.where(self.observed, per_value, 0.0)
        return per_value.sum(-1)

    def sample(self, k: int) -> Tensor:
        """Draw ``(k, N, D)``."""
        white = torch.randn(
            k,
            len(self),
            self.dim,
            dtype=self.factor.dtype,
            device=self.factor.device,
            generator=own_generator(self.factor.device),
        )
        return white * self.factor if self.diagonal else _multiply(self.factor, white)

    def from_uniform(self, share: Array) -> Array:
        """Make noise ``(K, N, D)`` of as many uniform numbers."""
        white, factor = ndtri(share), as_array(self.factor)
        if self.diagonal:
            return white * factor
        factor = np.broadcast_to(factor, (white.shape[1], self.dim, self.dim))
        return np.einsum("nij,knj->kni", factor, white)

    def mean(self) -> Tensor:
        """Zeros, ``(1, D)``."""
        return self.factor.new_zeros(1, self.dim)

    def covariance(self) -> Tensor:
        """Covariances ``(N or 1, D, D)``."""
        if self.diagonal:
            return torch.diag_embed(self.factor.square())
        return self._product

    def variance(self) -> Tensor:
        """Variances ``(N or 1, D)``."""
        return self.factor.square() if self.diagonal else self.factor.square().sum(-1)

    def cholesky(self) -> Tensor:
        """Cholesky factors ``(N or 1, D, D)``."""
        return torch.diag_embed(self.factor) if self.diagonal else self.factor

    def features(self) -> Tensor:
        """Flattened Cholesky factors ``(N or 1, D (D + 1) / 2)``."""
        return flatten_cholesky(self.cholesky())

    def as_mixture(self) -> JointMixture:
        """Return the mixture of one Gaussian, itself."""
        covariance = self.variance() if self.diagonal else self.covariance()
        return JointMixture(np.ones((1, 1)), None, as_array(covariance)[:, None])

    def value_characteristics(self, t: Array) -> Complex:
        """Characteristic functions ``(N or 1, T, D)`` of each value by itself."""
        return np.exp(-0.5 * np.square(as_array(self.factor)[:, None] * t)) + 0j

    def characteristic(self, t: Array) -> Complex:
        """Characteristic functions ``(N or 1, T)`` of rows."""
        return fourier.of_gaussian(as_array(self.covariance()), t)

    def restrict(self, observed: Tensor) -> GaussianNoise:
        """Return the marginal law of the observed values; the others get an idle unit variance."""
        if self.diagonal:
            factor = torch.where(observed, self.factor, 1.0)
        else:
            both = observed.unsqueeze(-1) & observed.unsqueeze(-2)
            idle = torch.diag_embed((~observed).to(self.factor.dtype))
            factor = psd_cholesky(torch.where(both, self.covariance(), 0.0) + idle)
        return GaussianNoise(factor, shared=False, n_rows=len(observed), observed=observed)

    def divide(self, scale: Tensor) -> Self:
        """Return the law of ``n / scale``."""
        scale = scale.to(self.factor)
        factor = self.factor / (scale if self.diagonal else scale.unsqueeze(-1))
        if self.observed is not None:  # keep the idle pivots at one
            idle = ~self.observed if self.diagonal else torch.diag_embed(~self.observed)
            factor = torch.where(idle, 1.0, factor)
        return replace(self, factor=factor, kept=None)

    def floor(self, sd: float) -> GaussianNoise:
        """Return the law with covariance ``S + sd^2 I``."""
        if self.diagonal:
            return replace(self, factor=(self.factor.square() + sd**2).sqrt())
        eye = torch.eye(self.dim, dtype=self.factor.dtype, device=self.factor.device)
        factor, failed = torch.linalg.cholesky_ex(self.covariance() + sd**2 * eye)
        bad = failed > 0
        if bad.any():  # too thin for a sum: S + sd^2 I = [L, sd I] [L, sd I]', by its QR
            stacked = torch.cat([self.factor[bad].mT, sd * eye.expand(int(bad.sum()), -1, -1)], 1)
            factor[bad] = _lower_from_root(stacked)
        return replace(self, factor=factor)

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Self:
        """Move to another precision or device."""
        observed = self.observed if self.observed is None else self.observed.to(device=device)
        return replace(self, factor=self.factor.to(dtype=dtype, device=device), observed=observed)

    def _take(self, rows: RowIndex, n_rows: int) -> Self:
        if self.shared:
            return self if n_rows == self.n_rows else replace(self, n_rows=n_rows)
        observed = None if self.observed is None else self.observed[rows]
        kept = None if self.kept is None else self.kept[rows]
        taken = replace(self, factor=self.factor[rows], n_rows=n_rows, observed=observed, kept=kept)
        if "_product" in vars(self):  # what is known of all rows is known of some
            vars(taken)["_product"] = self._product[rows]
        return taken

    def _whiten(self, residual: Tensor) -> Tensor:
        if self.diagonal:
            return residual / self.factor
        if self.shared:
            columns = residual.reshape(-1, self.dim).mT
            white = torch.linalg.solve_triangular(self.factor[0], columns, upper=False)
            return white.mT.reshape(residual.shape)
        columns = residual.movedim(-2, 0).reshape(residual.shape[-2], -1, self.dim).mT
        white = torch.linalg.solve_triangular(self.factor, columns, upper=False).mT
        leading = residual.shape[:-2]
        return white.reshape(-1, *leading, self.dim).movedim(0, -2)


@overload
def gaussian(
    *, sd: ArrayLike | Tensor | None = None, covariance: ArrayLike | Tensor | None = None
) -> GaussianNoise: ...


@overload
def gaussian(
    *,
    sd: ArrayLike | Tensor | None = None,
    covariance: ArrayLike | Tensor | None = None,
    scale: Literal["fit"] | None = None,
    jitter: Literal["fit"] | None = None,
    correlation: Literal["fit"] | None = None,
    groups: Any = None,
    replicates: Any = None,
) -> GaussianNoise | FreeErrors: ...


def gaussian(
    *,
    sd: ArrayLike | Tensor | None = None,
    covariance: ArrayLike | Tensor | None = None,
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


def _from_sd(sd: Tensor) -> GaussianNoise:
    if sd.dim() not in (1, 2):
        raise ValueError(
            f"Expected standard deviations (sd) of shape (D,) or (N, D); got {tuple(sd.shape)}."
        )
    shared = sd.dim() == 1
    rows = sd.unsqueeze(0) if shared else sd
    _refuse(~torch.isfinite(rows), "finite standard deviations (sd)", rows, shared)
    _refuse(rows < 0, "standard deviations (sd) of at least zero", rows, shared)
    return GaussianNoise(rows.clone(), shared, None if shared else len(rows))


def _from_covariance(covariance: Tensor) -> GaussianNoise:
    if covariance.dim() not in (2, 3) or covariance.shape[-1] != covariance.shape[-2]:
        raise ValueError(
            f"Expected covariances of shape (D, D) or (N, D, D); got {tuple(covariance.shape)}."
        )
    shared = covariance.dim() == 2
    rows = covariance.unsqueeze(0) if shared else covariance
    _refuse(~torch.isfinite(rows), "finite covariances", rows, shared)
    return GaussianNoise(checked_factor(rows, shared), shared, None if shared else len(rows))


def checked_factor(rows: Tensor, shared: bool) -> Tensor:
    """Factor covariances ``(N, D, D)``, or name the first that is none, whatever its units."""
    factor = torch.empty_like(rows)
    for some in row_slices(len(rows), ARRAYS * rows[0].numel()):
        factor[some] = _factor_of_piece(rows[some], shared, some.start)
    return factor


def _factor_of_piece(rows: Tensor, shared: bool, first: int) -> Tensor:
    """Factor some covariances, the first of which has this number."""
    variances = rows.diagonal(dim1=-2, dim2=-1)
    _refuse(variances < 0, "variances of at least zero", variances, shared, first)
    sds = variances.sqrt()
    size = sds.unsqueeze(-1) * sds.unsqueeze(-2)
    _refuse((rows - rows.mT).abs() > 1e-6 * size, "symmetric covariances", rows, shared, first)
    units = torch.where(sds > 0, sds, 1.0)
    correlation = 0.5 * (rows + rows.mT) / (units.unsqueeze(-1) * units.unsqueeze(-2))
    return psd_cholesky(correlation, shared=shared, first=first) * units.unsqueeze(-1)


def _refuse(bad: Tensor, expected: str, values: Tensor, shared: bool, first: int = 0) -> None:
    position = first_bad(bad)
    if position is not None:
        where = place(position[1:] if shared else (first + position[0], *position[1:]))
        where = where.replace("row", "dimension", 1).replace("column", "and") if shared else where
        raise ValueError(f"Expected {expected} as noise; got {values[position]:g} at {where}.")


def psd_cholesky(covariance: Tensor, *, shared: bool = False, first: int = 0) -> Tensor:
    """Factor positive semi-definite ``(N, D, D)`` as ``L L'`` with ``L`` lower triangular.

    Errors count rows from ``first``.
    """
    factor, failed = torch.linalg.cholesky_ex(covariance)
    singular = failed > 0
    if singular.any():
        factor[singular] = _singular_cholesky(
            covariance[singular], first + singular.nonzero()[:, 0], shared
        )
    return factor


def _singular_cholesky(covariance: Tensor, rows: Tensor, shared: bool) -> Tensor:
    """Factor by eigenvalues: ``S = A A'``, and the R of ``A' = Q R`` is ``L'``."""
    values, vectors = torch.linalg.eigh(covariance)
    tolerance = 1e-7 if covariance.dtype == torch.float64 else 1e-4
    position = first_bad(values[:, 0] < -tolerance * values.abs().amax(-1))
    if position is not None:
        row = "" if shared else f" in row {int(rows[position])}"
        raise ValueError(
            "Expected positive semi-definite covariances as noise; "
            f"got the eigenvalue {values[position][0]:g}{row}."
        )
    return _lower_from_root((vectors * values.clamp_min(0).sqrt().unsqueeze(-2)).mT)


def _lower_from_root(root: Tensor) -> Tensor:
    """Turn ``A'`` into the lower-triangular ``L`` with ``L L' = A A'`` and a positive diagonal."""
    upper = torch.linalg.qr(root).R
    signs = torch.where(upper.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(upper)
    return (upper * signs.unsqueeze(-1)).mT


def _multiply(factor: Tensor, white: Tensor) -> Tensor:
    """Multiply ``(N or 1, D, D)`` factors with ``(K, N, D)`` vectors."""
    if factor.shape[0] == 1:
        return white @ factor[0].mT
    return torch.einsum("nij,knj->kni", factor, white)
