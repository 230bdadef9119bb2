"""Comparing what is computed now with what was recorded: numbers and texts."""

import re

import numpy as np

NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]*\w)")
#: Tolerance of numbers that a text gives with all their digits.
ALL_DIGITS = 1e-9


def assert_same(found, recorded, tolerance):
    """Raise with every name whose numbers differ; what was not recorded is not looked at."""
    lines = differences(found, recorded, tolerance)
    assert not lines, "\n".join(["Numbers have changed:", *lines])


def differences(found, recorded, tolerance, name=""):
    """One line for each leaf of nested dictionaries that differs, relatively or absolutely."""
    if isinstance(recorded, dict):
        if missing := recorded.keys() - found.keys():
            return [f"{name}: expected {sorted(missing)}; got none"]
        return [
            line
            for key, part in recorded.items()
            for line in differences(found[key], part, tolerance, f"{name}.{key}".strip("."))
        ]
    found, recorded = np.asarray(found), np.asarray(recorded)
    if found.shape != recorded.shape:
        return [f"{name}: expected shape {recorded.shape}; got {found.shape}"]
    if recorded.dtype.kind not in "iuf":
        return [] if (found == recorded).all() else [f"{name}: expected {recorded}; got {found}"]
    close = np.isclose(found, recorded, rtol=tolerance, atol=tolerance, equal_nan=True)
    if close.all():
        return []
    with np.errstate(invalid="ignore"):
        gap = np.where(close, 0.0, np.nan_to_num(np.abs(found - recorded), nan=np.inf))
    worst = np.unravel_index(gap.argmax(), gap.shape)
    return [
        f"{name}: {(~close).sum()} of {close.size} differ, most at {tuple(map(int, worst))}: "
        f"expected {recorded[worst]!r}; got {found[worst]!r}"
    ]


def assert_same_text(found, recorded, *, by_word=False):
    """Raise with every line that differs by more than the last digit of a number.

    ``by_word`` leaves the breaking of lines out, which is not ours in ``--help``.
    """
    parts = [text.split() if by_word else text.splitlines() for text in (found, recorded)]
    width = max(map(len, parts))
    pairs = zip(*(part + [""] * (width - len(part)) for part in parts), strict=True)
    lines = [f"- {old}\n+ {new}" for new, old in pairs if not _same_line(new, old)]
    assert not lines, "\n".join(["A text has changed:", *lines])


def _same_line(found, recorded):
    words = [" ".join(NUMBER.sub("#", line).split()) for line in (found, recorded)]
    numbers = [NUMBER.findall(line) for line in (found, recorded)]
    return words[0] == words[1] and all(map(_same_number, *numbers))


def _same_number(found, recorded):
    unit = max(_last_digit(found), _last_digit(recorded))
    gap = abs(float(found) - float(recorded))
    return gap <= max(1.001 * unit, ALL_DIGITS, ALL_DIGITS * abs(float(recorded)))


def _last_digit(number):
    """One unit of the last digit that is printed; 0 for an integer, which is a count."""
    digits, _, power = number.lower().partition("e")
    _, point, decimals = digits.partition(".")
    return 10.0 ** (int(power or 0) - len(decimals)) if point or power else 0.0
