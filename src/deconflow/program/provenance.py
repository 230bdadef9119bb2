"""Where a model and a report come from: what was typed, when, and with which versions."""

import platform
import shlex
from contextvars import ContextVar
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from typer.core import TyperGroup

from deconflow._version import __version__

_TYPED: ContextVar[str | None] = ContextVar("typed", default=None)
LIBRARIES = ("numpy", "scipy", "torch", "scikit-learn", "numba", "zuko", "pyarrow", "matplotlib")


class KeepsWhatWasTyped(TyperGroup):
    """The program, which lets its commands ask what was typed."""

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> Any:
        """Keep the words before they are taken apart."""
        _TYPED.set(shlex.join(["deconflow", *args]))
        return super().make_context(info_name, args, *more, **extra)


def typed_command() -> str | None:
    """Return the command that runs, as it was typed, with what the shell has put for patterns."""
    return _TYPED.get()


def now() -> str:
    """Return date and time, with the difference from UTC.

    Examples
    --------
    >>> len(now())
    25
    """
    return datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")


def versions() -> str:
    """Name the versions of this program, of Python and of what it computes with."""
    said = [f"deconflow {__version__}", f"Python {platform.python_version()}"]
    for name in LIBRARIES:
        try:
            said.append(f"{name} {version(name)}")
        except PackageNotFoundError:  # of an extra that is not installed
            continue
    return ", ".join(said)
