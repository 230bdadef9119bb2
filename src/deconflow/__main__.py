"""Where the program starts: an interrupt is one line, also while Python still imports."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

INTERRUPTED = 130


def main() -> None:
    """Import the program and run it."""
    if sys.stderr is None:  # as after 2>&-: what nobody reads must not end the work
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not where interrupts are ignored
        signal.signal(signal.SIGINT, _leave)
    try:
        from deconflow.cli import app
    except ModuleNotFoundError as error:
        sys.exit(
            f"deconflow: {error.name} is not installed; pip install 'deconflow[all]' brings it."
        )
    signal.signal(signal.SIGINT, before)
    app()


def _leave(*_: object) -> NoReturn:
    sys.stderr.write("deconflow: interrupted; nothing had begun.\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
