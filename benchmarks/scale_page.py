"""``docs/many_rows.md``: its tables are written from ``results/scale.json``, and no others.

python -m benchmarks.scale_page
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.record import RESULTS
from benchmarks.records.page import with_parts

PAGE = Path(__file__).resolve().parents[1] / "docs" / "many_rows.md"
COMMAND = "python -m benchmarks.scale_page"
COMPONENTS, SIZES = 10, (10**8, 10**9)
IDLE = 0.7
"""Load of the machine above which others used it."""
EXTRAPOLATED = " *"
"""Stands beside what was not measured."""


def parts(results=RESULTS):
    """Return what stands between the markers of the page."""
    content = json.loads((results / "scale.json").read_text())
    return {"costs": costs(content), "holds": holds(content["runs"], results)}


def costs(content):
    """Return a table of what fits of more and more rows take; the last ones are extrapolated."""
    runs = content["runs"]
    sizes = {run["rows"]: run["gigabytes"] for run in of(runs, "table")}
    fits = sorted(single_fits(runs), key=lambda run: run["rows"])
    lines = ["| rows | on disk | a pass | whole fit | passes | peak memory |", "|" + "---|" * 6]
    for run in fits:
        time = seconds(run["seconds"]) if run["limit"] is None else estimate(run, fits)
        count = run["passes"] if run["limit"] is None else whole(fits)["passes"]
        mark = "" if run["limit"] is None else EXTRAPOLATED
        lines.append(
            f"| {power(run['rows'])} | {size(sizes[run['rows']])} | "
            f"{seconds(min(run['pass_seconds']))} | {time} | {count}{mark} | "
            f"{max(run['peak_gib']):.2f} GiB |"
        )
    last = fits[-1]
    lines += [extrapolated(rows, last, fits, sizes) for rows in SIZES if rows > last["rows"]]
    machine = content["machine"]
    loaded = [power(run["rows"]) for run in fits if run["under_load"]]
    words = f"{COMPONENTS} components, three columns, one process on {machine['cores']} processors"
    words += f" ({machine['processor']}). {EXTRAPOLATED.strip()} Extrapolated, in proportion."
    if loaded:
        words += f" Others used the machine in the fits of {', '.join(loaded)} rows."
    return "\n".join([*lines, "", words.replace("*", r"\*")]).replace(" *", r" \*")


def extrapolated(rows, last, fits, sizes):
    """Return a line about more rows than were ever fitted, in proportion to the largest fit."""
    factor = rows / last["rows"]
    cells = (
        power(rows), size(factor * sizes[last["rows"]]),
        seconds(factor * min(last["pass_seconds"])), estimate(last, fits, rows),
        str(whole(fits)["passes"]), f"{max(last['peak_gib']):.2f} GiB",
    )  # fmt: skip
    return f"| {' | '.join(each.removesuffix(EXTRAPOLATED) + EXTRAPOLATED for each in cells)} |"


def single_fits(runs):
    """Return one fit for each number of rows: a whole one, if there is one."""
    found = {}
    for run in of(runs, "memory"):
        alike = (run["components"], run["processes"]) == (COMPONENTS, 1)
        if alike and (run["limit"] is None or run["rows"] not in found):
            found[run["rows"]] = run
    return list(found.values())


def whole(fits):
    """Return the largest fit that was not cut short."""
    return max((run for run in fits if run["limit"] is None), key=lambda run: run["rows"])


def estimate(run, fits, rows=None):
    """Say what a whole fit would take: the passes grow with the rows, the samples do not."""
    full = whole(fits)
    samples = full["seconds"] - sum(full["pass_seconds"]) - sum(full["overview_seconds"])
    factor = (rows or run["rows"]) / run["rows"]
    passing = full["passes"] * min(run["pass_seconds"]) + run["overview_seconds"][0]
    return seconds(samples + factor * passing) + EXTRAPOLATED


def holds(runs, results):
    """Return a table of what must hold and what was measured."""
    lines = ["| | wanted | measured |", "|---|---|---|"]
    for run in of(runs, "sums"):
        lines += [
            row(
                f"sums of two processes and of one, {about(run)}",
                f"{run['bar_of_sums']:.0e} relative", f"{run['largest_difference_of_sums']:.0e}",
            ),
            row(
                "their fits: mean `log p(w)`, parameters", f"{run['bar_of_fit']:.0e}",
                f"{run['difference_of_log_likelihood']:.0e}, "
                f"{run['largest_difference_of_parameters']:.0e}",
            ),
        ]  # fmt: skip
    lines += [
        row(
            f"two processes, a processor each, over one: a pass, {about(run)}, rows {run['how']}",
            f"at least {run['bar']:g} times", f"{run['ratio']:.2f} times", run,
        )
        for run in of(runs, "speedup")
    ]  # fmt: skip
    lines += [
        row(
            f"passes to the optimum, {about(run)}", f"at most {run['bar_of_passes']}",
            str(run["streamed"]["passes"]),
        )
        + "\n"
        + row(
            "below the optimum in memory, mean `log p(w)`", f"{run['bar_below_optimum']:.0e}",
            f"{run['below_optimum']:.0e}",
        )
        for run in of(runs, "passes")
    ]  # fmt: skip
    lines += growth(runs)
    lines += [
        row(
            f"killed and resumed, {about(run)}: mean `log p(w)`", f"{run['bar']:.0e}",
            f"{run['difference_of_log_likelihood']:.0e}",
        )
        for run in of(runs, "kill")
    ]  # fmt: skip
    return "\n".join([*lines, *of_flows(results), *of_moons(results)])


def growth(runs):
    """Return how memory and time of a row grow between the two largest fits."""
    fits = sorted(single_fits(runs), key=lambda run: run["rows"])[-2:]
    if len(fits) < 2 or fits[1]["rows"] < 10**7:
        return []
    small, large = fits
    what = f"at {power(large['rows'])} rows over that at {power(small['rows'])}"
    peaks = [max(run["peak_gib"]) for run in fits]
    times = [run["nanoseconds_per_row"] for run in fits]
    loaded = {"under_load": any(run["under_load"] for run in fits)}
    return [
        row(f"peak memory {what}", "within 15 %, below 1.5 GiB",
            f"{100 * (peaks[1] / peaks[0] - 1):+.0f} %, {peaks[1]:.2f} GiB"),
        row(f"a pass, per row, {what}", "within 15 %",
            f"{100 * (times[1] / times[0] - 1):+.0f} %, {times[1]:.0f} ns", loaded),
    ]  # fmt: skip


def of_flows(results):
    """Return what the record of flows says, if there is one."""
    path = results / "scale_flows.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    return [
        row(
            "two processes, a thread each, over one: a step of a flow", "at least 1.6 times",
            f"{found['ratio']:.2f} times, {found['ratio_of_processor_seconds']:.2f} by processor",
            {"under_load": found["load_before"] > IDLE},
        )
    ]  # fmt: skip


def of_moons(results):
    """Return what the record of moons says, if there is one."""
    path = results / "scale_moons.json"
    if not path.exists():
        return []
    content = json.loads(path.read_text())
    lines = []
    for run in sorted(content["runs"], key=lambda run: (run["rows"], run["seed"])):
        bar = content["bars"].get(str(run["rows"]))
        if bar is None or run["quick"]:
            continue
        peak = max(run["peak_gib"].values())
        lines.append(
            row(
                f"`Deconvolver`, {power(run['rows'])} moons in memory: excess, time, memory",
                f"{bar['excess']:g}, {bar['seconds']:g} s, {bar['gib']:g} GiB",
                f"{run['excess']:.3f}, {seconds(run['seconds'])}, {peak:.2f} GiB",
                {"under_load": run["load_before"] > IDLE},
            )
        )
    return lines


def of(runs, section):
    found = [run for run in runs if run["section"] == section]
    return sorted(found, key=lambda run: (run["rows"], run.get("components") or 0))


def row(what, wanted, measured, run=None):
    load = " (others used the machine)" if run and run["under_load"] else ""
    return f"| {what} | {wanted} | {measured}{load} |"


def about(run):
    return f"{power(run['rows'])} rows, {run['components']} components"


def power(rows):
    """Write a number of rows.

    Examples
    --------
    >>> power(2_000_000)
    '2 · 10⁶'
    """
    digits = str(int(rows)).rstrip("0") or "0"
    exponent = len(str(int(rows))) - 1
    raised = str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    first = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
    return f"10{raised}" if first == "1" else f"{first} · 10{raised}"


def seconds(number):
    """Write a time.

    Examples
    --------
    >>> seconds(0.123), seconds(75), seconds(600), seconds(9000)
    ('0.12 s', '75 s', '10 min', '2.5 h')
    """
    if number < 10:
        return f"{number:.2g} s"
    if number < 120:
        return f"{number:.0f} s"
    return f"{number / 60:.0f} min" if number < 7200 else f"{number / 3600:.1f} h"


def size(gigabytes):
    """Write a size on disk."""
    return f"{1000 * gigabytes:.2g} MB" if gigabytes < 0.1 else f"{gigabytes:.2g} GB"


def main():
    text = PAGE.read_text()
    PAGE.write_text(with_parts(text, parts(), COMMAND))


if __name__ == "__main__":
    main()
