"""Call the library ten thousand times with whatever comes to mind, and count what happens.

    python -m tests.fuzz --calls 10000     # writes results/fuzz.json
    python -m tests.fuzz --seed 1234       # one call: its code, and what becomes of it

A run that was interrupted goes on where it was, as long as the code is the same.
"""

import argparse
import hashlib
import json
import re
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.record import write

from .judge import CLASSES, FAULTS, LIMIT, call_of, judge
from .running import ROOT, run_all, serve

MOST_NAMELESS = 0.01
PROGRESS = ROOT / ".fuzz.jsonl"


def main() -> int:
    """Read the options and do what they say; 1 if a bar was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first call")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seed", type=int, help="show and run this one call")
    parser.add_argument("--no-record", action="store_true", help="do not write results/fuzz.json")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        serve()
        return 0
    if options.seed is not None:
        return show(options.seed)
    return fuzz(
        range(options.first, options.first + options.calls), options.jobs, not options.no_record
    )


def show(seed: int) -> int:
    """Print one call as code, and what becomes of it."""
    call = call_of(seed)
    outcome = judge(call)
    print(call.code)
    print(f"# {outcome.kind}: {outcome.detail} ({outcome.where}; {outcome.seconds} s)")
    return int(outcome.kind in FAULTS)


def fuzz(seeds: range, jobs: int, record: bool) -> int:
    """Run all calls, print and write what was found."""
    done = _earlier()
    before = sum(outcome["clock"] for outcome in done.values())
    start = time.perf_counter()
    left = [seed for seed in seeds if seed not in done]
    with PROGRESS.open("a") as file, tqdm(total=len(seeds), initial=len(seeds) - len(left)) as bar:
        last = [start]

        def take(seed: int, outcome: dict[str, Any]) -> None:
            now = time.perf_counter()
            done[seed] = outcome | {"clock": now - last[0]}
            last[0] = now
            file.write(json.dumps([seed, done[seed]]) + "\n")
            file.flush()
            bar.update()

        run_all(left, jobs, take)
    found = summary({seed: done[seed] for seed in seeds})
    found["seconds"] = round(before + time.perf_counter() - start)
    _print(found)
    if record:
        write("fuzz", show=False, **found)
    return int(not all(found["bars"].values()))


def summary(done: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Count outcomes by class and by subject, and list what is distinct among the bad ones."""
    counts = Counter(outcome["kind"] for outcome in done.values())
    by_subject: dict[str, Counter[str]] = defaultdict(Counter)
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for seed, outcome in sorted(done.items()):
        by_subject[outcome.get("subject") or call_of(seed).subject][outcome["kind"]] += 1
        if outcome["kind"] not in ("ok", "refused"):
            groups[outcome["kind"], outcome["where"], _general(outcome["detail"])].append(seed)
    refusals = counts["refused"] + counts["nameless"] + counts["unclear"]
    share = counts["nameless"] / max(refusals, 1)
    return {
        "calls": len(done),
        "limit_seconds": LIMIT,
        "classes": {kind: {"calls": counts[kind], "meaning": CLASSES[kind]} for kind in CLASSES},
        "bars": {f"no {kind}": counts[kind] == 0 for kind in FAULTS}
        | {"at most 1 % of errors nameless": share <= MOST_NAMELESS},
        "nameless_share_of_errors": round(share, 4),
        "by_subject": {name: dict(kinds) for name, kinds in sorted(by_subject.items())},
        "slowest": sorted((o["seconds"], seed) for seed, o in done.items())[-5:],
        "findings": [_finding(done, seeds) for _, seeds in sorted(groups.items())],
    }


def _finding(done: dict[int, dict[str, Any]], seeds: list[int]) -> dict[str, Any]:
    """One distinct fault, with the shortest call that shows it."""
    calls = {seed: call_of(seed) for seed in seeds[:20]}
    seed = min(calls, key=lambda seed: len(calls[seed].text))
    call, outcome = calls[seed], done[seed]
    return {
        "class": outcome["kind"],
        "detail": outcome["detail"][:500],
        "where": outcome["where"],
        "calls": len(seeds),
        "subjects": sorted({call.subject for call in calls.values()}),
        "seed": seed,
        "code": (call.model + call.text).split("\n"),
    }


def _general(detail: str) -> str:
    """A message without what differs from call to call."""
    plain = re.sub(r"<.*?>|0[xX]\w+|'[^']*'|\bnan\b|\binf\b", "#", detail.split("\n")[0])
    return re.sub(r"[\d.e+-]*\d", "#", plain)[:80]


def _earlier() -> dict[int, dict[str, Any]]:
    """Outcomes of a run of the same code that was interrupted."""
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "src").rglob("*.py"), *Path(__file__).parent.glob("*.py")]):
        digest.update(path.read_bytes())
    head = json.dumps(digest.hexdigest())
    lines = PROGRESS.read_text().splitlines() if PROGRESS.exists() else []
    if not lines or lines[0] != head:
        PROGRESS.write_text(head + "\n")
        return {}
    whole = [line for line in lines[1:] if line.endswith("}]")]  # the last may be cut off
    return {seed: outcome for seed, outcome in map(json.loads, whole)}


def _print(found: dict[str, Any]) -> None:
    for finding in found["findings"]:
        if finding["class"] not in ("silent_beyond", "warned"):
            words = finding["detail"].split("\n")[0][:150]
            print(f"{finding['class']:<9}{finding['calls']:>5}  seed {finding['seed']:<6} {words}")
            print(f"{'':<16}{finding['where']}")
    for kind, entry in found["classes"].items():
        print(f"{kind:<14}{entry['calls']:>6}  {entry['meaning']}")
    for bar, held in found["bars"].items():
        print(f"{'holds' if held else 'MISSED':<7} {bar}")
    print(f"{found['calls']} calls in {found['seconds'] / 60:.1f} minutes")


if __name__ == "__main__":
    sys.exit(main())
