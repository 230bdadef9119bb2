"""What people write after ``--errors``, ``--cov`` and ``--corr``."""

from __future__ import annotations

from collections.abc import Sequence


def parse_errors(
    items: Sequence[str], names: Sequence[str], available: Sequence[str]
) -> dict[str, tuple[str | float, str | float]]:
    """Read ``x=column``, ``x=0.1``, ``x=lower:upper``, or plain columns in the order of names."""
    parts = split(items)
    if parts and not any("=" in part for part in parts):
        if len(parts) != len(names):
            raise ValueError(
                f"Expected {len(names)} columns after --errors, one for each of "
                f"{', '.join(names)}; got {len(parts)}. Or say which: --errors {names[0]}=COLUMN"
            )
        parts = [f"{name}={part}" for name, part in zip(names, parts, strict=True)]
    found = {}
    for part in parts:
        name, _, said = part.partition("=")
        if name not in names or not said:
            raise ValueError(
                f"Expected --errors as NAME=COLUMN, with NAME one of {', '.join(names)}; "
                f"got {part!r}."
            )
        if name in found:
            raise ValueError(f"Expected one error for column {name!r}; got two in --errors.")
        found[name] = _bars(said, available)
    return found


def parse_pairs(
    items: Sequence[str], names: Sequence[str], option: str
) -> tuple[tuple[str, str, str], ...]:
    """Read ``x:y=column``."""
    found = []
    for part in split(items):
        pair, _, column = part.partition("=")
        first, _, second = pair.partition(":")
        same = option == "--corr" and first == second
        if first not in names or second not in names or not column or same:
            raise ValueError(
                f"Expected {option} as FIRST:SECOND=COLUMN, with two of {', '.join(names)}; "
                f"got {part!r}."
            )
        found.append((first, second, column))
    return tuple(found)


def split(items: Sequence[str]) -> list[str]:
    """Split lists that are written with commas.

    Examples
    --------
    >>> split(["x,y", "z"])
    ['x', 'y', 'z']
    """
    return [part.strip() for item in items for part in item.split(",") if part.strip()]


def _bars(said: str, available: Sequence[str]) -> tuple[str | float, str | float]:
    if said in available:
        return said, said
    lower, colon, upper = said.partition(":")
    return (
        (_bar(lower, available), _bar(upper, available)) if colon else (_bar(said, available),) * 2
    )


def _bar(said: str, available: Sequence[str]) -> str | float:
    if said in available:
        return said
    try:
        value = float(said)
    except ValueError:
        return said  # a column that is missing: said so where columns are checked
    if not 0 <= value < float("inf"):
        raise ValueError(f"Expected an error of at least 0 in --errors; got {said}.")
    return value
