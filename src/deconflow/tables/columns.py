"""Which columns hold the measurements, and which hold their errors."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from deconflow.tables.noise_kinds import check_kind
from deconflow.tables.specs import parse_errors, parse_pairs

SYMMETRIC = ("{}_err", "{}_error", "e_{}", "sigma_{}")
NO_CORRELATIONS = "none"
UNEVEN = ("{}_err_lo", "{}_err_hi")

Bar = str | float
"""One side of an error bar: a column, or a number for all rows."""


@dataclass(frozen=True)
class Columns:
    """Columns of a table that are measurements, with where their noise is written.

    Attributes
    ----------
    names : tuple of str
        The ``D`` measured columns.
    errors : tuple
        For each of them the lower and the upper error bar: a column's name, or a number.
    correlations, covariances : tuple
        Triples of two measured columns and the column that holds what they share.
    noise : str
        Law of the noise; see :data:`~deconflow.tables.noise_kinds.KINDS`.
    df : float
        Degrees of freedom of Student-t noise.
    units : tuple
        Unit of each measured column, None where the table does not say.
    """

    names: tuple[str, ...]
    errors: tuple[tuple[Bar, Bar], ...]
    correlations: tuple[tuple[str, str, str], ...] = ()
    covariances: tuple[tuple[str, str, str], ...] = ()
    noise: str = "gaussian"
    df: float = 3.0
    units: tuple[str | None, ...] = ()

    def __post_init__(self) -> None:
        check_kind(self.noise, self.uneven, bool(self.correlations or self.covariances))

    @property
    def uneven(self) -> bool:
        """Whether some error bars are asymmetric."""
        return any(lower != upper for lower, upper in self.errors)

    @property
    def law(self) -> str:
        """Name of the law of the noise."""
        return "split-normal" if self.uneven else self.noise

    def needed(self, only: Sequence[str] | None = None) -> list[str]:
        """Columns that a table must have, for all measurements or only some."""
        wanted = self.names if only is None else tuple(only)
        pairs = [pair for pair in self.correlations + self.covariances if {*pair[:2]} <= {*wanted}]
        own = {pair[0] for pair in self.covariances if pair[0] == pair[1]}
        bars = [
            bar
            for name, both in zip(self.names, self.errors, strict=True)
            if name in wanted and name not in own
            for bar in both
            if isinstance(bar, str)
        ]
        return list(dict.fromkeys([*wanted, *bars, *(pair[2] for pair in pairs)]))

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Take what :meth:`as_dict` gave, after a trip through JSON."""
        try:
            return cls(
                names=tuple(map(str, values["names"])),
                errors=tuple((_bar(low), _bar(high)) for low, high in values["errors"]),
                correlations=tuple((str(a), str(b), str(c)) for a, b, c in values["correlations"]),
                covariances=tuple((str(a), str(b), str(c)) for a, b, c in values["covariances"]),
                noise=str(values["noise"]),
                df=float(values["df"]),
                units=tuple(None if unit is None else str(unit) for unit in values["units"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"Expected a description of columns; got a part: {error}") from error

    def describe(self) -> list[str]:
        """Say in plain words what is measured, and how well; one line a column."""
        lines = []
        for name, (lower, upper) in zip(self.names, self.errors, strict=True):
            bars = f"{lower}" if lower == upper else f"-{lower} +{upper}"
            shared = [c for a, b, c in self.correlations + self.covariances if name in (a, b)]
            lines.append(f"{name} with error {bars}" + (f"; {', '.join(shared)}" if shared else ""))
        return lines


def find_columns(
    available: Sequence[str],
    names: Sequence[str],
    *,
    errors: Sequence[str] = (),
    covariances: Sequence[str] = (),
    correlations: Sequence[str] = (),
    noise: str = "gaussian",
    df: float = 3.0,
    units: Sequence[str | None] = (),
) -> Columns:
    """Find the columns of errors, by what is said or else by their names.

    Parameters
    ----------
    available
        All columns of the table.
    names
        The measured ones.
    errors
        ``"x=x_sig"`` (a column), ``"x=0.1"`` (a number), ``"x=lower:upper"`` (asymmetric), or as
        many plain columns as there are names. What is not said is found by name: ``x_err``,
        ``x_error``, ``e_x``, ``sigma_x``, or ``x_err_lo`` with ``x_err_hi``.
    covariances, correlations
        ``"x:y=column"``; ``"x:x=column"`` is a variance. Correlations named ``x_y_corr`` are
        found without being said, unless correlations are ``["none"]``.
    noise, df
        Law of the noise, and the degrees of freedom of Student-t noise.
    units
        Unit of each name, if known.

    Examples
    --------
    >>> find_columns(["x", "y", "x_err", "e_y", "x_y_corr"], ["x", "y"]).needed()
    ['x', 'y', 'x_err', 'e_y', 'x_y_corr']
    """
    check_available(available, names)
    if len(set(names)) < len(names) or not names:
        raise ValueError(f"Expected one or more columns, each once; got {list(names)}.")
    said = parse_errors(errors, names, available)
    cov = parse_pairs(covariances, names, "--cov")
    corr: tuple[tuple[str, str, str], ...] = ()
    if list(correlations) != [NO_CORRELATIONS]:
        corr = parse_pairs(correlations, names, "--corr") or _corr_by_name(available, names, cov)
    own = {first for first, second, _ in cov if first == second}
    bars = tuple(
        said[name] if name in said else (0.0, 0.0) if name in own else _by_name(available, name)
        for name in names
    )
    found = Columns(
        tuple(names), bars, corr, cov, noise=noise, df=df, units=tuple(units or [None] * len(names))
    )
    check_available(available, found.needed())
    return found


def check_available(available: Sequence[str], names: Sequence[str], table: str = "") -> None:
    """Raise for the first column that the table lacks."""
    for name in names:
        if name not in available:
            near = difflib.get_close_matches(name, available, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            shown = ", ".join(available[:12]) + (", ..." if len(available) > 12 else "")
            raise ValueError(
                f"Expected the column {name!r}{' in ' + table if table else ''}; "
                f"got a table with {shown}.{hint}"
            )


def _by_name(available: Sequence[str], name: str) -> tuple[Bar, Bar]:
    found: list[tuple[Bar, Bar]] = [
        (column, column) for column in (form.format(name) for form in SYMMETRIC)
        if column in available
    ]  # fmt: skip
    low, high = (form.format(name) for form in UNEVEN)
    if low in available and high in available:
        found.append((low, high))
    if len(found) == 1:
        return found[0]
    if found:
        options = ", ".join(str(low) if low == high else f"{low}:{high}" for low, high in found)
        raise ValueError(
            f"Expected one error for column {name!r}; got several: {options}. "
            f"Name it: --errors {name}={found[0][0]}"
        )
    forms = ", ".join(form.format(name) for form in SYMMETRIC)
    raise ValueError(
        f"Expected the error of column {name!r} in {forms} or {low} with {high}; got none of them. "
        f"Name it: --errors {name}=COLUMN, or --errors {name}=0 if it is exact."
    )


def _corr_by_name(
    available: Sequence[str], names: Sequence[str], cov: Sequence[tuple[str, str, str]]
) -> tuple[tuple[str, str, str], ...]:
    known = {frozenset(pair[:2]) for pair in cov}
    found = []
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            for column in (f"{first}_{second}_corr", f"{second}_{first}_corr"):
                if column in available and frozenset((first, second)) not in known:
                    found.append((first, second, column))
                    break
    return tuple(found)


def _bar(value: Any) -> Bar:
    return value if isinstance(value, str) else float(value)
