"""A fit that is stopped leaves nothing half written, and goes on to the same result."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from program.running import run, succeed

from deconflow import FlowDeconvolver
from deconflow.fitting.checkpoint import Checkpoint

FIT = (
    "fit", "stars.csv", "-c", "x,y", "--method", "flow", "--set", "hidden=16", "-q",
    "--set", "epochs=6",
)  # fmt: skip


def same(one, other):
    v = np.random.default_rng(0).normal(size=(50, 2))
    one, other = (FlowDeconvolver.load(path).score_samples(v) for path in (one, other))
    return np.allclose(one, other)


def test_resume_after_an_interrupt(folder, monkeypatch):
    plain, saved = Checkpoint.save, []

    def interrupted(self, state):
        plain(self, state)
        saved.append(state)
        if len(saved) == 3:
            raise KeyboardInterrupt

    succeed(*FIT, "-o", "whole")
    monkeypatch.setattr(Checkpoint, "save", interrupted)
    result = run(*FIT, "-o", "new")
    assert result.exit_code == 130
    assert "Go on with --resume" in result.output
    assert not (folder / "new").exists()
    monkeypatch.setattr(Checkpoint, "save", plain)
    started = []
    monkeypatch.setattr(Checkpoint, "load", _spying(Checkpoint.load, started))
    succeed(*FIT, "-o", "new", "--resume")
    assert started[0] is not None
    assert same("whole", "new")
    assert sorted(p.name for p in folder.iterdir()) == ["model", "new", "stars.csv", "whole"]


def _spying(plain, seen):
    def load(self):
        seen.append(plain(self))
        return seen[-1]

    return load


def test_without_resume_it_starts_anew(folder):
    (folder / ".new.checkpoint").write_bytes(b"of another fit")
    succeed(*FIT, "-o", "new")
    assert "Nothing to resume" in run(*FIT, "-o", "new", "--resume").output


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_process_that_is_killed(folder, how):
    long = [*FIT[:-1], "epochs=60"]
    command = [sys.executable, "-m", "deconflow.cli", *long, "-o", "new"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=os.environ, text=True) as process:
        end = time.monotonic() + 60
        while not (folder / ".new.checkpoint").exists() and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(how)
        _, errors = process.communicate()
    assert process.returncode == (-9 if how == signal.SIGKILL else 130)
    assert "Traceback" not in errors
    assert not (folder / "new").exists()
    assert (folder / ".new.checkpoint").exists()
    if how == signal.SIGINT:
        assert "Go on with --resume" in errors
    succeed(*long, "-o", "new", "--resume")
    assert len(FlowDeconvolver.load("new").history_) == 60
    assert not (folder / ".new.checkpoint").exists()
