"""Where the program starts: an interrupt is one line, also while Python still imports."""

import os
import signal
import sys
from typing import NoReturn


def main() -> None:
    """Import the program and run it."""
    if sys.stderr is None:  # as after 2>&-: what nobody reads must not end the work
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    signals = _signals()
    for number in signals:
        signal.signal(number, _leave)
    try:
        from deconflow.cli import app
        from deconflow.program.messages import interrupt
    except ModuleNotFoundError as error:
        sys.exit(
            f"deconflow: {error.name} is not installed; pip install 'deconflow[all]' brings it."
        )
    for number in signals:
        signal.signal(number, interrupt)
    app(prog_name="deconflow")  # also as python -m deconflow, whose name no shell could complete


def _signals() -> list[int]:
    """Name the signals that ask a program to end, but not those that are to be ignored."""
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    known = [getattr(signal, name) for name in names if hasattr(signal, name)]
    return [number for number in known if signal.getsignal(number) is not signal.SIG_IGN]


def _leave(number: int, _: object) -> NoReturn:
    sys.stderr.write("deconflow: interrupted; nothing had begun.\n")
    sys.stderr.flush()
    os._exit(128 + number)


if __name__ == "__main__":
    main()
