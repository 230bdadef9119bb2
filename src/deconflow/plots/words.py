"""Labels of axes: names as they are, units as a journal typesets them."""

import re
import warnings
from collections.abc import Sequence
from typing import Any


def labels_of(model: Any, names: Sequence[str] | None, measured: int | None = None) -> list[str]:
    """Return labels of the true columns of a model, as ``x`` or ``x [mas]``; ``names`` come first.

    With the number of ``measured`` columns they are those of these.
    """
    fit = model.fit_
    own = list(fit.names) if measured is None else fit.labels.measured(measured)
    if names is not None:
        if isinstance(names, str) or len(names) != len(own):
            raise ValueError(f"Expected {len(own)} names; got {names!r}.")
        return [str(name) for name in names]
    units = (fit.units if measured is None else fit.labels.units) or []
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
    r"""Escape a name for matplotlib, and typeset its unit if astropy can read it.

    Examples
    --------
    >>> typeset("pmra [mas.yr**-1]")
    'pmra [$\\mathrm{mas\\,yr^{-1}}$]'
    >>> typeset("price [$]")
    'price [\\$]'
    """
    name, unit = (part.replace("$", r"\$") for part in _parts(label))
    return f"{name} [{_typeset_unit(unit) or unit}]" if unit else name


def _parts(label: str) -> tuple[str, str]:
    found = re.fullmatch(r"(.+?) \[(.+)\]", label, re.DOTALL)
    return (found[1], found[2]) if found else (label, "")


def _typeset_unit(unit: str) -> str | None:
    """Return a unit as mathematics; None if astropy or matplotlib cannot read it."""
    try:
        from astropy.units import Unit
        from matplotlib.mathtext import MathTextParser

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated ways to write units can be read, too
            text = Unit(unit).to_string("latex_inline")
        MathTextParser("path").parse(text)
    except (ModuleNotFoundError, ValueError, TypeError):
        return None
    return text
