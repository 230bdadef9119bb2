"""Ranges of a value, as people write them: ``x>0``, ``0<y<2``."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

SIGN, NUMBER = r"\s*([<>]=?)\s*", r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
#: Signs before a column as they are after it.
TURNED = str.maketrans("<>", "><")


@dataclass(frozen=True)
class Range:
    """Values of a column from ``lower`` to ``upper``, both included; infinite for no bound."""

    name: str
    lower: float
    upper: float
    ending: str

    @property
    def column(self) -> str:
        """What the column of its probability is called."""
        return f"prob_{self.name}_{self.ending}"


def parse_ranges(
    items: Sequence[str], names: Sequence[str], argument: str = "--prob"
) -> list[Range]:
    """Read ranges of these columns, each once.

    An end that is not included is the next number: so values that are known exactly, and laws that
    give a single number a probability, get theirs.

    Examples
    --------
    >>> [found.column for found in parse_ranges(["x>0", "y<=2.50", "0<x<2"], ["x", "y"])]
    ['prob_x_above_0', 'prob_y_below_2.5', 'prob_x_from_0_to_2']
    """
    found: dict[str, Range] = {}
    for item in dict.fromkeys(items):
        asked = _parsed(item.strip(), names)
        if asked is None:
            raise ValueError(
                f"Expected {argument} as 'COLUMN>NUMBER', 'COLUMN<NUMBER' or "
                f"'NUMBER<COLUMN<NUMBER', with one of the columns {', '.join(names)}; got {item!r}."
            )
        if asked.column in found:
            raise ValueError(
                f"Expected each column of {argument} once; got {asked.column} again by {item!r}."
            )
        found[asked.column] = asked
    return list(found.values())


def _parsed(item: str, names: Sequence[str]) -> Range | None:
    """Read one range; None if it is none."""
    for name in sorted(names, key=len, reverse=True):
        match = re.fullmatch(f"(?:{NUMBER}{SIGN})?{re.escape(name)}(?:{SIGN}{NUMBER})?", item)
        if match is not None:
            number, sign, other_sign, other_number = match.groups(default="")
            ends = [(sign.translate(TURNED), number), (other_sign, other_number)]
            return _range(name, [end for end in ends if all(end)])
    return None


def _range(name: str, ends: list[tuple[str, str]]) -> Range | None:
    """Make a range of one end or two, each a sign and a number; None if they make none."""
    said = {sign[0]: float(text) for sign, text in ends}
    lower, upper = -math.inf, math.inf
    for sign, text in ends:
        if sign[0] == ">":
            lower = float(text) if sign == ">=" else math.nextafter(float(text), math.inf)
        else:
            upper = float(text) if sign == "<=" else math.nextafter(float(text), -math.inf)
    once = len(said) == len(ends) > 0
    if not once or not all(map(math.isfinite, said.values())) or lower > upper:
        return None
    words = {">": "above_{:g}", "<": "below_{:g}", "><": "from_{:g}_to_{:g}"}
    signs = [sign for sign in "><" if sign in said]
    return Range(name, lower, upper, words["".join(signs)].format(*(said[s] for s in signs)))
