"""What columns of errors are called, and how they are signed.

The conventions stand here and nowhere else; they are about names, whatever holds the columns.
"""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from deconflow._types import Array, BoolArray
from deconflow.tables.formats import row_name

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
CORRELATION = "{}_{}_corr"
LIMIT = "{}_limit"
ERROR_WORD = re.compile(r"err|sigma|unc|(?<![a-z])(se|sd|std|e)(?![a-z])")
MOST_SHOWN = 8


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
        return 2 * (ERROR_WORD.search(small) is not None) + (name.lower() in small)

    others = [column for column in available if column not in measured and rank(column)]
    return sorted(others, key=rank, reverse=True)[:MOST_SHOWN]


def correlation_column(available: Sequence[str], first: str, second: str) -> str | None:
    """Find what is named like the correlation of two columns' errors.

    Examples
    --------
    >>> correlation_column(["x", "y", "y_x_corr"], "x", "y")
    'y_x_corr'
    """
    either = (CORRELATION.format(first, second), CORRELATION.format(second, first))
    return next((column for column in either if column in available), None)


def limit_column(available: Sequence[str], name: str) -> str | None:
    """Find what is named like the column that says which values of another are limits.

    Examples
    --------
    >>> limit_column(["x", "x_err", "X_LIMIT"], "x")
    'X_LIMIT'
    """
    either = (column for near in range(3) for column in _called(available, LIMIT, name, near))
    return next(either, None)


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
    wanted = form.format(name)
    start = max(form.find("{}"), 0)
    for column in available:
        own = column[start : start + len(name)] if "{}" in form else name
        if closeness == 0:
            fits = column == wanted
        else:
            known = own == name if closeness == 1 else own not in available
            fits = known and column.lower() == wanted.lower()
        if fits:
            yield column
