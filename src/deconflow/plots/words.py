"""What is written beside axes: names as they are, units as a journal sets them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any


def labels(names: Sequence[str] | None, dim: int) -> list[str]:
    """Check what the dimensions are called, as ``x`` or ``x [mas]``."""
    if names is None:
        return [f"dimension {d}" for d in range(dim)]
    if isinstance(names, str) or len(names) != dim:
        got = repr(names) if isinstance(names, str) else len(names)
        raise ValueError(f"Expected {dim} names; got {got}.")
    return [str(name) for name in names]


def labels_of(model: Any, names: Sequence[str] | None) -> list[str]:
    """Return what the dimensions of a model are called, with their units where it knows them."""
    own = list(model.density_.names)
    if names is not None:
        return labels(names, len(own))
    units = getattr(model, "_units", None) or []
    if len(units) != len(own):
        return own
    return [f"{name} [{unit}]" if unit else name for name, unit in zip(own, units, strict=True)]


def bare(label: str) -> str:
    """Return a label without its unit.

    Examples
    --------
    >>> bare("pmra [mas.yr**-1]")
    'pmra'
    """
    return _parts(label)[0]


def typeset(label: str) -> str:
    r"""Set a label: the name as it is, its unit as mathematics where astropy can read it.

    Examples
    --------
    >>> typeset("pmra [mas.yr**-1]")
    'pmra [$\\mathrm{mas\\,yr^{-1}}$]'
    >>> typeset("price [$]")
    'price [\\$]'
    """
    name, unit = _parts(label)
    name = name.replace("$", r"\$")
    return name if not unit else f"{name} [{_set_unit(unit) or unit.replace('$', chr(92) + '$')}]"


def can_be_set(text: str) -> bool:
    """Whether the mathematics in a text, if there is any, can be set."""
    from matplotlib.cbook import is_math_text
    from matplotlib.mathtext import MathTextParser

    try:
        if is_math_text(text):
            MathTextParser("path").parse(text)
    except ValueError:
        return False
    return True


def _parts(label: str) -> tuple[str, str]:
    found = re.fullmatch(r"(.+?) \[(.+)\]", label, re.DOTALL)
    return (found[1], found[2]) if found else (label, "")


def _set_unit(unit: str) -> str | None:
    """Return a unit as mathematics; None if it is not one that astropy knows."""
    try:
        from astropy.units import Unit
    except ModuleNotFoundError:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old ways to write units, which are read all the same
        try:
            text = Unit(unit).to_string("latex_inline")
        except (ValueError, TypeError):
            return None
    return text if can_be_set(text) else None
