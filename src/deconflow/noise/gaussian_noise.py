r"""Gaussian noise: shared or per row, diagonal or full, known or to be learned."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from deconflow._limits import row_slices
from deconflow._types import Array, Complex
from deconflow.checks import (
    array_namespace,
    as_array,
    as_parameter,
    diagonals,
    like,
    refuse_if,
    refuse_where,
    solve_lower,
    take,
)
from deconflow.noise.base import (
    JointMixture,
    Noise,
    OfRows,
    as_index,
    flatten_cholesky,
    total,
)
from deconflow.randomness import normal

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
#: Arrays of the size of the covariances that it takes to check and factor them.
ARRAYS = 8
Labels = NDArray[np.object_]


@dataclass(frozen=True, repr=False)
class GaussianNoise(Noise):
    r"""Noise :math:`n_i \sim N(0, S_i)`.

    Make one with :func:`gaussian`; the fields hold what has been checked.

    Attributes
    ----------
    factor : array
        Standard deviations ``(N or 1, D)``, or Cholesky factors ``(N or 1, D, D)``.
    """

    factor: Any
    by_row = ("factor",)

    @property
    def diagonal(self) -> bool:
        """Whether the values of a row have independent noise."""
        return self.factor.ndim == 2

    independent = diagonal  # type: ignore[assignment]

    def log_prob(self, residual: Any) -> Any:
        """Log density of residuals ``(..., N, D)``, as ``(..., N)``."""
        xp, factor = array_namespace(residual), like(self.factor, residual)
        pivots = factor if self.diagonal else xp.linalg.diagonal(factor)
        refuse_if(
            0 not in pivots.shape and xp.min(pivots) == 0,
            "Expected noise of positive variance where its density is asked for; got none. "
            "Exact values have no density about the truth: leave them out, or give them one.",
        )
        white = residual / factor if self.diagonal else _whiten(factor, residual)
        return total(-0.5 * white**2 - xp.log(pivots) - HALF_LOG_2PI, self.observed)

    def sample(self, k: int) -> Any:
        """Draw ``(k, N, D)``."""
        return self._coloured(normal((k, len(self), self.dim), self.factor))

    def from_uniform(self, share: Array) -> Array:
        """Make noise ``(K, N, D)`` of as many uniform numbers."""
        return self._coloured(like(ndtri(share), self.factor))

    def _coloured(self, white: Any) -> Any:
        return white * self.factor if self.diagonal else (self.factor @ white[..., None])[..., 0]

    def mean(self) -> Any:
        """Zeros, ``(1, D)``."""
        return 0 * (self.factor[:1] if self.diagonal else self.factor[:1, :, 0])

    def covariance(self) -> Any:
        """Covariances ``(N or 1, D, D)``."""
        factor = self.factor
        return diagonals(factor**2) if self.diagonal else factor @ factor.swapaxes(-1, -2)

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
            factor = psd_cholesky(
                np.where(
                    observed[:, :, None] & observed[:, None], self.covariance(), np.eye(self.dim)
                )
            )
        return GaussianNoise(factor, n_rows=len(observed), observed=observed)

    def divide(self, scale: Any) -> Self:
        """Return the law of ``n / scale``."""
        factor = self.factor / (scale if self.diagonal else scale[..., None])
        if self.observed is not None:  # keep the idle pivots at one
            idle = ~self.observed
            if not self.diagonal:
                idle = idle[..., None] & np.eye(self.dim, dtype=bool)
            factor = np.where(idle, 1.0, factor)
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


@dataclass(frozen=True, repr=False)
class FreeErrors(OfRows):
    """What ``fit`` takes in the place of a law of noise, to learn that law with the density.

    Make one with :func:`deconflow.noise.gaussian`. Questions to the model that was fitted take the
    same kind, and use what was learned.

    Attributes
    ----------
    said : GaussianNoise
        The errors as they were said.
    scale, jitter, correlation : bool
        Whether to learn a factor on the errors of each column, a scatter that is added to them, and
        how the errors of different columns go together.
    groups : array or None
        Labels of rows that share a zero point.
    replicates : array or None
        Labels of rows that measure the same truth.
    """

    said: GaussianNoise
    scale: bool = False
    jitter: bool = False
    correlation: bool = False
    groups: Labels | None = None
    replicates: Labels | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is learned, in the words of :func:`deconflow.noise.gaussian`."""
        flags = [name for name in ("scale", "jitter", "correlation") if getattr(self, name)]
        return (*flags, "groups") if self.groups is not None else tuple(flags)

    def as_said(self) -> str:
        """Say how such errors are made."""
        return in_call(self.kinds, "sd" if self.said.diagonal else "covariance")

    @property
    def n_rows(self) -> int | None:  # type: ignore[override]
        """Number of rows; None if errors are the same for any number of them."""
        labels = [each for each in (self.groups, self.replicates) if each is not None]
        return len(labels[0]) if labels else self.said.n_rows

    @property
    def dim(self) -> int:  # type: ignore[override]
        """Number of measured values per row."""
        return self.said.dim

    def __getitem__(self, rows: Any) -> Self:
        rows = as_index(rows, self.n_rows)
        return replace(
            self,
            said=self.said if self.said.n_rows is None else self.said[rows],
            groups=take(self.groups, rows),
            replicates=take(self.replicates, rows),
        )

    def __repr__(self) -> str:
        return f"FreeErrors({self.said!r}, learned={', '.join(self.kinds)})"


def in_call(kinds: tuple[str, ...], errors: str = "sd") -> str:
    """Write the call that makes errors of which these are learned."""
    more = [f"{kind}=labels" if kind == "groups" else f'{kind}="fit"' for kind in kinds]
    return f"noise.gaussian({', '.join([f'{errors}=...', *more])})"


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
    refuse_if(
        (sd is None) == (covariance is None),
        "Expected exactly one of sd and covariance; got both or neither.",
    )
    said = from_covariance(covariance) if sd is None else from_sd(sd)
    learned = {"scale": scale, "jitter": jitter, "correlation": correlation}
    labels = {"groups": groups, "replicates": replicates}
    if all(each is None for each in (*learned.values(), *labels.values())):
        return said
    return _free_errors(said, learned, labels)


def _free_errors(
    said: GaussianNoise, learned: dict[str, Any], labels: dict[str, Any]
) -> FreeErrors:
    """Check what is to be learned of Gaussian errors."""
    for name, value in learned.items():
        refuse_if(
            value is not None and not (isinstance(value, str) and value == "fit"),
            f'Expected {name} as "fit" or None; got {value!r}. What is known of the errors '
            "belongs in sd or covariance.",
        )
    flags: dict[str, Any] = {name: value is not None for name, value in learned.items()}
    refuse_if(
        not any(flags.values()) and labels["groups"] is None,
        'Expected something to learn from replicates, as scale="fit"; got nothing. For rows '
        "that are only to be kept together use groups= of fit.",
    )
    refuse_if(
        flags["correlation"] and not said.diagonal,
        'Expected sd for correlation="fit"; got covariances, which say it already. Give sd.',
    )
    refuse_if(
        flags["correlation"] and said.dim < 2,
        'Expected at least 2 columns for correlation="fit"; got 1.',
    )
    checked: dict[str, Any] = {
        name: _labels(each, name) for name, each in labels.items() if each is not None
    }
    found = FreeErrors(said, **flags, **checked)
    rows = said.n_rows or found.n_rows
    for name, each in checked.items():
        refuse_if(
            len(each) != rows,
            f"Expected {name} of the noise with a label for each of {rows} rows; got {len(each)}.",
        )
    return found


def _labels(values: Any, name: str) -> Labels:
    """Take a label for each row, of numbers or text, as plain objects."""
    if isinstance(values, str | bytes | dict | set | frozenset) or not hasattr(values, "__len__"):
        raise TypeError(f"Expected {name} of the noise as a label for each row; got {values!r}.")
    as_list = getattr(values, "tolist", None) or getattr(values, "to_list", None)
    plain = as_list() if as_list else list(values)
    found = np.empty(len(plain), dtype=object)
    found[:] = plain
    refuse_if(
        any(isinstance(each, list | tuple | dict | set) for each in plain),
        f"Expected {name} of the noise as one label for each row, a number or text; got "
        "several in one.",
        TypeError,
    )
    return found


def from_sd(values: ArrayLike) -> GaussianNoise:
    """Make noise of standard deviations ``(D,)`` or ``(N, D)``."""
    sd = as_parameter(values, "sd")
    refuse_if(
        sd.ndim not in (1, 2),
        f"Expected standard deviations (sd) of shape (D,) or (N, D); got {tuple(sd.shape)}.",
    )
    shared = sd.ndim == 1
    sd = np.array(sd, ndmin=2)
    refuse_where(~np.isfinite(sd), "finite standard deviations (sd) as noise", sd, shared=shared)
    refuse_where(sd < 0, "standard deviations (sd) of at least zero as noise", sd, shared=shared)
    return GaussianNoise(sd, shared=shared, n_rows=None if shared else len(sd))


def from_covariance(values: Any) -> GaussianNoise:
    """Make noise of covariances ``(D, D)`` or ``(N, D, D)``."""
    covariance = as_parameter(values, "covariance")
    refuse_if(
        covariance.ndim not in (2, 3) or covariance.shape[-1] != covariance.shape[-2],
        f"Expected covariances of shape (D, D) or (N, D, D); got {tuple(covariance.shape)}.",
    )
    shared = covariance.ndim == 2
    rows = covariance[None] if shared else covariance
    refuse_where(~np.isfinite(rows), "finite covariances as noise", rows, shared=shared)
    return GaussianNoise(
        checked_factor(rows, shared), shared=shared, n_rows=None if shared else len(rows)
    )


def of_covariance(covariance: Array) -> GaussianNoise:
    """Make noise of covariances ``(D, D)`` or ``(N, D, D)``; of one column, of its errors."""
    one = covariance.shape[-1] == 1
    return from_sd(np.sqrt(covariance[..., 0])) if one else from_covariance(covariance)


def checked_factor(rows: Array, shared: bool) -> Array:
    """Factor covariances ``(N, D, D)``, or name the first that is none, whatever its units."""
    factor = np.empty_like(rows)
    for some in row_slices(len(rows), ARRAYS * rows[0].size):
        factor[some] = _factor_of_piece(rows[some], shared, some.start)
    return factor


def _factor_of_piece(rows: Array, shared: bool, first: int) -> Array:
    """Factor some covariances, the first of which has this number."""
    variances = np.diagonal(rows, axis1=1, axis2=2)
    refuse_where(
        variances < 0,
        "variances of at least zero as noise",
        variances,
        shared=shared,
        first=first,
    )
    sds = np.sqrt(variances)
    refuse_where(
        np.abs(rows - rows.swapaxes(1, 2)) > 1e-6 * sds[:, :, None] * sds[:, None],
        "symmetric covariances as noise",
        rows,
        shared=shared,
        first=first,
    )
    units = np.where(sds > 0, sds, 1.0)
    correlation = 0.5 * (rows + rows.swapaxes(1, 2)) / (units[:, :, None] * units[:, None])
    return psd_cholesky(correlation, shared=shared, first=first) * units[..., None]


def psd_cholesky(covariance: Array, *, shared: bool = False, first: int = 0) -> Array:
    """Factor positive semi-definite ``(N, D, D)`` as ``L L'`` with ``L`` lower triangular.

    Errors count rows from ``first``.
    """
    try:
        return np.asarray(np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
    least, most = values[:, 0], np.abs(values).max(-1)
    refuse_where(
        least < -1e-7 * most,
        "positive semi-definite covariances as noise",
        least,
        "the eigenvalue {:g}",
        shared=shared,
        first=first,
    )
    singular = values[:, 0] <= 1e-13 * values[:, -1]
    factor = np.empty_like(covariance)
    factor[~singular] = np.linalg.cholesky(covariance[~singular])
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None]
    factor[singular] = _lower_from_root(roots[singular].swapaxes(1, 2))
    return factor


def gaussian_waves(covariance: Array, t: Array) -> Complex:
    """``exp(-t' S t / 2)``, with the quadratic form of all rows and frequencies as one product."""
    t = np.asarray(t, dtype=np.float64)
    dim = t.shape[1]
    products = (t[:, :, None] * t[:, None]).reshape(-1, dim * dim)
    form = covariance.reshape(-1, dim * dim) @ products.T
    return np.exp(-0.5 * np.maximum(form, 0.0)) + 0j


def _lower_from_root(root: Array) -> Array:
    """Turn ``A'`` into the lower-triangular ``L`` with ``L L' = A A'`` and a positive diagonal."""
    upper = np.linalg.qr(root)[1]
    signs = np.where(np.diagonal(upper, axis1=1, axis2=2) < 0, -1.0, 1.0)
    return (upper * signs[..., None]).swapaxes(1, 2)


def _whiten(factor: Any, residual: Any) -> Any:
    """Solve ``L x = r`` for factors ``(N or 1, D, D)`` and residuals ``(..., N, D)``."""
    xp, dim = array_namespace(residual), residual.shape[-1]
    if len(factor) == 1:
        white = solve_lower(factor[0], residual.reshape(-1, dim).swapaxes(0, 1))
        return white.swapaxes(0, 1).reshape(residual.shape)
    columns = xp.moveaxis(residual, -2, 0).reshape(residual.shape[-2], -1, dim).swapaxes(1, 2)
    white = solve_lower(factor, columns).swapaxes(1, 2)
    return xp.moveaxis(white.reshape(-1, *residual.shape[:-2], dim), 0, -2)
