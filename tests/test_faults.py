"""A small share of ``make faults``: damaged models and killed runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="it starts the program by fork")
def test_faults(tmp_path):
    command = [sys.executable, "-m", "benchmarks.faults", "--damages", "20", "--kills", "1"]
    command += ["--commands", "fit flow,denoise", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["faults.json"]
