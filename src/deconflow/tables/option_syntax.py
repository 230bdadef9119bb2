"""What people write for errors, correlations, bounds and atoms: ``x=column``, ``x=0:1``."""

import math
from collections.abc import Sequence

#: One side of an error bar: a column, or a number for all rows.
Bar = str | float
Bars = tuple[Bar, Bar]
#: Two measured columns, and the column that holds what they share.
Pairs = tuple[tuple[str, str, str], ...]


def parse_errors(
    items: Sequence[str], names: Sequence[str], available: Sequence[str]
) -> dict[str, Bars]:
    """Read ``x=column``, ``x=0.1``, ``x=lower:upper``, or plain columns in the order of names."""
    parts = split_list(items, available, names)
    if parts and not any("=" in part and part not in available for part in parts):
        if len(parts) != len(names):
            raise ValueError(
                f"Expected {len(names)} columns after errors=, one for each of "
                f"{', '.join(names)}; got {len(parts)}. Or say which: "
                f"errors=[{f'{names[0]}=COLUMN'!r}]"
            )
        parts = [f"{name}={part}" for name, part in zip(names, parts, strict=True)]
    wanted = f"errors= as NAME=COLUMN, with NAME one of {', '.join(names)}"
    return {name: _bars(text, available) for name, text in by_name(parts, names, wanted).items()}


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
            if not current:
                raise ValueError(
                    f"Expected replicate_columns= as NAME=COLUMN,COLUMN, with NAME one of "
                    f"{', '.join(names)}; got {part!r}."
                )
            found[current].append(column or part)
    for name, columns in found.items():
        if len(set(columns)) < 2 or len(set(columns)) < len(columns):
            raise ValueError(
                f"Expected two or more different columns of replicate_columns= for {name!r}; got "
                f"{', '.join(columns) or 'none'}."
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
        if not colon or ends == [None, None] or any(end is math.nan for end in ends):
            raise ValueError(f"Expected {wanted}; got '{name}={text}'.")
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
        one = item.strip() in whole or _split_at(item, with_comma)[0]
        parts += [item] if one else item.split(",")
    return [part.strip() for part in parts if part.strip()]


def by_name(parts: Sequence[str], names: Sequence[str], wanted: str) -> dict[str, str]:
    """Read ``NAME=...``, each name at most once; ``wanted`` begins with the name of the option."""
    found: dict[str, str] = {}
    for part in parts:
        name, text = _split_at(part, names)
        if not text:
            raise ValueError(f"Expected {wanted}; got {part!r}.")
        if name in found:
            option = wanted.partition("s=")[0]
            raise ValueError(f"Expected one {option} for column {name!r}; got two in {option}s=.")
        found[name] = text
    return found


def _split_at(part: str, names: Sequence[str]) -> tuple[str, str]:
    """Split ``NAME=...`` after the longest name that fits; two empty texts if none does."""
    name = max((name for name in names if part.startswith(f"{name}=")), key=len, default=None)
    return ("", "") if name is None else (name, part[len(name) + 1 :])


def _bars(text: str, available: Sequence[str]) -> Bars:
    lower, colon, upper = text.partition(":")
    if not colon or text in available:
        lower = upper = text
    return _bar(lower, available), _bar(upper, available)


def _bar(text: str, available: Sequence[str]) -> Bar:
    """Read a column or a number; a column that is missing is refused where columns are checked."""
    value = text if text in available else _number(text)
    if isinstance(value, float) and not 0 <= value < math.inf:
        raise ValueError(f"Expected an error of at least 0 in errors=; got {text}.")
    return value
