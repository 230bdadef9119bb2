"""What people write after ``--errors``, ``--cov`` and ``--corr``."""

from __future__ import annotations

from collections.abc import Sequence


def parse_errors(
    items: Sequence[str], names: Sequence[str], available: Sequence[str]
) -> dict[str, tuple[str | float, str | float]]:
    """Read ``x=column``, ``x=0.1``, ``x=lower:upper``, or plain columns in the order of names."""
    parts = split(items, available, names)
    if parts and not any("=" in part and part not in available for part in parts):
        if len(parts) != len(names):
            raise ValueError(
                f"Expected {len(names)} columns after --errors, one for each of "
                f"{', '.join(names)}; got {len(parts)}. Or say which: --errors {names[0]}=COLUMN"
            )
        parts = [f"{name}={part}" for name, part in zip(names, parts, strict=True)]
    found: dict[str, tuple[str | float, str | float]] = {}
    for part in parts:
        name = _beginning(part, names)
        said = "" if name is None else part[len(name) + 1 :]
        if name is None or not said:
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
    pairs = {
        f"{first}:{second}": (first, second)
        for first in names
        for second in names
        if first != second or option == "--cov"
    }
    found = []
    for part in split(items, whole_if=list(pairs)):
        pair = _beginning(part, list(pairs))
        column = "" if pair is None else part[len(pair) + 1 :]
        if pair is None or not column:
            raise ValueError(
                f"Expected {option} as FIRST:SECOND=COLUMN, with two of {', '.join(names)}; "
                f"got {part!r}."
            )
        found.append((*pairs[pair], column))
    return tuple(found)


def split(
    items: Sequence[str], whole: Sequence[str] = (), whole_if: Sequence[str] = ()
) -> list[str]:
    """Split lists that are written with commas.

    What is one of ``whole``, or begins with ``NAME=`` of a name in ``whole_if`` that has a comma
    itself, stays whole.

    Examples
    --------
    >>> split(["x,y", "z"])
    ['x', 'y', 'z']
    >>> split(["x,y", "z"], whole=["x,y"])
    ['x,y', 'z']
    """
    odd = [name for name in whole_if if "," in name]
    parts: list[str] = []
    for item in items:
        one = item.strip() in whole or _beginning(item, odd) is not None
        parts += [item] if one else item.split(",")
    return [part.strip() for part in parts if part.strip()]


def _beginning(part: str, names: Sequence[str]) -> str | None:
    """Return the longest name with which ``NAME=...`` begins."""
    found = [name for name in names if part.startswith(f"{name}=")]
    return max(found, key=len) if found else None


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
