r"""Observations: what was measured, with its noise, checked once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from deconflow.checks import as_tensor, check_integer, first_bad, place, refuse_extremes
from deconflow.frames import limit_flags, plain_tables, refuse_other_rows
from deconflow.noise import (
    GaussianNoise,
    Noise,
    Reading,
    RowIndex,
    as_index,
    as_noise,
    limited,
)
from deconflow.randomness import own_generator


class OutOfReachError(ValueError):
    """A measurement to which the model gives no density at all."""


@dataclass(frozen=True)
class Observations:
    r"""Rows :math:`w_i = R_i v_i + n_i`; make them with :meth:`from_arrays`.

    Attributes
    ----------
    w : Tensor
        ``(N, M)`` measured values, zero where missing.
    noise : Noise
        The law of each row's noise, restricted to what was observed.
    observed : Tensor or None
        Boolean ``(N, M)``; None if nothing is missing.
    projection : Tensor or None
        ``(N, M, D)``, zero rows where missing; None for the identity.
    weights : Tensor or None
        ``(N,)`` non-negative, with mean one; None for equal weights.
    groups : Tensor or None
        ``(N,)`` whole numbers, the same for rows that belong together: these are never split
        between a fit and the rows it is judged by. None for rows on their own.
    given : array or None
        ``(N, C)`` covariates, as numbers that are known exactly: the density in question is that
        of the truth given these. None for none.
    """

    w: Tensor
    noise: Noise
    observed: Tensor | None = None
    projection: Tensor | None = None
    weights: Tensor | None = None
    groups: Tensor | None = None
    given: NDArray[np.float64] | None = None

    @classmethod
    def from_arrays(
        cls,
        w: ArrayLike | Tensor,
        noise: Any,
        *,
        projection: ArrayLike | Tensor | None = None,
        weights: ArrayLike | Tensor | None = None,
        groups: Any = None,
        limits: Any = None,
    ) -> Self:
        """Check arrays and make observations of them.

        Parameters
        ----------
        w
            ``(N, M)`` measured values; NaN or a masked cell marks a missing one.
        noise
            See :func:`deconflow.noise.as_noise`; the columns of a table of errors find those of a
            table of values by their names.
        projection
            ``(N, M, D)``, or ``(M, D)`` for all rows: what the measurement sees of the truth.
        weights
            ``(N,)`` non-negative row weights.
        groups
            ``(N,)`` labels, the same for rows that belong together.
        limits
            ``(N, M)``: -1 for an upper limit in ``w``, 1 for a lower one, 0 for a measured value;
            see :func:`deconflow.noise.limited`. A table's columns ``x`` or ``x_limit`` find those
            of a table of values.

        Examples
        --------
        >>> data = Observations.from_arrays([[1.0, 2.0], [3.0, float("nan")]], [0.1, 0.2])
        >>> len(data), data.latent_dim
        (2, 2)
        """
        w, noise = plain_tables(w, noise)
        if weights is not None:
            weights = check_weights(w, weights, "weights")
        if groups is not None:
            groups = check_groups(w, groups)
        if limits is not None:
            noise = limited(noise, limit_flags(w, limits))
        w = check_measured(w, "w")
        if isinstance(noise, Reading):
            if projection is not None and noise.truth_ends != (None, None):
                raise ValueError(
                    "Expected no projection with noise whose truth has ends, as that of counts; "
                    "got one. Fit the measured values themselves."
                )
            w, noise = noise.read(w)
        observed = None if not w.isnan().any() else ~w.isnan()
        law = as_noise(noise, w.shape[0], w.shape[1], observed)
        checked = _checked_projection(projection, w.shape)
        for name, values in (("w", w), ("noise", noise_sizes(law)), ("projection", checked)):
            if values is not None:
                refuse_extremes(name, values)
        if observed is not None:
            w = torch.where(observed, w, 0.0)
            checked = None if checked is None else torch.where(observed.unsqueeze(-1), checked, 0.0)
        return cls(w, law, observed, checked, weights, groups)

    def __len__(self) -> int:
        return len(self.w)

    def __getitem__(self, rows: RowIndex) -> Self:
        """Take rows: a slice is a view, indices copy just the rows they name."""
        rows = as_index(rows, len(self))
        return replace(
            self,
            w=self.w[rows],
            noise=self.noise[rows],
            observed=None if self.observed is None else self.observed[rows],
            projection=None if self.projection is None else self.projection[rows],
            weights=None if self.weights is None else self.weights[rows],
            groups=None if self.groups is None else self.groups[rows],
            given=None if self.given is None else self.given[rows],
        )

    @property
    def dim(self) -> int:
        """Number of measured values per row."""
        return self.w.shape[1]

    @property
    def latent_dim(self) -> int:
        """Number of dimensions of the truth ``v``."""
        return self.dim if self.projection is None else self.projection.shape[-1]

    def projections(self) -> Tensor:
        """Return what each row sees of the truth, ``(N or 1, M, D)``, zero rows where missing."""
        if self.projection is not None:
            return self.projection
        if self.observed is not None:
            return torch.diag_embed(self.observed.to(self.w.dtype))
        return torch.eye(self.dim, dtype=self.w.dtype, device=self.w.device).unsqueeze(0)

    def residual(self, v: Tensor) -> Tensor:
        """Return ``w - R v`` for ``v`` of shape ``(K, N, D)``, zero where missing."""
        if self.projection is not None:
            return self.w - torch.einsum("nmd,knd->knm", self.projection, v)
        r = self.w - v
        return r if self.observed is None else torch.where(self.observed, r, 0.0)

    def measured(self) -> NDArray[np.float64]:
        """Return ``w`` as an array, with NaN where a value is missing."""
        w = self.w.double().numpy()
        return w if self.observed is None else np.where(self.observed.numpy(), w, np.nan)

    def log_likelihood(self, v: Tensor) -> Tensor:
        """Log density ``log p(w | v)`` for ``v`` of shape ``(K, N, D)``, as ``(K, N)``."""
        return self.noise.log_prob(self.residual(v))

    def remeasure(self, v: Tensor) -> Self:
        """Measure other true values ``(N, D)`` as these rows were: each with its own noise."""
        w = v if self.projection is None else torch.einsum("nmd,nd->nm", self.projection, v)
        w, noise = self.noise.measure(w, self.w)
        if self.observed is not None:
            w = torch.where(self.observed, w, 0.0)
        return replace(self, w=w, noise=noise)

    def features(self) -> Tensor:
        """What a network may look at: ``w``, its noise, what is missing, projection.

        Last which values are limits, if any are.
        """
        seen = torch.ones_like(self.w) if self.observed is None else self.observed.to(self.w.dtype)
        parts = [self.w, self.noise.features().expand(len(self), -1), seen]
        if self.projection is not None:
            parts.append(self.projection.flatten(1))
        if self.noise.flags is not None:
            parts.append(self.noise.flags)
        return torch.cat(parts, -1)

    def with_weight(self) -> Self:
        """Leave the rows of weight zero out."""
        if self.weights is None:
            return self
        positive = self.weights > 0
        weights = self.weights[positive]
        return replace(self[positive], weights=weights / weights.mean())

    def group_codes(self) -> NDArray[np.int64] | None:
        """Return a code for each row, from zero; None if all rows are on their own."""
        if self.groups is None:
            return None
        codes = np.unique(self.groups.cpu().numpy(), return_inverse=True)[1].astype(np.int64)
        return codes if codes.max(initial=0) + 1 < len(codes) else None

    def fewest_groups(self) -> int:
        """Count the groups that measure a column, for the column that fewest do; or the rows."""
        codes = self.group_codes()
        seen = np.ones((len(self), 1), bool) if self.observed is None else self.observed.numpy()
        if codes is not None:
            seen = seen_in_groups(seen, codes)
        return int(seen.sum(0).min())

    def split(self, fraction: float) -> tuple[Self, Self]:
        """Shuffle and split off a ``fraction`` (at least one row) as the second part.

        A group stays together, so that the second part may be somewhat smaller; it is larger where
        every group is.
        """
        order = torch.randperm(len(self), generator=own_generator())
        n_second = max(1, round(fraction * len(self)))
        if n_second >= len(self):
            raise ValueError(
                f"Expected enough rows in w to hold out {fraction:g} of them; got {len(self)} rows."
            )
        codes = self.group_codes()
        if codes is None:
            return self[order[n_second:]], self[order[:n_second]]
        held = torch.from_numpy(hold_out(codes, order.numpy(), n_second))[order]
        return self[order[~held]], self[order[held]]

    def chunks(self, size: int) -> Iterator[Self]:
        """Walk through the rows in order, as views of at most ``size`` rows."""
        check_integer("size", size, 1)
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Self:
        """Move to another precision or device."""

        def move(x: Tensor | None) -> Tensor | None:
            return None if x is None else x.to(dtype=dtype, device=device)

        return replace(
            self,
            w=self.w.to(dtype=dtype, device=device),
            noise=self.noise.to(dtype=dtype, device=device),
            observed=None if self.observed is None else self.observed.to(device=device),
            projection=move(self.projection),
            weights=move(self.weights),
            groups=None if self.groups is None else self.groups.to(device=device),
        )


@dataclass(frozen=True)
class Pairs:
    """Observations, each with a true value ``v`` of shape ``(N, D)``."""

    observations: Observations
    v: Tensor

    def __post_init__(self) -> None:
        expected = (len(self.observations), self.observations.latent_dim)
        if tuple(self.v.shape) != expected:
            raise ValueError(f"Expected v of shape {expected}; got {tuple(self.v.shape)}.")

    @property
    def weights(self) -> Tensor | None:
        """Row weights of the observations."""
        return self.observations.weights

    def __len__(self) -> int:
        return len(self.observations)

    def __getitem__(self, rows: RowIndex) -> Self:
        return type(self)(self.observations[rows], self.v[rows])

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Self:
        """Move to another precision or device."""
        moved = self.observations.to(dtype=dtype, device=device)
        return type(self)(moved, self.v.to(dtype=dtype, device=device))


def refuse_unreached(
    unreached: NDArray[np.bool_],
    first_row: int = 0,
    advice: str = " in double precision. Look at that row",
    name: str = "w",
) -> None:
    """Raise where no point has a density for a row, counted from ``first_row``."""
    position = first_bad(unreached)
    if position is not None:
        raise OutOfReachError(
            f"Expected {'measurements' if name == 'w' else 'values'} that the model can reach; "
            f"got row {first_row + position[0]} of {name}, whose density is zero{advice}."
        )


@contextmanager
def rows_counted_from(first: int) -> Iterator[None]:
    """Let an error about a row out of reach name it by its number in the whole, not in a part."""
    try:
        yield
    except OutOfReachError as error:
        said = re.sub(r"\brow (\d+)", lambda row: f"row {first + int(row[1])}", str(error))
        raise OutOfReachError(said) from error


def noise_sizes(noise: Noise) -> Tensor:
    """Return standard deviations, or factors of covariances: numbers as large as the noise."""
    return noise.factor if isinstance(noise, GaussianNoise) else noise.variance().sqrt()


def check_measured(values: ArrayLike | Tensor, name: str) -> Tensor:
    """Raise unless these are rows of finite values, or NaN, with something in every row."""
    w = as_tensor(values, name)
    check_rows_and_columns(w.shape, name)
    position = first_bad(w.isinf())
    if position is not None:
        raise ValueError(
            f"Expected finite values in {name}, or NaN for missing ones; got inf at "
            f"{place(position)}."
        )
    position = first_bad(w.isnan().all(1))
    if position is not None:
        raise ValueError(
            f"Expected at least one measured value in every row of {name}; "
            f"got only NaN or masked cells in {place(position)}. Drop such rows."
        )
    return w


def check_rows_and_columns(shape: Sequence[int], name: str) -> None:
    """Raise unless this is the shape of a table that is not empty."""
    if len(shape) != 2:
        raise ValueError(
            f"Expected {name} of shape (N, D); got {tuple(shape)}. Reshape your data: "
            f"{name}.reshape(-1, 1) for one dimension, {name}.reshape(1, -1) for one row."
        )
    if 0 in shape:
        what = "sample" if shape[0] == 0 else "feature"  # by these words scikit-learn knows it
        raise ValueError(
            f"Expected at least one row and one column in {name}; got 0 {what}(s) "
            f"(shape={tuple(shape)}) while a minimum of 1 is required."
        )


def check_weights(w: Any, weights: ArrayLike | Tensor, name: str) -> Tensor:
    """Check a weight for each row of ``w``, and bring them to a mean of one."""
    values = raw_weights(w, weights, name)
    if values.sum() == 0:
        raise ValueError(f"Expected at least one positive weight in {name}; got zeros only.")
    return values / values.mean()


def raw_weights(w: Any, weights: ArrayLike | Tensor, name: str) -> Tensor:
    """Check a weight for each row of ``w``, all of which may be zero."""
    if hasattr(weights, "iloc"):
        refuse_other_rows(w, weights, name)
    values = as_tensor(weights, name)
    if values.shape != (len(w),):
        raise ValueError(f"Expected {name} of shape ({len(w)},); got {tuple(values.shape)}.")
    position = first_bad(~(values >= 0) | ~values.isfinite())
    if position is not None:
        raise ValueError(
            f"Expected finite {name} of at least zero; "
            f"got {values[position]:g} in {place(position)}."
        )
    return values


def check_groups(w: Any, groups: Any, name: str = "groups") -> Tensor:
    """Check a label for each row of ``w``, of any kind, and number the different ones."""
    if isinstance(groups, str | bytes | dict | set | frozenset) or not hasattr(groups, "__len__"):
        raise TypeError(f"Expected {name} as a label for each row; got {groups!r}.")
    if hasattr(groups, "iloc"):
        refuse_other_rows(w, groups, name)
    shape = tuple(groups.shape) if hasattr(groups, "shape") else (len(groups),)
    if shape != (len(w),):
        raise ValueError(f"Expected {name} of shape ({len(w)},); got {shape}.")
    as_list = getattr(groups, "tolist", None) or getattr(groups, "to_list", None)
    codes: dict[Any, int] = {}
    found = np.empty(len(w), np.int64)
    for row, label in enumerate(as_list() if as_list else groups):
        try:
            missing = label is None or type(label).__name__ == "NAType" or label != label
            found[row] = codes.setdefault(label, len(codes))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"Expected {name} as one label for each row, a number or text; "
                f"got {type(label).__name__} in row {row}."
            ) from error
        if missing:
            raise ValueError(
                f"Expected a label for every row in {name}; got {label} in row {row}. "
                "Give a row that belongs to no other a label of its own."
            )
    return torch.from_numpy(found)


def seen_in_groups(seen: NDArray[np.bool_], codes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say of each group which columns some of its rows measure, from ``(N, M)`` of the rows."""
    return np.stack([np.bincount(codes, weights=column) > 0 for column in seen.T], axis=1)


def hold_out(codes: NDArray[np.int64], order: NDArray[np.int64], wanted: int) -> NDArray[np.bool_]:
    """Choose groups of about so many rows to hold out: whole ones, those of the first rows first.

    ``order`` are the numbers of the rows, by chance. Where no group is small enough, the smallest
    is held out.
    """
    first_rows = order[np.sort(np.unique(codes[order], return_index=True)[1])]
    groups, sizes = codes[first_rows], np.bincount(codes)
    if len(groups) < 2:
        raise ValueError("Expected rows of at least 2 groups, to hold one out; got 1 group.")
    chosen, room = np.zeros(len(sizes), bool), wanted
    for group in groups:
        if sizes[group] <= room:
            chosen[group] = True
            room -= sizes[group]
        if room == 0:
            break
    if not chosen.any():
        chosen[groups[sizes[groups].argmin()]] = True
    return chosen[codes]


def _checked_projection(projection: ArrayLike | Tensor | None, shape: torch.Size) -> Tensor | None:
    if projection is None:
        return None
    R = as_tensor(projection, "projection")
    n_rows, dim = shape
    if R.dim() == 2 and len(R) == dim:
        R = R.expand(n_rows, *R.shape)
    if R.dim() != 3 or R.shape[:2] != shape or R.shape[-1] == 0:
        raise ValueError(
            f"Expected projection of shape ({n_rows}, {dim}, D) or ({dim}, D); "
            f"got {tuple(R.shape)}."
        )
    position = first_bad(~R.isfinite().all(-1))
    if position is not None:
        raise ValueError(f"Expected finite values in projection; got others in {place(position)}.")
    return R
