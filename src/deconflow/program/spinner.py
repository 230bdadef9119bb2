"""A sign of life while something runs that shows no progress bar of its own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm.auto import tqdm


@contextmanager
def waiting(what: str, *, shown: bool) -> Iterator[None]:
    """Show what is done and for how long, if someone is looking at a terminal."""
    if not shown or not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    form = "{desc} {elapsed}"
    with tqdm(desc=what, bar_format=form, leave=False) as bar:
        clock = threading.Thread(target=_tick, args=(bar, done), daemon=True)
        clock.start()
        try:
            yield
        finally:
            done.set()
            clock.join()


def _tick(bar: tqdm, done: threading.Event) -> None:
    while not done.wait(0.5):
        bar.refresh()
