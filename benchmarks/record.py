"""Write what a benchmark measured, with all that is needed to repeat it."""

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results"
PACKAGES = ("deconflow", "torch", "zuko", "scikit-learn", "numpy")


def write(name, *, show=True, **content):
    """Write ``results/NAME.json`` and, if ``show``, print the same."""
    record = {**content, "versions": versions(), "machine": machine()}
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(record, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    if show:
        print(text)


def versions():
    """The versions of what a number depends on."""
    known = {}
    for package in PACKAGES:
        try:
            known[package] = version(package)
        except PackageNotFoundError:  # run from a source tree
            known[package] = "not installed"
    return known


def machine():
    """Describe the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        name = platform.processor()
    return {"processor": name, "cores": os.cpu_count()}
