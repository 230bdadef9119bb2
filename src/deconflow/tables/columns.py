"""The columns that hold measurements, and those that hold their errors and other facts."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deconflow.tables.conventions import (
    correlation_column,
    error_columns,
    likely_errors,
    limit_column,
)
from deconflow.tables.formats import Source, is_list
from deconflow.tables.option_syntax import (
    Bars,
    Pairs,
    parse_errors,
    parse_pairs,
    parse_replicates,
    split_list,
)

NONE = "none"
#: Noise distributions by their names, and what an error means under each.
NOISE_KINDS = {
    "gaussian": "the error is the standard deviation",
    "student-t": "the error is the scale; see df=",
    "laplace": "the error is the standard deviation",
    "uniform": "the error is the half width, as from rounding",
    "split-normal": "asymmetric errors",
    "lognormal": "errors that multiply: the error is that of the logarithm, as 0.1 for 10 %",
    "poisson": "counts, without errors; the true value is a rate; see exposure=",
    "binomial": "counts out of trials=, without errors; the true value is a probability",
}
#: Distributions of counts, and the number that each row may have with its count.
COUNTS = {"poisson": "exposure", "binomial": "trials"}
#: The distribution of errors that multiply, and are relative.
MULTIPLYING = "lognormal"
#: Parts of the errors that a fit can estimate.
FITTED = ("scale", "jitter", "correlation")


@dataclass(frozen=True)
class Columns:
    """Columns of a table that are measurements, with the columns of their errors.

    Attributes
    ----------
    names : tuple of str
        The ``D`` measured columns.
    errors : tuple
        For each of them the lower and the upper error bar: a column's name, or a number.
    correlations, covariances : tuple
        Triples of two measured columns and the column that holds what they share.
    noise : str
        Noise distribution; see :data:`NOISE_KINDS`.
    df : float
        Degrees of freedom of Student-t noise.
    units : tuple
        Unit of each measured column, None where the table has none.
    missing : tuple of float
        Numbers that stand for a missing value.
    limits : tuple
        For each measured column the column with flags of its limits, or None; empty for none.
    replicate_columns : tuple
        For each measured column those with its repeated measurements; empty for none.
    replicate_covariance : tuple
        Covariance of the errors of single replicates, as the fit has estimated it.
    draws : bool
        Whether rows are posterior samples: cells with lists of draws.
    id : str or None
        The column with the object of each draw, in a table with a row for each draw.
    log_prior : str or None
        The column of the draws' log prior.
    counted_with : str or None
        The column of trials or exposures of counts.
    fit_errors : tuple of str
        Parts of the errors that are estimated by the fit.
    replicates : str or None
        The column whose equal rows measure the same true value, to estimate these by.
    """

    names: tuple[str, ...]
    errors: tuple[Bars, ...]
    correlations: Pairs = ()
    covariances: Pairs = ()
    noise: str = "gaussian"
    df: float = 3.0
    units: tuple[str | None, ...] = ()
    missing: tuple[float, ...] = ()
    limits: tuple[str | None, ...] = ()
    replicate_columns: tuple[tuple[str, ...], ...] = ()
    replicate_covariance: tuple[tuple[float, ...], ...] = ()
    draws: bool = False
    id: str | None = None
    log_prior: str | None = None
    counted_with: str | None = None
    fit_errors: tuple[str, ...] = ()
    replicates: str | None = None

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
        """Name of the noise distribution."""
        if self.draws:
            return "posterior samples"
        return "split-normal" if self.asymmetric else self.noise

    @property
    def variances(self) -> dict[str, str]:
        """Columns with variances, by the measured column."""
        return {a: column for a, b, column in self.covariances if a == b}

    def scales(self) -> list[tuple[str, tuple[str, ...]]]:
        """Columns whose unit follows from others, with these: errors from one, covariances two."""
        if self.replicate_columns:
            pairs = zip(self.names, self.replicate_columns, strict=True)
            return [(column, (name,)) for name, columns in pairs for column in columns]
        bars = [
            (bar, (name,))
            for name, both in zip(self.names, self.errors, strict=True)
            if name not in self.variances
            for bar in both
            if isinstance(bar, str)
        ]
        return bars + [(column, (a, b)) for a, b, column in self.covariances]

    def needed(self) -> list[str]:
        """Columns that a table must have."""
        found = [] if self.replicate_columns else list(self.names)
        found += [column for column, _ in self.scales()]
        found += [column for _, _, column in self.correlations]
        more = (*self.limits, self.log_prior, self.counted_with, self.replicates)
        return list(dict.fromkeys([*found, *(column for column in more if column)]))

    def place(self, name: str) -> str:
        """Name the column of a table that has the unit of a measured one."""
        repeated = self.replicate_columns
        return repeated[self.names.index(name)][0] if repeated else name

    def describe(self) -> list[str]:
        """Describe in plain words what is measured, and how well; one line per column."""
        joint = "with error " if self._has_errors() else ""
        pairs = zip(self.names, self.error_words(), strict=True)
        return [f"{name} {joint}{words}" for name, words in pairs]

    def _has_errors(self) -> bool:
        return not (self.replicate_columns or self.draws or self.noise in COUNTS)

    def error_words(self) -> list[str]:
        """Describe in plain words where each column's errors are."""
        if self.replicate_columns:
            return [f"by replicates {', '.join(columns)}" for columns in self.replicate_columns]
        if self.draws:
            prior = f", less {self.log_prior}" if self.log_prior else ""
            where = f"of each {self.id}" if self.id else "in lists"
            return [f"by draws {where}{prior}"] * len(self.names)
        if self.noise in COUNTS:
            number = f", {COUNTS[self.noise]} {self.counted_with}" if self.counted_with else ""
            return [f"counted{number}"] * len(self.names)
        found = []
        pairs = [pair for pair in self.correlations + self.covariances if pair[0] != pair[1]]
        for d, (name, (lower, upper)) in enumerate(zip(self.names, self.errors, strict=True)):
            bars = f"{lower}" if lower == upper else f"-{lower} +{upper}"
            bars = f"sqrt({self.variances[name]})" if name in self.variances else bars
            if self.fit_errors:
                bars += f", {' and '.join(self.fit_errors)} to be estimated"
            flags = f"limits in {self.limits[d]}" if self.limits and self.limits[d] else ""
            shared = ", ".join(c for a, b, c in pairs if name in (a, b))
            found.append("; ".join(filter(None, [bars, shared, flags])))
        return found


def find_columns(
    table: Source | Sequence[str],
    names: Sequence[str],
    *,
    errors: Sequence[str] = (),
    covariances: Sequence[str] = (),
    correlations: Sequence[str] = (),
    noise: str = "gaussian",
    df: float = 3.0,
    missing: Sequence[float] = (),
    limits: Sequence[str] = (),
    replicate_columns: Sequence[str] = (),
    id: str | None = None,
    log_prior: str | None = None,
    trials: str | None = None,
    exposure: str | None = None,
    fit_errors: Sequence[str] = (),
    replicates: str | None = None,
) -> Columns:
    """Find the columns of errors and other facts, by options or else by their names.

    Parameters
    ----------
    table
        The table, or the names of its columns.
    names
        The measured columns.
    errors
        ``"x=x_sig"`` (a column), ``"x=0.1"`` (a number), ``"x=lower:upper"`` (asymmetric), or as
        many plain columns as there are names. Others are found by name, as ``x_err`` or ``e_x``;
        :mod:`deconflow.tables.conventions` has all of them. Lower errors of a pair may all be
        written negative.
    covariances, correlations
        ``"x:y=column"``; ``"x:x=column"`` is a variance. Correlations named ``x_y_corr`` are
        found by name, unless correlations are ``["none"]``.
    noise, df
        Noise distribution, and the degrees of freedom of Student-t noise.
    missing
        Numbers that stand for a missing value, such as -999.
    limits
        ``"x=column"``, or ``["none"]``. Others are found by name: ``x_limit``.
    replicate_columns
        ``"x=x1,x2"``, or plain columns if one is measured.
    id, log_prior
        Columns of a table with a row for each posterior sample; cells with lists need no id.
    trials, exposure
        Columns with the counts of binomial and poisson noise.
    fit_errors
        Some of :data:`FITTED`.
    replicates
        Column whose equal rows measure the same true value, to estimate these by.

    Examples
    --------
    >>> find_columns(["x", "y", "x_err", "e_y", "x_y_corr"], ["x", "y"]).needed()
    ['x', 'y', 'x_err', 'e_y', 'x_y_corr']
    """
    available = table.names if isinstance(table, Source) else list(table)
    repeated = parse_replicates(replicate_columns, names, available) if replicate_columns else ()
    if not repeated:
        check_available(available, names)
    if len(set(names)) < len(names) or not names:
        raise ValueError(f"Expected one or more columns, each once; got {list(names)}.")
    draws = _are_draws(table, names, id)
    kinds = {
        f"noise='{noise}'": noise != "gaussian",
        "posterior samples": draws,
        "replicate_columns=": bool(repeated),
        "fit_errors=": bool(fit_errors),
    }
    _refuse_mixtures([kind for kind, given in kinds.items() if given], noise, trials, exposure)
    if log_prior is not None and not draws:
        raise ValueError(
            "Expected log_prior= with posterior samples only; got it for values with errors. Give "
            "id= too, if each row is a draw."
        )
    if replicates is not None and not fit_errors:
        raise ValueError(
            "Expected fit_errors= with replicates=, which is used to estimate them; got none. "
            "For rows that only belong together, give groups=."
        )
    shared = parse_pairs(covariances, names, "covariances")
    bars: dict[str, Bars] = dict.fromkeys(names, (0.0, 0.0))
    correlated: Pairs = ()
    if draws or repeated or noise in COUNTS:
        _refuse_errors(errors, covariances, correlations)
    else:
        bars = _find_bars(available, names, errors, {a for a, b, _ in shared if a == b})
        correlated = _find_correlations(available, names, correlations, shared)
    plain = not (repeated or draws or noise in (*COUNTS, MULTIPLYING))
    found = Columns(
        tuple(names), tuple(bars[name] for name in names), correlated, shared, noise=noise, df=df,
        missing=tuple(missing), limits=_find_limits(available, names, limits, plain),
        replicate_columns=repeated, draws=draws, id=id, log_prior=log_prior,
        counted_with={"poisson": exposure, "binomial": trials}.get(noise),
        fit_errors=_checked_parts(fit_errors), replicates=replicates,
    )  # fmt: skip
    check_available(available, [*found.needed(), *([id] if id else [])])
    if not isinstance(table, Source):
        return found
    return replace(found, units=tuple(table.unit(found.place(name)) for name in names))


def _are_draws(table: Source | Sequence[str], names: Sequence[str], id: str | None) -> bool:
    """Whether rows are posterior samples: by a column of objects, or by lists in the cells."""
    known = table.schema if isinstance(table, Source) else ()
    lists = [field.name for field in known if field.name in names and is_list(field.type)]
    if id is None and lists and len(lists) < len(names):
        other = next(name for name in names if name not in lists)
        raise ValueError(
            f"Expected lists of draws in all measured columns; got some in {lists[0]!r} and none "
            f"in {other!r}. Leave one of them out."
        )
    if id in names:
        raise ValueError(f"Expected id= as a column that is not measured; got {id!r}.")
    if id is not None and lists:
        raise ValueError(f"Expected no id= where cells are lists, as in {lists[0]!r}; got {id!r}.")
    return id is not None or bool(lists)


def _refuse_mixtures(
    kinds: Sequence[str], noise: str, trials: str | None, exposure: str | None
) -> None:
    """Raise for several kinds of measurement at once, and for numbers that belong to another."""
    if len(kinds) > 1:
        got = " and ".join(kinds)
        raise ValueError(f"Expected one kind of measurement; got {got}. Leave one out.")
    for law, name, value in (("poisson", "exposure", exposure), ("binomial", "trials", trials)):
        if value is not None and noise != law:
            raise ValueError(f"Expected {name}= with noise='{law}' only; got it with {noise!r}.")
    if noise == "binomial" and trials is None:
        raise ValueError("Expected trials= with a column, for noise='binomial'; got none.")


def _refuse_errors(*given: Sequence[str]) -> None:
    """Raise for errors of a kind of measurement that has none."""
    for option, items in zip(("errors", "covariances", "correlations"), given, strict=True):
        if items and list(items) != [NONE]:
            raise ValueError(
                f"Expected no {option}= with posterior samples, replicates or counts, which have "
                f"no separate errors; got {', '.join(items)!r}."
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


def _find_bars(
    available: Sequence[str], names: Sequence[str], errors: Sequence[str], exact: set[str]
) -> dict[str, Bars]:
    """Return the error bars of each name; those in ``exact`` may have none."""
    bars = parse_errors(errors, names, available)
    for name, both in bars.items():
        if name in both:
            raise ValueError(
                f"Expected the errors of {name!r} in another column; got that column itself."
            )
    taken = {bar for both in bars.values() for bar in both}
    others = [column for column in available if column not in taken]
    for name in names:
        if name not in bars:
            bars[name] = (0.0, 0.0) if name in exact else _bars_by_name(others, name, names)
    return bars


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


def _find_correlations(
    available: Sequence[str], names: Sequence[str], items: Sequence[str], covariances: Pairs
) -> Pairs:
    if list(items) == [NONE]:
        return ()
    known = {frozenset(pair[:2]) for pair in covariances}
    pairs = [
        (first, second, column)
        for i, first in enumerate(names)
        for second in names[i + 1 :]
        if frozenset((first, second)) not in known
        and (column := correlation_column(available, first, second)) is not None
    ]
    return parse_pairs(items, names, "correlations") or tuple(pairs)


def _find_limits(
    available: Sequence[str], names: Sequence[str], items: Sequence[str], plain: bool
) -> tuple[str | None, ...]:
    parts = split_list(items, available, names)
    if parts == [NONE]:
        return ()
    found: dict[str, str | None] = {}
    for part in parts:
        name, equals, column = part.partition("=")
        if not equals or name not in names:
            raise ValueError(
                f"Expected limits= as NAME=COLUMN, with NAME one of {', '.join(names)}, or none; "
                f"got {part!r}."
            )
        found[name] = column
    columns = tuple(found.get(name, limit_column(available, name)) for name in names)
    if any(columns) and not plain:
        raise ValueError(
            "Expected limits of values with errors that add to them; got the column "
            f"{next(filter(None, columns))!r} for another kind. If it has another meaning, give "
            "limits=['none']"
        )
    return columns if any(columns) else ()


def _checked_parts(items: Sequence[str]) -> tuple[str, ...]:
    parts = split_list(items)
    for part in parts or (["none"] if items else []):
        if part not in FITTED:
            got = repr(part) if parts else part
            raise ValueError(f"Expected fit_errors= with {', '.join(FITTED)}; got {got}.")
    return tuple(dict.fromkeys(parts))
