"""How far a fit is and how long the rest takes: one plan, re-estimated while it runs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

from tqdm.auto import tqdm

REDRAWN_EVERY, WRITTEN_EVERY = 0.5, 30.0
"""Seconds between two looks at a terminal's bar, and between two lines of a log."""
PRIOR_SECONDS = 1.0
"""What the pace so far counts for beside that of a new stage, in seconds of expected work."""
ONE_OFF, ONE_OFF_SECONDS = 20.0, 3.0
"""A first step that takes so many times, and so many seconds, longer than expected has compiled
code that is kept: it tells nothing of the steps after it."""
RANGE = 3.0
"""Fits take between the expected time divided by this, and times this: see :meth:`plan`."""
WORTH_A_CHOICE = 10.0
"""Seconds from which on a quicker way is worth a word."""


class Progress:
    """What is left of a fit, stage by stage, and how long it takes.

    A fit says which stages it has, and how many seconds each of their steps should take
    (:meth:`plan`); a stage says so again when it knows better (:meth:`expect`). The pace of what is
    done corrects what is left. On a terminal and in a notebook this is one bar; in a log it is a
    line now and then. It never changes what is fitted.

    Parameters
    ----------
    shown
        Whether to show anything; one that is not shown costs nothing.
    tell
        Takes lines of text; None for the error output.

    Examples
    --------
    >>> with Progress(shown=False) as progress:
    ...     progress.plan("This fit", {"fitting mixtures": [1.0, 2.0]})
    ...     progress.begin("fitting mixtures")
    ...     progress.advance()
    """

    def __init__(self, *, shown: bool = True, tell: Callable[[str], None] | None = None) -> None:
        self.shown, self._tell = shown, tell or _write
        self._planned: dict[str, list[float]] = {}
        self._words, self._unit, self._remark = "", "", ""
        self._left: list[float] = []
        self._done, self._done_cost, self._fraction = 0, 0.0, 0.0
        self._pace = 1.0
        self._lock, self._end = threading.RLock(), threading.Event()
        self._clock: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self.shown:
            self._start = self._begun = self._last = time.monotonic()
            self._clock = threading.Thread(target=self._watch, daemon=True)
            self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._clock is not None:
            self._end.set()
            self._clock.join()

    def plan(self, what: str, stages: Mapping[str, Sequence[float]], quicker: str = "") -> None:
        """Say which stages are to come, with the seconds that each of their steps should take.

        The first line that a user sees tells the range in which the sum of these will be.
        """
        if not self.shown:
            return
        with self._lock:
            self._planned |= {words: list(costs) for words, costs in stages.items()}
            seconds = self._planned_seconds()
        low, high = in_words(seconds / RANGE), in_words(seconds * RANGE)
        line = f"{what} takes about {low}" + (f" to {high}" if high != low else "")
        self._tell(line + (f"; {quicker}" if quicker and seconds > WORTH_A_CHOICE else ""))

    def begin(self, words: str, unit: str = "") -> None:
        """Begin a stage: what is planned for it is to be done now."""
        if not self.shown:
            return
        with self._lock:
            self._pace = self._own_pace()
            self._words, self._unit, self._remark = words, unit, ""
            self._left, self._done, self._done_cost = self._planned.pop(words, []), 0, 0.0
            self._begun = self._last = time.monotonic()

    def expect(self, costs: Sequence[float]) -> None:
        """Say again of which steps the rest of the stage is made."""
        if self.shown:
            with self._lock:
                self._left = list(costs)

    def advance(self, steps: int = 1, remark: str = "") -> None:
        """Say that the next steps are done, and what else there is to say of them."""
        if not self.shown:
            return
        with self._lock:
            cost, now = sum(self._left[:steps]), time.monotonic()
            surplus = now - self._begun - self._pace * cost
            if not self._done_cost and surplus > max(ONE_OFF_SECONDS, ONE_OFF * self._pace * cost):
                self._begun += surplus
            self._done, self._remark = self._done + steps, remark
            self._done_cost += cost
            del self._left[:steps]
            self._last = now

    def skip(self, steps: int) -> None:
        """Say that the next steps had been done before: they tell nothing of the pace."""
        if self.shown:
            with self._lock:
                self._done += steps
                del self._left[:steps]

    def seconds_left(self) -> float:
        """Return how long all that is left will take."""
        with self._lock:
            since = time.monotonic() - self._last
            here = max(0.0, self._own_pace() * sum(self._left) - since)
            return here + self._own_pace() * self._planned_seconds()

    def status(self) -> str:
        """Say what is done now, and how long the rest takes.

        Examples
        --------
        >>> with Progress(tell=lambda line: None) as progress:
        ...     progress.plan("This fit", {"fitting mixtures": [40.0, 40.0, 40.0]})
        ...     progress.begin("fitting mixtures")
        ...     print(progress.status())
        fitting mixtures, 1 of 3; about 2 min left
        """
        with self._lock:
            total = self._done + len(self._left)
            unit = f" {self._unit}" if self._unit else ""
            counted = f", {min(self._done + 1, total)} of {total}{unit}" if total > 1 else ""
            left, gone = self.seconds_left(), time.monotonic() - self._begun
        known = f"about {in_words(left)} left" if left > 0 else f"{in_words(gone)} so far"
        return f"{self._words}{counted}; {known}" + (f"; {self._remark}" if self._remark else "")

    def _planned_seconds(self) -> float:
        """Return the seconds of all stages that have not begun."""
        return sum(map(sum, self._planned.values()))

    def _own_pace(self) -> float:
        """Seconds that a second of expected work takes in this stage, and so far before it."""
        if not self._done:
            return self._pace
        seconds = self._last - self._begun
        return (seconds + PRIOR_SECONDS * self._pace) / (self._done_cost + PRIOR_SECONDS)

    def _watch(self) -> None:
        """Show the status again and again, until the end."""
        if not _live():
            while not self._end.wait(WRITTEN_EVERY):
                self._tell(self.status())
            return
        form = "{desc} |{bar}| {percentage:3.0f}%"
        with tqdm(total=1.0, bar_format=form, leave=False, dynamic_ncols=True) as bar:
            while not self._end.wait(REDRAWN_EVERY):
                bar.n = self._grown_fraction()
                bar.set_description_str(self.status() if self._words else "")

    def _grown_fraction(self) -> float:
        """Return the share of the time that has gone; a bar that shrinks helps nobody."""
        gone, left = time.monotonic() - self._start, self.seconds_left()
        if left > 0:  # else nobody knows how much there is
            self._fraction = max(self._fraction, gone / (gone + left))
        return self._fraction


def in_words(seconds: float) -> str:
    """Say how long something takes, as exactly as one can know it.

    Examples
    --------
    >>> [in_words(s) for s in (0.2, 7.2, 41, 82, 130, 1000, 10_000)]
    ['1 s', '7 s', '40 s', '1 min 20 s', '2 min 10 s', '17 min', '2 h 50 min']
    """
    if seconds < 20:
        return f"{max(1, round(seconds))} s"
    if seconds < 57.5:
        return f"{5 * round(seconds / 5)} s"
    if seconds < 595:
        minutes, rest = divmod(10 * round(seconds / 10), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    if seconds < 3570:
        return f"{round(seconds / 60)} min"
    hours, minutes = divmod(10 * round(seconds / 600), 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def beside_a_bar() -> AbstractContextManager[Any]:
    """Make room for lines that are written while a bar is shown."""
    return tqdm.external_write_mode(file=sys.stderr)


def _live() -> bool:
    """Whether what is written can be written over: on a terminal, in a notebook."""
    notebook = any(base.__module__ == "tqdm.notebook" for base in tqdm.__mro__)
    return notebook or (sys.stderr is not None and sys.stderr.isatty())


def _write(line: str) -> None:
    with beside_a_bar():
        print(line, file=sys.stderr, flush=True)


SILENT = Progress(shown=False)
"""For fits that nobody watches."""
