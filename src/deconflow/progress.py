"""Progress of a fit: its stages by name, and how many steps of each are done."""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Self

from tqdm.auto import tqdm

#: Seconds between two lines of a log.
WRITTEN_EVERY = 30.0


class Progress:
    """One bar on a terminal and in a notebook, a line now and then in a log.

    It never changes what is fitted.

    Parameters
    ----------
    shown
        Whether to show anything.
    tell
        Takes lines of text for a log; None for the error output.

    Examples
    --------
    >>> with Progress(tell=print) as progress:
    ...     progress.begin("training flows", "epochs", 600)
    ...     progress.advance(131)
    ...     print(progress.status())
    training flows, 131 of 600 epochs
    """

    def __init__(self, *, shown: bool = True, tell: Callable[[str], None] | None = None) -> None:
        self.shown, self._tell = shown, tell or _write
        self._stage, self._unit, self._remark = "", "", ""
        self._steps: int | None = None
        self._done, self._written = 0, time.monotonic()
        self._lock = threading.Lock()
        self._bar: Any = None

    def __enter__(self) -> Self:
        notebook = any(base.__module__ == "tqdm.notebook" for base in tqdm.__mro__)
        terminal = sys.stderr is not None and sys.stderr.isatty()
        if self.shown and (notebook or terminal):  # what is written can be written over
            self._bar = tqdm(
                bar_format="{desc} |{bar}|", leave=False, dynamic_ncols=True, miniters=1
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def begin(self, stage: str, unit: str = "", steps: int | None = None) -> None:
        """Begin a stage of so many steps; None where their number is not known beforehand."""
        with self._lock:
            self._stage, self._unit, self._remark = stage, unit, ""
            self._steps, self._done = steps, 0
            if self._bar is not None:
                self._bar.total = steps
                self._bar.reset(steps)
            self._show(0)

    def advance(self, steps: int = 1, remark: str = "") -> None:
        """Count steps that are done; ``remark`` is shown after the count."""
        with self._lock:
            self._done, self._remark = self._done + steps, remark
            self._show(steps)

    def status(self) -> str:
        """Return the stage, its steps done, and the last remark, in one line."""
        of_all = f" of {self._steps:,}" if (self._steps or 0) > 1 else ""
        counted = f"{self._done:,}{of_all} {self._unit}".strip() if self._done or of_all else ""
        line = ", ".join(part for part in (self._stage, counted) if part)
        return f"{line}; {self._remark}" if self._remark else line

    def _show(self, steps: int) -> None:
        if self._bar is not None:
            self._bar.set_description_str(self.status(), refresh=steps == 0)
            self._bar.update(steps)
        elif self.shown and time.monotonic() - self._written > WRITTEN_EVERY:
            self._written = time.monotonic()
            self._tell(self.status())


def beside_a_bar() -> AbstractContextManager[Any]:
    """Make room for lines that are written while a bar is shown."""
    return tqdm.external_write_mode(file=sys.stderr)


def _write(line: str) -> None:
    with beside_a_bar():
        print(line, file=sys.stderr, flush=True)


#: For fits that nobody watches.
SILENT = Progress(shown=False)
