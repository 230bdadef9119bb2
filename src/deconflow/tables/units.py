"""Units of columns, where a table tells them."""

from __future__ import annotations

from deconflow.tables.formats import need


def conversion(unit: str, wanted: str, column: str) -> float:
    """Return the factor from a unit to the wanted one.

    Examples
    --------
    >>> conversion("km", "m", "distance_err")
    1000.0
    """
    if unit == wanted:
        return 1.0
    units = need("astropy.units")
    try:
        return float(units.Unit(unit).to(units.Unit(wanted)))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"Expected column {column!r} in a unit like {wanted}; got {unit}. Convert it."
        ) from error
