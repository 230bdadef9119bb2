"""Write what a benchmark measured, with all that is needed to repeat it."""

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results"
PACKAGES = ("deconflow", "torch", "zuko", "scikit-learn", "numpy", "numba")


def write(name, *, show=True, folder=None, **content):
    """Write ``NAME.json`` in a folder, ``results/`` by default; if ``show``, print the same."""
    folder = RESULTS if folder is None else folder  # which a caller may have set
    record = {**content, "versions": versions(), "machine": machine()}
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1)
    part = folder / f"{name}.json.partial"  # so that a stopped run leaves the old record whole
    part.write_text(text + "\n")
    part.replace(folder / f"{name}.json")
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
