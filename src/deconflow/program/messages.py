"""What the program says: results on the output, everything else on the error output."""

import os
import shlex
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from deconflow import ranks
from deconflow.program.options import as_options
from deconflow.progress import beside_a_bar
from deconflow.tables import STANDARD

TRACEBACK = "DECONFLOW_TRACEBACK"
PIPE_CLOSED = 141
#: The command that runs, as it was typed, with what the shell has put for patterns.
TYPED: ContextVar[str | None] = ContextVar("typed", default=None)


def speaks() -> bool:
    """Whether this process is the one that speaks, of those that torchrun may have started."""
    return int(os.environ.get("WORLD_SIZE", "1")) == 1 or os.environ.get("RANK", "0") == "0"


def say(*lines: str, table: Path | None = None) -> None:
    """Say a result; beside a ``table`` that goes to the standard output it is a note."""
    if table == STANDARD:
        note(*lines)
    elif speaks():
        with beside_a_bar():
            typer.echo("\n".join(map(printable, lines)))


def note(*lines: str, any_process: bool = False) -> None:
    """Say something that is not a result; that it cannot be said does not end the work."""
    if any_process or speaks():
        with suppress(OSError), beside_a_bar():
            typer.echo("\n".join(map(printable, lines)), err=True)


def printable(line: str) -> str:
    r"""Take what could steer a terminal out of a line that may come from a file.

    Examples
    --------
    >>> printable("größe\x1b[2J")
    'größe?[2J'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def interrupt(number: int, _: object) -> NoReturn:
    """End what runs, as Ctrl-C does; while files are put in order, only Ctrl-C is heard again."""
    for each in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, each):
            signal.signal(getattr(signal, each), signal.SIG_IGN)
    raise KeyboardInterrupt(number)


@contextmanager
def one_line_errors(when_interrupted: str = "") -> Iterator[None]:
    """Turn what users can cause into one line and an exit code, never a traceback."""
    try:
        with _one_line_warnings():
            yield
    except ModuleNotFoundError as error:
        advice = f"{error.name} is not installed; pip install 'deconflow[all]' brings it."
        _fail(str(error) if "pip install" in str(error) else advice)
    except MemoryError:
        _fail("Expected more memory; got none left. Take fewer rows at once, or fewer draws.")
    except BrokenPipeError as error:  # who read the output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(PIPE_CLOSED) from error
    except ranks.LostRankError as error:
        _fail(f"{error}{when_interrupted}", code=1, lost=True)
    except (ValueError, TypeError, ArithmeticError, OSError) as error:
        _fail(as_options(" ".join(str(error).split())))
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        _fail(
            f"Expected no error of this kind; got {type(error).__name__}: "
            f"{' '.join(str(error).split())}. Please report it, with what {TRACEBACK}=1 shows.",
            code=1,
        )
    except KeyboardInterrupt as error:
        note(f"deconflow: interrupted; no file was left half written.{when_interrupted}")
        raise typer.Exit(128 + (error.args or (signal.SIGINT,))[0]) from error


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Show each warning once, as a line."""
    seen: set[str] = set()

    def show(message: Warning | str, *rest: object, **options: object) -> None:
        text = as_options(" ".join(str(message).split()))
        if text not in seen:
            seen.add(text)
            note(f"deconflow: note: {text}")

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _fail(message: str, code: int = 2, *, lost: bool = False) -> NoReturn:
    """Say what is wrong; of several processes, whoever alone knows it says it."""
    if speaks() or lost or ranks.has_failed_alone():
        who = "deconflow" if speaks() else f"deconflow, process {os.environ['RANK']}"
        note(f"{who}: {message}", any_process=True)
    raise typer.Exit(code)


class KeepsWhatWasTyped(TyperGroup):
    """The program, which lets its commands ask what was typed."""

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> Any:
        """Keep the words before they are taken apart."""
        TYPED.set(shlex.join(["deconflow", *args]))
        return super().make_context(info_name, args, *more, **extra)


def now() -> str:
    """Return date and time, with the difference from UTC.

    Examples
    --------
    >>> len(now())
    25
    """
    return datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
