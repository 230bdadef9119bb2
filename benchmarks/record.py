"""Write what a benchmark measured, with all that is needed to repeat it."""

import json
from pathlib import Path

from deconflow.reproduction.records import machine, versions

RESULTS = Path(__file__).resolve().parents[1] / "results"


def write(name, *, show=True, **content):
    """Write ``results/NAME.json`` and, if ``show``, print the same."""
    record = {**content, "versions": versions(), "machine": machine()}
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(record, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    if show:
        print(text)
