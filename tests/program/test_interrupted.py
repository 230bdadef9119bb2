"""A fit that is stopped leaves nothing half written, and goes on to the same result."""

import importlib
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from program.running import run, succeed

from deconflow import XDGMM, DeconvolvingKDE, FlowDeconvolver
from deconflow.files import locked_folder

pytest.importorskip("torch")
Checkpoint = importlib.import_module("deconflow.fitting.checkpoint").Checkpoint

FIT = (
    "fit", "stars.csv", "-c", "x,y", "--method", "flow", "--set", "hidden=16", "-q",
    "--set", "epochs=6",
)  # fmt: skip
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
    assert "Continue with --resume" in result.output
    assert not (folder / "new").exists()
    monkeypatch.setattr(Checkpoint, "save", plain)
    loaded = []
    read = Checkpoint.load
    monkeypatch.setattr(Checkpoint, "load", lambda self: loaded.append(read(self)) or loaded[-1])
    succeed(*FIT, "-o", "new", "--resume")
    assert loaded[0] is not None
    assert same("whole", "new")
    assert sorted(p.name for p in folder.iterdir()) == ["model", "new", "stars.csv", "whole"]


def test_without_resume_it_starts_anew(folder):
    (folder / ".new.checkpoint").mkdir()
    (folder / ".new.checkpoint" / "fit").write_bytes(b"of another fit")
    succeed(*FIT, "-o", "new")
    assert "Nothing to resume" in run(*FIT, "-o", "new", "--resume").output


@pytest.fixture
def interruptible():
    """Let children take interrupts, also where a script has put the tests into the background."""
    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_process_that_is_killed(folder, how, interruptible):
    long = [*FIT[:-1], "epochs=12"]
    command = [sys.executable, "-m", "deconflow", *long, "-o", "new"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=os.environ, text=True) as process:
        end = time.monotonic() + 60
        while not (folder / ".new.checkpoint" / "fit").exists() and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(how)
        _, errors = process.communicate()
    assert process.returncode == (-9 if how == signal.SIGKILL else 128 + how)
    assert "Traceback" not in errors
    assert not (folder / "new").exists()
    assert (folder / ".new.checkpoint" / "fit").exists()
    if how != signal.SIGKILL:
        assert "Continue with --resume" in errors
    succeed(*long, "-o", "new", "--resume")
    assert len(FlowDeconvolver.load("new").history_) == 12
    assert not (folder / ".new.checkpoint").exists()


#: What the program and one of its commands import, and what is said of an interrupt there.
IMPORTS = {
    "typer": (("--version",), "nothing had begun."),
    "safetensors": (("sample", "model", "-o", "draws.csv"), "no file was left half written."),
}


@pytest.mark.parametrize("how", SIGNALS)
@pytest.mark.parametrize("module", IMPORTS)
def test_an_interrupt_while_python_imports(tmp_path, folder, how, interruptible, module):
    """Of the first import, and of what a command brings in: one line, whenever it comes."""
    words, said = IMPORTS[module]
    waits = "import time; print('ready', flush=True); time.sleep(60)"
    (tmp_path / f"{module}.py").write_text(waits)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    code, output, errors = interrupted_when_ready(*words, how=how, env={"PYTHONPATH": path})
    assert (code, output) == (128 + how, "ready\n")
    assert errors == f"deconflow: interrupted; {said}\n"
    assert not (folder / "draws.csv").exists()


def interrupted_when_ready(*words, how, env):
    """Run the program until it says that it is ready, and interrupt it."""
    command = [sys.executable, "-m", "deconflow", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": os.environ | env}
    with subprocess.Popen(command, text=True, **pipes) as process:
        ready = process.stdout.readline()
        process.send_signal(how)
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
    fit += ("--set", "n_components=1") if method == "xd" else ()
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
    assert f"Fits of --method {method} are not kept half done" in succeed(*fit, "--resume")
    assert "Fits of" not in succeed(*fit)


def test_what_is_to_be_ignored_is_ignored(tmp_path):
    """As ``nohup`` asks for: then a terminal that closes ends nothing."""
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    code += "from deconflow.__main__ import _signals; print(signal.SIGHUP in _signals())"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_two_fits_into_one_folder(folder):
    """The second keeps no checkpoint, and leaves that of the first; both finish."""
    kept = folder / ".new.checkpoint"
    with locked_folder(kept):
        (kept / "fit").write_text("of the first")
        assert "Another fit to new is running" in succeed(*FIT, "-o", "new")
        assert (kept / "fit").read_text() == "of the first"
    assert (folder / "new" / "model.json").exists()
    assert "Another fit" not in succeed(*FIT, "-o", "new")  # and without --resume, it goes
    assert sorted(p.name for p in folder.iterdir()) == ["model", "new", "stars.csv"]
