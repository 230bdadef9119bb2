"""The columns that hold measurements, and those that hold their errors and other facts."""

import difflib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from deconflow._types import Array, BoolArray
from deconflow.checks import refuse_if
from deconflow.tables.formats import Source, is_list, row_name

if TYPE_CHECKING:
    from deconflow.noise import Noise

#: One side of an error bar: a column, or a number for all rows.
Bar = str | float
Bars = tuple[Bar, Bar]
#: Two measured columns, and the column that holds what they share.
Pairs = tuple[tuple[str, str, str], ...]
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
#: What columns of errors are called; the conventions stand here and nowhere else.
SYMMETRIC = (
    "{}_err", "{}_error", "e_{}", "sigma_{}", "{}_se", "{}_std", "{}_sd", "{}_unc", "{}_sigma",
    "{}err", "{}_e", "err_{}", "d{}",
)  # fmt: skip
#: Lower and upper error; archives that number them write the lower one second, and negative.
ASYMMETRIC = (("{}_err_lo", "{}_err_hi"), ("{}_err2", "{}_err1"), ("{}err2", "{}err1"))
#: What the error of a single measured column may be called.
ALONE = ("se", "err", "error", "sd", "std", "unc", "sigma")
#: Columns, in small letters, whose errors have names of their own: effects in genetics.
OWN = {"beta": ("se",)}
ERROR_WORD = re.compile(r"err|sigma|unc|(?<![a-z])(se|sd|std|e)(?![a-z])")


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
        refuse_if(
            kind not in NOISE_KINDS,
            f"Expected noise= as one of {', '.join(NOISE_KINDS)}; got {kind!r}.",
        )
        refuse_if(
            asymmetric and kind not in ("gaussian", "split-normal"),
            f"Expected noise='split-normal' for asymmetric errors; got {kind!r}. "
            "Give one error for each column, or leave noise= out.",
        )
        refuse_if(
            (self.correlations or self.covariances) and (kind != "gaussian" or asymmetric),
            "Expected symmetric gaussian errors where columns are correlated; got "
            f"{'asymmetric errors' if asymmetric else kind}. Leave the correlated columns out.",
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
        found += filter(None, [*self.limits, self.log_prior, self.counted_with, self.replicates])
        return list(dict.fromkeys(found))

    def place(self, name: str) -> str:
        """Name the column of a table that has the unit of a measured one."""
        repeated = self.replicate_columns
        return repeated[self.names.index(name)][0] if repeated else name

    def describe(self) -> list[str]:
        """Describe in plain words what is measured, and how well; one line per column."""
        alone = self.replicate_columns or self.draws or self.noise in COUNTS
        pairs = zip(self.names, self.error_words(), strict=True)
        return [f"{name} {'' if alone else 'with error '}{words}" for name, words in pairs]

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
        ``SYMMETRIC`` and ``ASYMMETRIC`` have all of them. Lower errors of a pair may all be
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
    schema = table.schema if isinstance(table, Source) else ()
    available = table.names if isinstance(table, Source) else list(table)
    repeated = parse_replicates(replicate_columns, names, available) if replicate_columns else ()
    if not repeated:
        check_available(available, names)
    lists = [field.name for field in schema if field.name in names and is_list(field.type)]
    draws, counted = id is not None or bool(lists), noise in COUNTS
    kinds = {
        f"noise='{noise}'": noise != "gaussian", "posterior samples": draws,
        "replicate_columns=": bool(repeated), "fit_errors=": bool(fit_errors),
    }  # fmt: skip
    stated = {"errors": errors, "covariances": covariances, "correlations": correlations}
    given = {name: items for name, items in stated.items() if items and list(items) != [NONE]}
    got = ", ".join(item for items in given.values() for item in items)
    parts = split_list(fit_errors)
    odd = [part for part in parts if part not in FITTED]
    problems = {
        f"one or more columns, each once; got {list(names)}.":
            not names or len({*names}) < len(names),
        f"lists of draws in all measured columns; got some in {', '.join(map(repr, lists))} and "
        f"none in {', '.join(repr(name) for name in names if name not in lists)}. Leave one of "
        "them out.":
            id is None and 0 < len(lists) < len(names),
        f"id= as a column that is not measured; got {id!r}.":
            id in names,
        f"no id= where cells are lists, as in {', '.join(lists)}; got {id!r}.":
            id is not None and bool(lists),
        f"one kind of measurement; got {' and '.join(k for k in kinds if kinds[k])}. Leave one "
        "out.":
            sum(kinds.values()) > 1,
        f"exposure= with noise='poisson' only; got it with {noise!r}.":
            exposure is not None and noise != "poisson",
        f"trials= with noise='binomial' only; got it with {noise!r}.":
            trials is not None and noise != "binomial",
        "trials= with a column, for noise='binomial'; got none.":
            trials is None and noise == "binomial",
        "log_prior= with posterior samples only; got it for values with errors. Give id= too, if "
        "each row is a draw.":
            log_prior is not None and not draws,
        "fit_errors= with replicates=, which is used to estimate them; got none. For rows that "
        "only belong together, give groups=.":
            replicates is not None and not fit_errors,
        f"no {', '.join(f'{name}=' for name in given)} with posterior samples, replicates or "
        f"counts, which have no separate errors; got {got!r}.":
            bool(given) and (draws or bool(repeated) or counted),
        f"fit_errors= with {', '.join(FITTED)}; got {', '.join(map(repr, odd)) or 'none'}.":
            bool(odd) or (bool(fit_errors) and not parts),
    }  # fmt: skip
    for wanted, is_wrong in problems.items():
        if is_wrong:
            raise ValueError(f"Expected {wanted}")
    shared = parse_pairs(covariances, names, "covariances") if covariances else ()
    bars: dict[str, Bars] = dict.fromkeys(names, (0.0, 0.0))
    correlated: Pairs = ()
    if not (draws or repeated or counted):
        bars = _find_bars(available, names, errors, {a for a, b, _ in shared if a == b})
        correlated = _find_correlations(available, names, correlations, shared)
    plain = not (repeated or draws or counted or noise == MULTIPLYING)
    found = Columns(
        tuple(names), tuple(bars[name] for name in names), correlated, shared, noise=noise, df=df,
        missing=tuple(missing), limits=_find_limits(available, names, limits, plain),
        replicate_columns=repeated, draws=draws, id=id, log_prior=log_prior,
        counted_with={"poisson": exposure, "binomial": trials}.get(noise),
        fit_errors=tuple(dict.fromkeys(parts)), replicates=replicates,
    )  # fmt: skip
    check_available(available, [*found.needed(), *([id] if id else [])])
    if not isinstance(table, Source):
        return found
    return replace(found, units=tuple(table.unit(found.place(name)) for name in names))


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
    """Return the error bars of each name; those in ``exact`` may have none.

    Said are ``x=column``, ``x=0.1``, ``x=lower:upper``, or plain columns in the order of names.
    """
    parts = split_list(errors, available, names)
    if parts and not any("=" in part and part not in available for part in parts):
        refuse_if(
            len(parts) != len(names),
            f"Expected {len(names)} columns after errors=, one for each of "
            f"{', '.join(names)}; got {len(parts)}. Or say which: "
            f"errors=[{f'{names[0]}=COLUMN'!r}]",
        )
        parts = [f"{name}={part}" for name, part in zip(names, parts, strict=True)]
    bars: dict[str, Bars] = {}
    wanted = f"errors= as NAME=COLUMN, with NAME one of {', '.join(names)}"
    for name, text in by_name(parts, names, wanted).items():
        lower, colon, upper = text.partition(":")
        ends = (lower, upper) if colon and text not in available else (text, text)
        bars[name] = (_bar(ends[0], available), _bar(ends[1], available))
    taken = {bar for both in bars.values() for bar in both}
    others = [column for column in available if column not in taken]
    for name in names:
        refuse_if(
            name in bars.get(name, ()),
            f"Expected the errors of {name!r} in another column; got that column itself.",
        )
        if name not in bars:
            found = [(0.0, 0.0)] if name in exact else error_columns(others, name, names)
            if len(found) != 1:
                raise _no_one_error(others, name, names, found)
            bars[name] = found[0]
    return bars


def _no_one_error(
    available: Sequence[str], name: str, names: Sequence[str], found: Sequence[Bars]
) -> ValueError:
    """Say that a column has no error by name, or several."""
    if found:
        several = [f"{low}" if low == high else f"{low}:{high}" for low, high in found]
        return ValueError(
            f"Expected one error for column {name!r}; got several: {', '.join(several)}. "
            f"Name it: errors=[{f'{name}={several[0]}'!r}]"
        )
    likely = ", ".join(likely_errors(available, name, names))
    hint = f" Of this table it may be {likely}." if likely else ""
    return ValueError(
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
    return (parse_pairs(items, names, "correlations") if items else ()) or tuple(pairs)


def _find_limits(
    available: Sequence[str], names: Sequence[str], items: Sequence[str], plain: bool
) -> tuple[str | None, ...]:
    parts = split_list(items, available, names)
    if parts == [NONE]:
        return ()
    wanted = f"limits= as NAME=COLUMN, with NAME one of {', '.join(names)}, or none"
    found = by_name(parts, names, wanted)
    for name in names:
        by_form = chain(*(_called(available, "{}_limit", name, near) for near in range(3)))
        found.setdefault(name, next(by_form, ""))
    columns = tuple(found[name] or None for name in names)
    if any(columns) and not plain:
        raise ValueError(
            "Expected limits of values with errors that add to them; got the column "
            f"{next(filter(None, columns))!r} for another kind. If it has another meaning, give "
            "limits=['none']"
        )
    return columns if any(columns) else ()


def error_columns(
    available: Sequence[str], name: str, measured: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Find what is named like the error of a column: lower and upper bar, twice the same if one.

    Small and capital letters are told apart only where that decides: a name that is written
    exactly so goes first, then one in which the measured column is. What is itself ``measured``,
    or belongs to another column of the table, is no error of this one.

    Examples
    --------
    >>> table = ["x", "e_x", "y", "Y_ERR2", "Y_ERR1"]
    >>> error_columns(table, "x", ["x", "y"]), error_columns(table, "y", ["x", "y"])
    ([('e_x', 'e_x')], [('Y_ERR2', 'Y_ERR1')])
    >>> error_columns(["beta", "se"], "beta", ["beta"])
    [('se', 'se')]
    """
    alone = ALONE if len(measured) == 1 else OWN.get(name.lower(), ())
    both = [(form, form) for form in SYMMETRIC]
    for forms in ([*both, *ASYMMETRIC], [(form, form) for form in alone]):
        for closeness in range(3):
            found = [
                (lower, upper)
                for low, high in forms
                for lower in _called(available, low, name, closeness)
                for upper in _called(available, high, name, closeness)
                if (lower == upper) == (low == high) and not {lower, upper} & {*measured}
            ]
            if found:
                return list(dict.fromkeys(found))
    return []


def likely_errors(available: Sequence[str], name: str, measured: Sequence[str]) -> list[str]:
    """Columns that may be the error of another, the likeliest first.

    Examples
    --------
    >>> likely_errors(["x", "y", "seed", "uncertainty", "flux", "xmistake"], "x", ["x", "y"])
    ['uncertainty', 'flux', 'xmistake']
    """

    def rank(column: str) -> int:
        small = column.lower()
        return 2 * bool(ERROR_WORD.search(small)) + (name.lower() in small)

    others = [column for column in available if column not in measured and rank(column)]
    return sorted(others, key=rank, reverse=True)[:8]


def correlation_column(available: Sequence[str], first: str, second: str) -> str | None:
    """Find what is named like the correlation of two columns' errors.

    Examples
    --------
    >>> correlation_column(["x", "y", "y_x_corr"], "x", "y")
    'y_x_corr'
    """
    pairs = (f"{first}_{second}_corr", f"{second}_{first}_corr")
    return next((column for column in pairs if column in available), None)


def one_sign(
    values: Array, measured: BoolArray, column: str, sign: int = 0, first_row: int = 0
) -> tuple[Array, int]:
    """Take lower errors by their size, and say what sign they have; 0 if not known yet.

    Raises where some are below zero and others above.

    Examples
    --------
    >>> one_sign(np.array([-0.1, -0.2]), np.array([True, True]), "x_err2")
    (array([0.1, 0.2]), -1)
    """
    signs = np.where(measured, np.sign(np.nan_to_num(values, nan=0.0)), 0).astype(int)
    sign = sign or next(iter(signs[signs != 0].tolist()), 0)
    wrong = signs == -sign if sign else np.zeros_like(measured)
    if wrong.any():
        row = int(wrong.argmax())
        others = "below" if sign < 0 else "above"
        raise ValueError(
            f"Expected lower errors of one sign in column {column!r}; got {values[row]:g} in "
            f"{row_name(first_row + row)}, and others {others} 0. Correct it."
        )
    return np.abs(values), sign


def _called(available: Sequence[str], form: str, name: str, closeness: int) -> Iterator[str]:
    """Columns of this form: to the letter (0), with the name in it to the letter (1), or not (2).

    In the last case the letters must not be another column's name.
    """
    wanted, start = form.format(name), max(form.find("{}"), 0)
    for column in available:
        own = column[start : start + len(name)] if "{}" in form else name
        close = (column == wanted, own == name, own not in available)
        if close[closeness] and column.lower() == wanted.lower():
            yield column


def independent_noise(
    lower: Array, upper: Array, kind: str = "gaussian", df: float = 3.0
) -> "Noise":
    """Make noise of a distribution by its name, from the error bars of independent values."""
    from deconflow import noise as laws

    if kind == "split-normal" or not np.array_equal(lower, upper, equal_nan=True):
        return laws.split_normal(lower=lower, upper=upper)
    return laws.BY_ERROR[kind](lower, df)


# -- what people write: ``x=column``, ``x=0:1`` -------------------------------------------------


def parse_pairs(items: Sequence[str], names: Sequence[str], argument: str) -> Pairs:
    """Read ``x:y=column``; only a covariance is of a column with itself, as its variance."""
    pairs = {
        f"{first}:{second}": (first, second)
        for first in names
        for second in names
        if first != second or argument == "covariances"
    }
    wanted = f"{argument}= as FIRST:SECOND=COLUMN, with two of {', '.join(names)}"
    found = by_name(split_list(items, names=list(pairs)), list(pairs), wanted)
    return tuple((*pairs[pair], column) for pair, column in found.items())


def parse_replicates(
    items: Sequence[str], names: Sequence[str], available: Sequence[str]
) -> tuple[tuple[str, ...], ...]:
    """Read ``x=x1,x2,y=y1,y2``, or plain columns for a single name: those of each name.

    Examples
    --------
    >>> parse_replicates(["x1,x2"], ["x"], ["x1", "x2"])
    (('x1', 'x2'),)
    >>> parse_replicates(["x=x1,x2", "y=y1,y2"], ["x", "y"], [])
    (('x1', 'x2'), ('y1', 'y2'))
    """
    found: dict[str, list[str]] = {name: [] for name in names}
    for item in items:
        current = names[0] if len(names) == 1 else ""
        for part in split_list([item], available, names):
            name, column = ("", "") if part in available else _split_at(part, names)
            current = name or current
            refuse_if(
                not current,
                f"Expected replicate_columns= as NAME=COLUMN,COLUMN, with NAME one of "
                f"{', '.join(names)}; got {part!r}.",
            )
            found[current].append(column or part)
    for name, columns in found.items():
        refuse_if(
            len(set(columns)) < 2 or len(set(columns)) < len(columns),
            f"Expected two or more different columns of replicate_columns= for {name!r}; got "
            f"{', '.join(columns) or 'none'}.",
        )
    return tuple(map(tuple, found.values()))


def parse_bounds(
    items: Sequence[str], names: Sequence[str]
) -> dict[str, tuple[float | None, float | None]]:
    """Read ``x=0:``, ``x=:10`` or ``x=0:1``.

    Examples
    --------
    >>> parse_bounds(["x=0:,y=-1:1"], ["x", "y"])
    {'x': (0.0, None), 'y': (-1.0, 1.0)}
    """
    wanted = "bounds= as NAME=LOW:HIGH, NAME=LOW: or NAME=:HIGH, with NAME one of " + ", ".join(
        names
    )
    found: dict[str, tuple[float | None, float | None]] = {}
    for name, text in by_name(split_list(items, names=names), names, wanted).items():
        low, colon, high = text.partition(":")
        ends = [finite_number(end) if end.strip() else None for end in (low, high)]
        refuse_if(
            not colon or ends == [None, None] or any(end is math.nan for end in ends),
            f"Expected {wanted}; got '{name}={text}'.",
        )
        found[name] = (ends[0], ends[1])
    return found


def parse_atoms(items: Sequence[str], names: Sequence[str]) -> list[float] | list[list[float]]:
    """Read numbers for one column, ``0,1``, or whole points for several, ``0:0,1:1``.

    Examples
    --------
    >>> parse_atoms(["0,1"], ["x"]), parse_atoms(["0:0", "1:2"], ["x", "y"])
    ([0.0, 1.0], [[0.0, 0.0], [1.0, 2.0]])
    """
    points = []
    for part in split_list(items):
        point = [finite_number(value) for value in part.split(":")]
        if len(point) != len(names) or any(value is math.nan for value in point):
            shape = ":".join("0" for _ in names)
            what = "numbers" if len(names) == 1 else f"points of {':'.join(names)}"
            raise ValueError(f"Expected atoms= with {what}, such as {shape}; got {part!r}.")
        points.append(point)
    return [point[0] for point in points] if len(names) == 1 else points


def finite_number(text: str) -> float:
    """Read a finite number; NaN itself for anything else."""
    value = _number(text)
    return value if isinstance(value, float) and math.isfinite(value) else math.nan


def _number(text: str) -> float | str:
    """Read a number; the text itself if it is none."""
    try:
        return float(text)
    except ValueError:
        return text


def split_list(
    items: Sequence[str], whole: Sequence[str] = (), names: Sequence[str] = ()
) -> list[str]:
    """Split lists that are written with commas.

    What is one of ``whole`` is not split, nor what begins with ``NAME=`` of a name with a comma.

    Examples
    --------
    >>> split_list(["x,y", "z"])
    ['x', 'y', 'z']
    >>> split_list(["x,y", "z"], whole=["x,y"])
    ['x,y', 'z']
    """
    with_comma = [name for name in names if "," in name]
    parts: list[str] = []
    for item in items:
        is_whole = item.strip() in whole or _split_at(item, with_comma)[0]
        parts += [item] if is_whole else item.split(",")
    return [part.strip() for part in parts if part.strip()]


def by_name(parts: Sequence[str], names: Sequence[str], wanted: str) -> dict[str, str]:
    """Read ``NAME=...``, each name at most once; ``wanted`` begins with the name of the option."""
    found: dict[str, str] = {}
    for part in parts:
        name, text = _split_at(part, names)
        refuse_if(not text, f"Expected {wanted}; got {part!r}.")
        if name in found:
            option = wanted.partition("s=")[0]
            raise ValueError(f"Expected one {option} for column {name!r}; got two in {option}s=.")
        found[name] = text
    return found


def _split_at(part: str, names: Sequence[str]) -> tuple[str, str]:
    """Split ``NAME=...`` after the longest name that fits; two empty texts if none does."""
    name = max((name for name in names if part.startswith(f"{name}=")), key=len, default=None)
    return ("", "") if name is None else (name, part[len(name) + 1 :])


def _bar(text: str, available: Sequence[str]) -> Bar:
    """Read a column or a number; a column that is missing is refused where columns are checked."""
    value = text if text in available else _number(text)
    refuse_if(
        isinstance(value, float) and not 0 <= value < math.inf,
        f"Expected an error of at least 0 in errors=; got {text}.",
    )
    return value
