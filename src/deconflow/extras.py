"""Packages that not everyone needs: imported when asked for, or said how to install them."""

import importlib
from collections.abc import Callable
from typing import Any

TABLES, INTEROP, PLOTS, FLOWS = (
    f"'deconflow[{extra}]'" for extra in ("tables", "interop", "plots", "flows")
)
#: What pip installs for a package; the extra ``tables`` for all others.
BROUGHT_BY = {
    "arviz_base": INTEROP,
    "corner": PLOTS,
    "matplotlib": PLOTS,
    "torch": FLOWS,
    "xarray": INTEROP,
    "zuko": FLOWS,
}


def need(module: str, why: str = "tables need it") -> Any:
    """Import an optional module, or say which install brings it."""
    package = module.split(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Expected {package} to be installed, because {why}; got none. "
            f"Run: pip install {BROUGHT_BY.get(package, TABLES)}",
            name=error.name,  # that of a package which it imports, if that is missing
        ) from error


def need_flows() -> None:
    """Raise unless flows can be trained and used."""
    need("zuko", "flows need it")


def of_flows(
    package: str, homes: dict[str, str], bring: Callable[[str], Any] = lambda name: need_flows()
) -> Callable[[str], Any]:
    """Make the ``__getattr__`` of a package: names that need torch, and the files they are in.

    ``bring`` is called with a name before its file is imported, to say what is missing.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        bring(name)
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return find


def need_plots() -> None:
    """Raise unless pictures can be drawn."""
    need("corner", "pictures need it")
