"""Call the library ten thousand times with whatever comes to mind, and count what happens.

python -m tests.fuzz --calls 10000     # writes results/fuzz.json
python -m tests.fuzz --seed 1234       # one call: its code, and what becomes of it
"""

import argparse
import re
import sys
import time
from collections import Counter, defaultdict
from typing import Any

from tqdm import tqdm

from benchmarks.record import write

from .judge import CLASSES, FAULTS, LIMIT, call_of, judge
from .running import run_all


def main() -> int:
    """Read the options and do what they say; 1 if a bar was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seed", type=int, help="show and run this one call")
    options = parser.parse_args()
    if options.seed is not None:
        return show(options.seed)
    start = time.perf_counter()
    outcomes = run_all(range(options.calls), options.jobs)
    found = summary(list(tqdm(outcomes, total=options.calls)))
    found["seconds"] = round(time.perf_counter() - start)
    write("fuzz", **found)
    return int(not all(found["bars"].values()))


def show(seed: int) -> int:
    """Print one call as code, and what becomes of it."""
    call = call_of(seed)
    outcome = judge(call)
    print(call.code)
    print(f"# {outcome.kind}: {outcome.detail} ({outcome.where}; {outcome.seconds} s)")
    return int(outcome.kind in FAULTS)


def summary(done: list[dict[str, Any]]) -> dict[str, Any]:
    """Count outcomes by class and by subject, and list what is distinct among the bad ones."""
    counts = Counter(outcome["kind"] for outcome in done)
    by_subject: dict[str, Counter[str]] = defaultdict(Counter)
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for outcome in done:
        by_subject[outcome["subject"]][outcome["kind"]] += 1
        if outcome["kind"] not in ("ok", "refused"):
            groups[outcome["kind"], outcome["where"], _general(outcome["detail"])].append(outcome)
    refusals = counts["refused"] + counts["nameless"] + counts["unclear"]
    share = counts["nameless"] / max(refusals, 1)
    return {
        "calls": len(done),
        "limit_seconds": LIMIT,
        "classes": {kind: {"calls": counts[kind], "meaning": CLASSES[kind]} for kind in CLASSES},
        "bars": {f"no {kind}": counts[kind] == 0 for kind in FAULTS}
        | {"at most 1 % of errors nameless": share <= 0.01},
        "nameless_share_of_errors": round(share, 4),
        "by_subject": {name: dict(kinds) for name, kinds in sorted(by_subject.items())},
        "slowest": sorted((outcome["seconds"], outcome["seed"]) for outcome in done)[-5:],
        "findings": [_finding(outcomes) for _, outcomes in sorted(groups.items())],
    }


def _finding(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """One distinct fault, with the shortest call that shows it."""
    shortest = min(outcomes[:20], key=lambda outcome: len(call_of(outcome["seed"]).text))
    call = call_of(shortest["seed"])
    return {
        "class": shortest["kind"],
        "detail": shortest["detail"][:500],
        "where": shortest["where"],
        "calls": len(outcomes),
        "seed": shortest["seed"],
        "code": (call.model + call.text).split("\n"),
    }


def _general(detail: str) -> str:
    """A message without what differs from call to call."""
    plain = re.sub(r"<.*?>|0[xX]\w+|'[^']*'|\bnan\b|\binf\b", "#", detail.split("\n")[0])
    return re.sub(r"[\d.e+-]*\d", "#", plain)[:80]


if __name__ == "__main__":
    sys.exit(main())
