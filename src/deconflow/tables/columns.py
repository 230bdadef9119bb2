"""Which columns hold the measurements, and which hold their errors."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from deconflow.tables.conventions import correlation_column, error_columns, likely_errors
from deconflow.tables.how import COUNTS, NOTHING_ELSE, How
from deconflow.tables.option_syntax import Bar, Bars, Pairs, parse_errors, parse_pairs

NO_CORRELATIONS = "none"
NOISE_KINDS = {
    "gaussian": "the error is the standard deviation",
    "student-t": "the error is the scale; see df=",
    "laplace": "the error is the standard deviation",
    "uniform": "the error is the half width, as from rounding",
    "split-normal": "asymmetric errors",
    "lognormal": "errors that multiply: the error is that of the logarithm, as 0.1 for 10 %",
    "poisson": "counts, without errors; the truth is a rate; see exposure=",
    "binomial": "counts out of trials=, without errors; the truth is a probability",
}
"""Laws of the noise by their names, and what an error means under each."""


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
        Law of the noise; see :data:`NOISE_KINDS`.
    df : float
        Degrees of freedom of Student-t noise.
    units : tuple
        Unit of each measured column, None where the table does not say.
    missing : tuple of float
        Numbers that stand for a missing value.
    how : How
        How rows were measured, where that is more than a value with an error.
    """

    names: tuple[str, ...]
    errors: tuple[Bars, ...]
    correlations: Pairs = ()
    covariances: Pairs = ()
    noise: str = "gaussian"
    df: float = 3.0
    units: tuple[str | None, ...] = ()
    missing: tuple[float, ...] = ()
    how: How = NOTHING_ELSE

    def __post_init__(self) -> None:
        kind, asymmetric = self.noise, self.asymmetric
        if kind not in NOISE_KINDS:
            raise ValueError(f"Expected noise= as one of {', '.join(NOISE_KINDS)}; got {kind!r}.")
        if asymmetric and kind not in ("gaussian", "split-normal"):
            raise ValueError(
                f"Expected noise='split-normal' for asymmetric errors; got {kind!r}. "
                "Give one error for each column, or leave noise= out."
            )
        if (self.correlations or self.covariances) and (kind != "gaussian" or asymmetric):
            raise ValueError(
                "Expected symmetric gaussian errors where columns are correlated; got "
                f"{'asymmetric errors' if asymmetric else kind}. Leave the correlated columns out."
            )

    @property
    def asymmetric(self) -> bool:
        """Whether some error bars are asymmetric."""
        return any(lower != upper for lower, upper in self.errors)

    @property
    def law(self) -> str:
        """Name of the law of the noise."""
        if self.how.draws:
            return "posterior samples"
        return "split-normal" if self.asymmetric else self.noise

    def scales(self) -> list[tuple[str, tuple[str, ...]]]:
        """Columns whose unit follows from others, with these: errors with one, covariances two."""
        with_variance = {first for first, second, _ in self.covariances if first == second}
        if self.how.replicates:
            pairs = zip(self.names, self.how.replicates, strict=True)
            return [(column, (name,)) for name, columns in pairs for column in columns]
        bars = [
            (bar, (name,))
            for name, both in zip(self.names, self.errors, strict=True)
            if name not in with_variance
            for bar in both
            if isinstance(bar, str)
        ]
        return bars + [(column, (a, b)) for a, b, column in self.covariances]

    def needed(self) -> list[str]:
        """Columns that a table must have."""
        shared = [column for _, _, column in self.correlations]
        scales = [column for column, _ in self.scales()]
        values = () if self.how.replicates else self.names
        return list(dict.fromkeys([*values, *scales, *shared, *self.how.needed()]))

    def place(self, name: str) -> str:
        """Name the column of a table that tells the unit of a measured one."""
        repeated = self.how.replicates
        return repeated[self.names.index(name)][0] if repeated else name

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self) | {"how": self.how.as_dict()}

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
                missing=tuple(map(float, values.get("missing", ()))),
                how=How.from_dict(dict(values.get("how", {}))),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"Expected a description of columns; got a part: {error}") from error

    def describe(self) -> list[str]:
        """Say in plain words what is measured, and how well; one line per column."""
        joint = "" if self._other_words() else "with error "
        pairs = zip(self.names, self.error_words(), strict=True)
        return [f"{name} {joint}{words}" for name, words in pairs]

    def _other_words(self) -> list[str]:
        """Say what there is in place of errors; nothing if there are errors."""
        how, beside = self.how, self.how.beside
        if how.replicates:
            return [f"by replicates {', '.join(columns)}" for columns in how.replicates]
        if how.draws:
            prior = f", less {how.log_prior}" if how.log_prior else ""
            where = f"of each {how.id}" if how.id else "in lists"
            return [f"by draws {where}{prior}"] * len(self.names)
        if self.noise in COUNTS:
            word = "counted" + (f", {COUNTS[self.noise]} {beside}" if beside else "")
            return [word] * len(self.names)
        return []

    def error_words(self) -> list[str]:
        """Say in plain words where each column's errors are."""
        found = self._other_words()
        if found:
            return found
        variances = {a: column for a, b, column in self.covariances if a == b}
        pairs = [pair for pair in self.correlations + self.covariances if pair[0] != pair[1]]
        for name, (lower, upper) in zip(self.names, self.errors, strict=True):
            bars = f"{lower}" if lower == upper else f"-{lower} +{upper}"
            bars = f"sqrt({variances[name]})" if name in variances else bars
            shared = [c for a, b, c in pairs if name in (a, b)]
            flags = self.how.flags(self.names.index(name))
            if self.how.fit_errors:
                bars += f", {' and '.join(self.how.fit_errors)} to be learned"
            parts = [bars, ", ".join(shared), f"limits in {flags}" if flags else ""]
            found.append("; ".join(filter(None, parts)))
        return found


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
    missing: Sequence[float] = (),
    how: How | None = None,
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
        many plain columns as there are names. What is not said is found by name, as ``x_err`` or
        ``e_x``; :mod:`deconflow.tables.conventions` has all of them. Lower errors of a pair may
        all be written negative.
    covariances, correlations
        ``"x:y=column"``; ``"x:x=column"`` is a variance. Correlations named ``x_y_corr`` are
        found without being said, unless correlations are ``["none"]``.
    noise, df
        Law of the noise, and the degrees of freedom of Student-t noise.
    units
        Unit of each name, if known.
    missing
        Numbers that stand for a missing value, such as -999.
    how
        How rows were measured, see :func:`deconflow.tables.find_how`; some kinds have no errors.

    Examples
    --------
    >>> find_columns(["x", "y", "x_err", "e_y", "x_y_corr"], ["x", "y"]).needed()
    ['x', 'y', 'x_err', 'e_y', 'x_y_corr']
    """
    how = how or How()
    if not how.replicates:
        check_available(available, names)
    if len(set(names)) < len(names) or not names:
        raise ValueError(f"Expected one or more columns, each once; got {list(names)}.")
    bars: dict[str, Bars] = dict(parse_errors(errors, names, available))
    for name, both in bars.items():
        if name in both:
            raise ValueError(
                f"Expected the errors of {name!r} in another column; got that column itself."
            )
    shared = parse_pairs(covariances, names, "covariances")
    correlated: Pairs = ()
    if list(correlations) != [NO_CORRELATIONS]:
        correlated = parse_pairs(correlations, names, "correlations") or _correlations_by_name(
            available, names, shared
        )
    with_variance = {first for first, second, _ in shared if first == second}
    if how.draws or how.replicates or noise in COUNTS:
        _refuse_errors(errors, covariances, correlations)
        bars, correlated = dict.fromkeys(names, (0.0, 0.0)), ()
    said = {bar for both in bars.values() for bar in both}
    others = [column for column in available if column not in said]
    for name in names:
        if name not in bars:
            bars[name] = (0.0, 0.0) if name in with_variance else _bars_by_name(others, name, names)
    found = Columns(
        tuple(names), tuple(bars[name] for name in names), correlated, shared,
        noise=noise, df=df, units=tuple(units or [None] * len(names)),
        missing=tuple(missing), how=how,
    )  # fmt: skip
    check_available(available, found.needed())
    return found


def _refuse_errors(*said: Sequence[str]) -> None:
    """Raise if errors were said of a kind of measurement that has none."""
    for option, items in zip(("errors", "covariances", "correlations"), said, strict=True):
        if items and list(items) != [NO_CORRELATIONS]:
            raise ValueError(
                f"Expected no {option}= of posterior samples, replicates or counts, which say how "
                f"sure they are themselves; got {', '.join(items)!r}."
            )


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


def _bars_by_name(available: Sequence[str], name: str, names: Sequence[str]) -> Bars:
    found = error_columns(available, name, names)
    if len(found) == 1:
        return found[0]
    if found:
        several = [low if low == high else f"{low}:{high}" for low, high in found]
        raise ValueError(
            f"Expected one error for column {name!r}; got several: {', '.join(several)}. "
            f"Name it: errors=[{f'{name}={several[0]}'!r}]"
        )
    likely = likely_errors(available, name, names)
    hint = f" Of this table it may be {', '.join(likely)}." if likely else ""
    raise ValueError(
        f"Expected the error of column {name!r} in a column such as {name}_err, {name}_se, "
        f"e_{name}, or {name}_err_lo with {name}_err_hi; got none of them.{hint} Name it: "
        f"errors=[{f'{name}=COLUMN'!r}], or errors=[{f'{name}=0'!r}] if it is exact."
    )


def _correlations_by_name(
    available: Sequence[str], names: Sequence[str], covariances: Pairs
) -> Pairs:
    known = {frozenset(pair[:2]) for pair in covariances}
    pairs = [
        (first, second, correlation_column(available, first, second))
        for i, first in enumerate(names)
        for second in names[i + 1 :]
        if frozenset((first, second)) not in known
    ]
    return tuple((first, second, column) for first, second, column in pairs if column is not None)


def _bar(value: Any) -> Bar:
    return value if isinstance(value, str) else float(value)
