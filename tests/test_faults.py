"""A small share of ``make faults``: damaged models and killed runs."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.skipif(
    importlib.util.find_spec("resource") is None or not Path("/proc/self/statm").exists(),
    reason="bounds of memory are those of Linux",
)
@pytest.mark.parametrize(
    "share",
    [("--damages", "60", "--kills", "0"), ("--damages", "0", "--kills", "4")],
    ids=["damages", "kills"],
)
def test_faults(share, tmp_path):
    command = [sys.executable, "-m", "benchmarks.faults", *share]
    command += ["--commands", "fit flow,denoise", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["faults.json"]
