"""Gaussian errors that are not quite known: as they were said, and what of them is open."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from deconflow.checks import take
from deconflow.noise.base import OfRows, as_index, count_rows

if TYPE_CHECKING:
    from deconflow.noise.gaussian_noise import GaussianNoise

Labels = NDArray[np.object_]


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

    said: "GaussianNoise"
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
        count_rows(rows, self.n_rows)
        return replace(
            self,
            said=self.said if self.said.n_rows is None else self.said[rows],
            groups=None if self.groups is None else take(self.groups, rows),
            replicates=None if self.replicates is None else take(self.replicates, rows),
        )

    def __repr__(self) -> str:
        return f"FreeErrors({self.said!r}, learned={', '.join(self.kinds)})"


def in_call(kinds: tuple[str, ...], errors: str = "sd") -> str:
    """Write the call that makes errors of which these are learned."""
    more = [f"{kind}=labels" if kind == "groups" else f'{kind}="fit"' for kind in kinds]
    return f"noise.gaussian({', '.join([f'{errors}=...', *more])})"


def free_errors(
    said: "GaussianNoise",
    *,
    scale: Any,
    jitter: Any,
    correlation: Any,
    groups: Any,
    replicates: Any,
) -> FreeErrors:
    """Check what is to be learned of Gaussian errors; see :func:`deconflow.noise.gaussian`."""
    flags = {"scale": scale, "jitter": jitter, "correlation": correlation}
    for name, value in flags.items():
        if value is not None and not (isinstance(value, str) and value == "fit"):
            raise ValueError(
                f'Expected {name} as "fit" or None; got {value!r}. What is known of the errors '
                "belongs in sd or covariance."
            )
    if all(value is None for value in flags.values()) and groups is None:
        raise ValueError(
            'Expected something to learn from replicates, as scale="fit"; got nothing. For rows '
            "that are only to be kept together use groups= of fit."
        )
    if correlation is not None and not said.diagonal:
        raise ValueError(
            'Expected sd for correlation="fit"; got covariances, which say it already. Give sd.'
        )
    if correlation is not None and said.dim < 2:
        raise ValueError('Expected at least 2 columns for correlation="fit"; got 1.')
    found = FreeErrors(
        said,
        **{name: value is not None for name, value in flags.items()},
        groups=_labels(groups, "groups"),
        replicates=_labels(replicates, "replicates"),
    )
    _refuse_lengths(found)
    return found


def _refuse_lengths(found: FreeErrors) -> None:
    for name in ("groups", "replicates"):
        labels = getattr(found, name)
        if labels is not None and len(labels) != (found.said.n_rows or found.n_rows):
            rows = found.said.n_rows or found.n_rows
            raise ValueError(
                f"Expected {name} of the noise with a label for each of {rows} rows; got "
                f"{len(labels)}."
            )


def _labels(values: Any, name: str) -> Labels | None:
    """Take a label for each row, of numbers or text, as plain objects."""
    if values is None:
        return None
    if isinstance(values, str | bytes | dict | set | frozenset) or not hasattr(values, "__len__"):
        raise TypeError(f"Expected {name} of the noise as a label for each row; got {values!r}.")
    as_list = getattr(values, "tolist", None) or getattr(values, "to_list", None)
    plain = as_list() if as_list else list(values)
    found = np.empty(len(plain), dtype=object)
    found[:] = plain
    if any(isinstance(each, list | tuple | dict | set) for each in plain):
        raise TypeError(
            f"Expected {name} of the noise as one label for each row, a number or text; got "
            "several in one."
        )
    return found
