"""Run sections of the records; ``docs/records.md`` shows their figures.

    python -m benchmarks.records [gamma batting real sparse honest] [--estimator NAME ...]

Every fit is kept in ``results/records.json`` as soon as it is done. Runs that this code has made
are not repeated; those of other code are, unless ``--keep`` is given.
"""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.record import RESULTS
from benchmarks.records import estimators
from benchmarks.records.real import BATTING, REAL
from benchmarks.records.section import KEYS
from benchmarks.records.simulated import GAMMA, HONEST, SPARSE
from benchmarks.runs import DATA, Runs

SECTIONS = {section.name: section for section in (GAMMA, BATTING, REAL, SPARSE, HONEST)}


def open_runs(results: Path, *, keep: bool = False) -> Runs:
    """Return the runs that a folder keeps; they may be none."""
    runs = Runs(results / "records.json", KEYS, keep=keep)
    runs.content["command"] = "python -m benchmarks.records"
    return runs


def main() -> int:
    """Do what the command line says."""
    options = _parser().parse_args()
    try:
        _run(options)
    except (ValueError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


def _run(options: argparse.Namespace) -> None:
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        raise ValueError(f"Expected sections of {', '.join(SECTIONS)}; got {unknown[0]!r}.")
    runs = open_runs(options.results, keep=options.keep)
    for name in options.sections or SECTIONS:
        section = SECTIONS[name]
        chosen = options.estimator or section.estimators
        tasks = section.tasks(tuple(chosen), options.seeds or section.seeds)
        left = [task for task in tasks if not runs.done(task)]
        print(f"{name}: {len(tasks)} runs, {len(left)} to make", file=sys.stderr)
        for task in left:
            runs.add(section.run(task, options.data))
            print(json.dumps(runs.runs[-1]), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.records", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("sections", nargs="*", help=f"Of {', '.join(SECTIONS)}; all if none is named.")
    add("--estimator", nargs="+", choices=list(estimators.MAKERS), help="Those of the section.")
    add("--seeds", type=int, nargs="+", help="Those of the bars if not given.")
    add("--results", type=Path, default=RESULTS, help="Folder of the records.")
    add("--data", type=Path, default=DATA, help="Folder of the tables.")
    add("--keep", action="store_true", help="Runs of other code count as done.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
