"""Write what a benchmark measured, with all that is needed to repeat it."""

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results"
PACKAGES = ("deconflow", "torch", "zuko", "scikit-learn", "numpy")


def write(name, *, show=True, **content):
    """Write ``results/NAME.json`` and, if ``show``, print the same."""
    record = {
        **content,
        "versions": {package: version(package) for package in PACKAGES},
        "machine": {"processor": _processor(), "cores": os.cpu_count()},
    }
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(record, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    if show:
        print(text)


def _processor():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor()
