"""A fit that is stopped leaves nothing half written, and goes on to the same result."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from program.running import ONE_FIT, run, succeed

from deconflow import XDGMM, DeconvolvingKDE, FlowDeconvolver
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


@pytest.fixture
def interruptible():
    """Let children take interrupts, also where a script has put the tests into the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_process_that_is_killed(folder, how, interruptible):
    long = [*FIT[:-1], "epochs=60"]
    command = [sys.executable, "-m", "deconflow", *long, "-o", "new"]
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


def test_an_interrupt_while_python_imports(tmp_path, interruptible):
    """Of the first import, and of what a command brings in: one line, whenever it comes."""
    (tmp_path / "typer.py").write_text("import time; print('ready', flush=True); time.sleep(60)")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    code, output, errors = interrupted_when_ready("--version", env={"PYTHONPATH": path})
    assert (code, output) == (130, "ready\n")
    assert errors == "deconflow: interrupted; nothing had begun.\n"


def test_an_interrupt_while_a_command_imports(tmp_path, folder, interruptible):
    (tmp_path / "safetensors.py").write_text(
        "import time; print('ready', flush=True); time.sleep(60)"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    words = ("sample", "model", "-o", "draws.csv")
    code, output, errors = interrupted_when_ready(*words, env={"PYTHONPATH": path})
    assert (code, output) == (130, "ready\n")
    assert errors == "deconflow: interrupted; no file was left half written.\n"
    assert not (folder / "draws.csv").exists()


def interrupted_when_ready(*words, env):
    """Run the program until it says that it is ready, and interrupt it."""
    command = [sys.executable, "-m", "deconflow", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": os.environ | env}
    with subprocess.Popen(command, text=True, **pipes) as process:
        ready = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    return process.returncode, ready + output, errors


def test_a_program_without_its_extra(tmp_path):
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError(name='typer')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-m", "deconflow", "--version"]
    env = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("deconflow: typer is not installed; pip install")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("method", ["xd", "kde"])
def test_short_fits_start_again(folder, monkeypatch, method):
    fit = ("fit", "stars.csv", "-c", "x", "-o", "new", "-m", method)
    fit += ("--set", "n_components=1", *ONE_FIT) if method == "xd" else ()
    cls = {"xd": XDGMM, "kde": DeconvolvingKDE}[method]
    plain = cls.fit

    def interrupted(self, *arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(cls, "fit", interrupted)
    result = run(*fit)
    assert result.exit_code == 130
    assert "Start it again" in result.output
    assert "--resume" not in result.output
    assert sorted(p.name for p in folder.iterdir()) == ["model", "stars.csv"]
    monkeypatch.setattr(cls, "fit", plain)
    assert f"Fits of --method {method} are short" in succeed(*fit, "--resume")
    assert "Fits of" not in succeed(*fit)


def test_children_do_not_outlive_a_parent_that_is_killed():
    """The pipe that both hold closes when the last of them is gone."""
    child = "import os; from deconflow.auto.parallel import _end_with; parent = os.getppid(); "
    child += "print('ready', flush=True); _end_with(parent)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    command = [sys.executable, "-c", parent]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.kill()
        assert process.communicate(timeout=30)[0] == ""
