"""``deconflow reproduce``: the paper's tables and figures, run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deconflow.program.messages import note, one_line_errors
from deconflow.program.options import Quiet
from deconflow.tables import split_list

NAMES = ("mixture", "pretraining", "uci", "ablation", "grid", "figures")


def reproduce(
    name: Annotated[str, typer.Argument(help=f"{', '.join(NAMES)}.")] = "",
    protocol: Annotated[
        str, typer.Option("--protocol", help="paper: its appendix to the letter; budget: shorter.")
    ] = "budget",
    rows: Annotated[
        str, typer.Option("--rows", help="Rows, or data, such as xd,iw-50 or white.")
    ] = "",
    seeds: Annotated[str, typer.Option("--seeds", help="Seeds, such as 0,1.")] = "",
    results: Annotated[Path, typer.Option("--results", help="Folder of the records.")] = Path(
        "results"
    ),
    data: Annotated[
        Path, typer.Option("--data", help="Folder of wine_white.npy; without it, from OpenML.")
    ] = Path("../shared/data"),
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, help="Runs at a time, with one thread each.")
    ] = 2,
    check: Annotated[
        bool, typer.Option("--check", help="Say what is missing, and whether the document agrees.")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Only bring docs/reproduction.md up to date.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment of the flow paper, and show its table beside the paper's numbers.

    An interrupted table goes on where it stopped; a finished run is never repeated.

    Example: deconflow reproduce mixture --rows xd --seeds 0
    """
    with one_line_errors(" The same command goes on where this one stopped."):
        from deconflow.reproduction.front import Reproduction, protocol_named

        _check_name(name, needed=not (check or write))
        work = Reproduction(
            results, data, protocol_named(protocol), jobs, note, progress=not quiet
        )  # fmt: skip
        if check:
            _report(work, name)
        elif write:
            typer.echo(f"{work.document} {'written' if work.write() else 'is up to date'}.")
        else:
            if name == "figures":
                _need_pictures()
            typer.echo(work.run(name, split_list([rows]), _numbers(seeds)))


def _report(work, name: str) -> None:  # noqa: ANN001
    """Say what was checked, and end with code 1 if something is wrong."""
    findings = work.check([name]) if name else work.check()
    for finding in findings:
        typer.echo(f"{'ok     ' if finding.good else 'MISSING'} {finding.words}")
    bad = sum(not finding.good for finding in findings)
    typer.echo(f"{bad} of {len(findings)} are wrong." if bad else "Everything is there.")
    if bad:
        raise typer.Exit(1)


def _check_name(name: str, *, needed: bool) -> None:
    if (name or needed) and name not in NAMES:
        raise ValueError(f"Expected one of {', '.join(NAMES)}; got {name or 'nothing'}.")


def _numbers(seeds: str) -> list[int] | None:
    try:
        return [int(part) for part in split_list([seeds])] or None
    except ValueError as error:
        raise ValueError(
            f"Expected --seeds as whole numbers, such as 0,1; got {seeds!r}."
        ) from error


def _need_pictures() -> None:
    from deconflow.program.plot import need_plots

    need_plots()
