"""``python -m paper``: the flow paper's tables and figures, run again."""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from paper.data import DATA_VARIABLE
from paper.protocols import PROTOCOLS
from paper.reproduction import NAMES, Reproduction

EXPECTED_ERRORS = (ValueError, ArithmeticError, OSError, ModuleNotFoundError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an experiment of the flow paper, and show its table beside the paper's numbers.

    An interrupted table goes on where it stopped; a finished run is never repeated.
    """
    options = _parser().parse_args(arguments)
    try:
        return _answer(options)
    except EXPECTED_ERRORS as error:
        print(f"paper: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        goes_on = "The same command goes on where this one stopped."
        print(f"paper: interrupted; no file was left half written. {goes_on}", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m paper", description=main.__doc__)
    add = parser.add_argument
    add("name", nargs="?", default="", help=f"{', '.join(NAMES)}.")
    add("--protocol", default="budget", help="paper: its appendix to the letter; budget: shorter.")
    add("--rows", default="", help="Rows, or data, such as xd,iw-50 or white.")
    add("--seeds", default="", help="Seeds, such as 0,1.")
    add("--results", type=Path, default=Path("results"), help="Folder of the records.")
    add(
        "--data", type=Path, default=os.environ.get(DATA_VARIABLE) or None,
        help=f"Folder of wine_white.npy and wine_red.npy; without it that of the environment "
        f"variable {DATA_VARIABLE}, or from OpenML.",
    )  # fmt: skip
    add("--jobs", type=int, default=2, help="Runs at a time, with one thread each.")
    add("--check", action="store_true", help="Say what is missing, and whether the page agrees.")
    add("--write", action="store_true", help="Only bring docs/reproduction.md up to date.")
    add("--quiet", "-q", action="store_true", help="No progress bar.")
    return parser


def _answer(options: argparse.Namespace) -> int:
    name = options.name
    if (name or not (options.check or options.write)) and name not in NAMES:
        raise ValueError(f"Expected one of {', '.join(NAMES)}; got {name or 'nothing'}.")
    if options.protocol not in PROTOCOLS:
        words = ", ".join(PROTOCOLS)
        raise ValueError(f"Expected --protocol as one of {words}; got {options.protocol!r}.")
    if options.jobs < 1:
        raise ValueError(f"Expected --jobs of at least 1; got {options.jobs}.")
    paper = Reproduction(
        options.results, options.data, PROTOCOLS[options.protocol], options.jobs,
        partial(print, file=sys.stderr), progress=not options.quiet,
    )  # fmt: skip
    if options.check:
        return _report(paper, [name] if name else NAMES)
    if options.write:
        print(f"{paper.document} {'written' if paper.write() else 'is up to date'}.")
    else:
        print(paper.run(name, _split(options.rows), _numbers(options.seeds)))
    return 0


def _report(paper: Reproduction, names: Sequence[str]) -> int:
    """Say what was checked; return 1 if something is wrong."""
    findings = paper.check(names)
    for good, words in findings:
        print(f"{'ok     ' if good else 'MISSING'} {words}")
    bad = sum(not good for good, _ in findings)
    print(f"{bad} of {len(findings)} are wrong." if bad else "Everything is there.")
    return 1 if bad else 0


def _split(words: str) -> list[str]:
    return [word.strip() for word in words.split(",") if word.strip()]


def _numbers(seeds: str) -> list[int] | None:
    try:
        return [int(word) for word in _split(seeds)] or None
    except ValueError as error:
        raise ValueError(
            f"Expected --seeds as whole numbers, such as 0,1; got {seeds!r}."
        ) from error


if __name__ == "__main__":
    sys.exit(main())
