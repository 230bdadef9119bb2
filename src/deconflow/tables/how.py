"""How rows were measured, where that is more than a value with an error in each column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from deconflow.tables.conventions import limit_column
from deconflow.tables.io import Source
from deconflow.tables.option_syntax import parse_replicates, split_list

NONE = "none"
COUNTS = {"poisson": "exposure", "binomial": "trials"}
"""Laws of counts, and what each row may be told beside its count."""
MULTIPLYING = "lognormal"
"""The law of errors that multiply, and are relative."""
FITTED = ("scale", "jitter", "correlation")
"""What of the errors a fit can find."""


@dataclass(frozen=True)
class How:
    """How rows were measured.

    Attributes
    ----------
    limits : tuple
        For each measured column the one that says which of its values are limits, or None; empty
        if there is none at all.
    replicates : tuple
        For each measured column those that hold repeated measurements of it; empty for none.
    draws : bool
        Whether rows are posterior samples: cells with lists of draws.
    id : str or None
        The column that says whose draw a row is, in a table with a row for each draw.
    log_prior : str or None
        The column of the draws' log prior.
    beside : str or None
        The column of trials or exposures of counts.
    fit_errors : tuple of str
        What of the errors is to be found by the fit.
    replicates_by : str or None
        The column that says which rows measure the same truth, while such errors are learned.
    covariance : tuple
        Of the errors of single replicates, as the fit has found it; empty before.
    """

    limits: tuple[str | None, ...] = ()
    replicates: tuple[tuple[str, ...], ...] = ()
    draws: bool = False
    id: str | None = None
    log_prior: str | None = None
    beside: str | None = None
    fit_errors: tuple[str, ...] = ()
    replicates_by: str | None = None
    covariance: tuple[tuple[float, ...], ...] = ()

    def flags(self, d: int) -> str | None:
        """Name the column that says which values of measured column ``d`` are limits."""
        return self.limits[d] if self.limits else None

    @property
    def of_each(self) -> list[tuple[Any, ...]]:
        """What has an entry for each measured column, of what is there."""
        each = (self.limits, self.replicates, self.covariance, *self.covariance)
        return [entries for entries in each if entries]

    def needed(self) -> list[str]:
        """Columns that a table must have beside those measured and their errors."""
        found = [*self.limits, *(column for columns in self.replicates for column in columns)]
        found += [self.log_prior, self.beside, self.replicates_by]
        return [column for column in found if column]

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can hold, of what is there."""
        usual = asdict(NOTHING_ELSE)
        return {name: value for name, value in asdict(self).items() if value != usual[name]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Take what :meth:`as_dict` gave, after a trip through JSON."""
        return cls(
            limits=tuple(_text(each) for each in values.get("limits", ())),
            replicates=tuple(tuple(map(str, each)) for each in values.get("replicates", ())),
            draws=bool(values.get("draws", False)),
            id=_text(values.get("id")),
            log_prior=_text(values.get("log_prior")),
            beside=_text(values.get("beside")),
            fit_errors=tuple(map(str, values.get("fit_errors", ()))),
            replicates_by=_text(values.get("replicates_by")),
            covariance=tuple(tuple(map(float, row)) for row in values.get("covariance", ())),
        )


NOTHING_ELSE = How()
"""Values with errors, and nothing else."""


def find_how(
    source: Source,
    names: Sequence[str],
    *,
    noise: str = "gaussian",
    limits: Sequence[str] = (),
    replicate_columns: Sequence[str] = (),
    id: str | None = None,
    log_prior: str | None = None,
    trials: str | None = None,
    exposure: str | None = None,
    fit_errors: Sequence[str] = (),
    replicates: str | None = None,
) -> How:
    """Find how a table's columns were measured, by what is said or else by the table itself.

    Parameters
    ----------
    source
        The table.
    names
        The measured columns.
    noise
        Law of the noise.
    limits
        ``"x=column"``, or ``["none"]``. What is not said is found by name: ``x_limit``.
    replicate_columns
        ``"x=x1,x2"``, or plain columns if one is measured.
    id, log_prior
        Columns of a table with a row for each posterior sample; cells with lists need no id.
    trials, exposure
        Columns beside counts of binomial and poisson noise.
    fit_errors
        Some of :data:`FITTED`.
    replicates
        Column that says which rows measure the same truth, to learn these by.
    """
    said = {"trials": trials, "exposure": exposure}
    repeated = parse_replicates(replicate_columns, names, source.names) if replicate_columns else ()
    from deconflow.tables.arrow_io import is_list

    lists = [n for n in names if n in source.names and is_list(source.schema.field(n).type)]
    draws = id is not None or len(lists) > 0
    _refuse_mixtures(noise, said, repeated, draws, log_prior, fit_errors)
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
    if replicates is not None and not fit_errors:
        raise ValueError(
            "Expected fit_errors= beside replicates=, since it is for these; got none. Rows "
            "that only belong together are said by groups=."
        )
    plain = not (repeated or draws or noise in (*COUNTS, MULTIPLYING))
    return How(
        limits=_find_limits(source.names, names, limits, plain),
        replicates=repeated, draws=draws, id=id, log_prior=log_prior,
        beside=said.get(COUNTS.get(noise, "")),
        fit_errors=_checked_parts(fit_errors), replicates_by=replicates,
    )  # fmt: skip


def _refuse_mixtures(
    noise: str,
    said: dict[str, str | None],
    replicate_columns: tuple[tuple[str, ...], ...],
    draws: bool,
    log_prior: str | None,
    fit_errors: Sequence[str],
) -> None:
    """Raise where two kinds of measurement are said at once, or a part of one is missing."""
    kinds = {
        "posterior samples": draws,
        "replicate_columns=": bool(replicate_columns),
        "fit_errors=": bool(fit_errors),
    }
    there = [] if noise == "gaussian" else [f"noise='{noise}'"]
    there += [kind for kind, has in kinds.items() if has]
    if len(there) > 1:
        got = " and ".join(there)
        raise ValueError(f"Expected one kind of measurement; got {got}. Leave one out.")
    for law, name in COUNTS.items():
        if said[name] is not None and noise != law:
            raise ValueError(f"Expected {name}= with noise='{law}' only; got it with {noise!r}.")
    if noise == "binomial" and said["trials"] is None:
        raise ValueError("Expected trials= with a column, for noise='binomial'; got none.")
    if log_prior is not None and not draws:
        raise ValueError(
            "Expected log_prior= with posterior samples only; got it for values with errors. Give "
            "id= too, if each row is a draw."
        )


def _find_limits(
    available: Sequence[str], names: Sequence[str], said: Sequence[str], plain: bool
) -> tuple[str | None, ...]:
    parts = split_list(said, available, names)
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
    for name in names:
        found.setdefault(name, limit_column(available, name))
    columns = tuple(found[name] for name in names)
    if any(columns) and not plain:
        raise ValueError(
            "Expected limits of values with errors that add to them; got the column "
            f"{next(filter(None, columns))!r} for another kind. If it says something else, give "
            "limits=['none']"
        )
    return columns if any(columns) else ()


def _checked_parts(said: Sequence[str]) -> tuple[str, ...]:
    parts = split_list(said)
    for part in parts or (["none"] if said else []):
        if part not in FITTED:
            got = repr(part) if parts else part
            raise ValueError(f"Expected fit_errors= with {', '.join(FITTED)}; got {got}.")
    return tuple(dict.fromkeys(parts))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
