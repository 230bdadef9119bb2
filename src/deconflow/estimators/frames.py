"""Tables that users hand over where arrays are: pandas, polars and astropy."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def plain_tables(w: Any, noise: Any) -> tuple[Any, Any]:
    """Bring tables into forms that scikit-learn reads, the noise in the columns' order of ``w``.

    Standard deviations in an astropy table are converted to the units of ``w``.
    """
    if is_astropy(w) and is_astropy(noise):
        noise = _in_units_of(w, noise)
    w, noise = plain_table(w), plain_table(noise)
    names, noise_names = (list(getattr(x, "columns", [])) for x in (w, noise))
    if names != noise_names and sorted(map(str, names)) == sorted(map(str, noise_names)):
        noise = noise[names]
    return w, noise


def refuse_other_names(table: Any, names: list[str]) -> None:
    """Raise if a table names its columns, and they are not these."""
    own = [str(name) for name in getattr(table, "columns", [])]
    if own and own != names and all(isinstance(name, str) for name in table.columns):
        raise ValueError(
            f"Expected the columns {', '.join(names)}, in this order; got {', '.join(own)}."
        )


def plain_table(table: Any) -> Any:
    """Turn a tensor into an array and an astropy table into a data frame; leave others alone."""
    if isinstance(table, Tensor):
        return table.detach().cpu().numpy()
    return _as_frame(table) if is_astropy(table) else table


def is_astropy(table: Any) -> bool:
    """Whether this is a table of astropy."""
    return hasattr(table, "colnames") and hasattr(table, "to_pandas")


def _as_frame(table: Any) -> Any:
    for name in table.colnames:
        if len(table[name].shape) != 1:
            raise ValueError(
                f"Expected one number per row in column {name!r}; got {table[name].shape[1:]} of "
                "them. Split the column."
            )
    try:
        return table.to_pandas(index=False)
    except ImportError as error:
        raise ModuleNotFoundError(
            "Expected pandas to be installed, because astropy tables need it; got none. "
            "Run: pip install 'deconflow[tables]'",
            name="pandas",
        ) from error


def _in_units_of(w: Any, noise: Any) -> Any:
    noise = noise.copy()
    for name in noise.colnames:
        wanted = w[name].unit if name in w.colnames else None
        if wanted is not None and noise[name].unit not in (None, wanted):
            factor = noise[name].unit.to(wanted)
            noise[name] = [float(getattr(x, "value", x)) * factor for x in noise[name]]
    return noise
