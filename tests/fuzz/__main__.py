"""Call the library ten thousand times with whatever comes to mind, and count what happens.

python -m tests.fuzz --calls 10000     # writes results/fuzz.json
python -m tests.fuzz --seed 1234       # one call: its code, and what becomes of it
"""

import argparse
import sys
import time
from collections import Counter

from tqdm import tqdm

from benchmarks.record import write

from .judge import CLASSES, FAULTS, LIMIT, call_of, judge
from .running import run_all


def main() -> int:
    """Make the calls, and return 1 if one was a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seed", type=int, help="show and run this one call")
    options = parser.parse_args()
    if options.seed is not None:
        call = call_of(options.seed)
        outcome = judge(call)
        print(f"{call.code}\n# {outcome}")
        return int(outcome.kind in FAULTS)
    start = time.perf_counter()
    done = list(tqdm(run_all(range(options.calls), options.jobs), total=options.calls))
    counts = Counter(outcome["kind"] for outcome in done)
    found = [outcome for outcome in done if outcome["kind"] not in ("ok", "refused")]
    write(
        "fuzz",
        calls=len(done),
        limit_seconds=LIMIT,
        classes={kind: {"calls": counts[kind], "meaning": CLASSES[kind]} for kind in CLASSES},
        findings=[each | {"code": call_of(each["seed"]).text.split("\n")} for each in found],
        seconds=round(time.perf_counter() - start),
    )
    return int(any(counts[kind] for kind in FAULTS))


if __name__ == "__main__":
    sys.exit(main())
