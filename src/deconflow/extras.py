"""Packages that not everyone needs: imported when asked for, or said how to install them."""

from __future__ import annotations

import importlib
from typing import Any

TABLES, INTEROP, PLOTS = (f"'deconflow[{extra}]'" for extra in ("tables", "interop", "plots"))
BROUGHT_BY = {
    "arviz_base": INTEROP,
    "corner": PLOTS,
    "matplotlib": PLOTS,
    "xarray": INTEROP,
}
"""What pip installs for a package; the extra ``tables`` for all others."""


def need(module: str, why: str = "tables need it") -> Any:
    """Import an optional module, or say which install brings it."""
    package = module.split(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Expected {package} to be installed, because {why}; got none. "
            f"Run: pip install {BROUGHT_BY.get(package, TABLES)}",
            name=module,
        ) from error


def need_plots() -> None:
    """Raise unless pictures can be drawn."""
    for module in ("matplotlib", "corner"):
        need(module, "pictures need it")
