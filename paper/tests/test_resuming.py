"""A table that is stopped goes on where it was, to the same numbers."""

import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from deconflow.fitting.checkpoint import Checkpoint
from paper import fits, runs
from paper.protocols import TABLES
from paper.runs import Records

ROW = ["elbo-1"]


def score(paper, table="mixture", row="elbo-1"):
    return Records(paper.results, table, "budget").runs()["toy", row, 0]["minus_log_p_v"]


def elsewhere(paper, name):
    return replace(paper, results=paper.results.parent / name / "results")


@pytest.mark.parametrize(
    ("table", "row", "saves", "resumed"),
    [
        pytest.param("mixture", "elbo-1", 3, [3], id="one fit"),
        pytest.param("pretraining", "pretrained", 8, [6, 2], id="in the second of two fits"),
    ],
)
def test_an_interrupted_run_resumes_from_its_checkpoint(
    paper_again, here, monkeypatch, table, row, saves, resumed
):
    uninterrupted = elsewhere(paper_again, "uninterrupted")
    uninterrupted.run(table, rows=[row], seeds=[0])
    plain, saved, loaded = Checkpoint.save, [], []

    def interrupted(self, state):
        plain(self, state)
        saved.append(state)
        if len(saved) == saves:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        paper_again.run(table, rows=[row], seeds=[0])
    monkeypatch.setattr(Checkpoint, "save", plain)
    load = Checkpoint.load

    def spied(self):
        state = load(self)
        loaded.append(len(state["states"][0]["history"]["train"]))
        return state

    monkeypatch.setattr(Checkpoint, "load", spied)
    paper_again.run(table, rows=[row], seeds=[0])
    assert loaded == resumed
    assert score(paper_again, table, row) == score(uninterrupted, table, row)
    paper_again.run(table, rows=[row], seeds=[0])
    assert len(here) == 3, "a finished run was repeated"


def test_what_another_fit_left_behind_does_not_stop_a_run(paper_again, here):
    fresh = elsewhere(paper_again, "fresh")
    fresh.run("mixture", rows=ROW, seeds=[0])
    left = Records(paper_again.results, "mixture", "budget").work
    Checkpoint(left / "mixture.toy.elbo-1.0.fit.checkpoint", "of another fit").save({})
    paper_again.run("mixture", rows=ROW, seeds=[0])
    assert score(paper_again) == score(fresh)
    assert not list(left.glob("*.checkpoint"))


def test_two_at_the_same_table_are_refused(paper_again, here):
    records = Records(paper_again.results, "mixture", "budget")
    with records.alone(), pytest.raises(ValueError, match="Expected no other process at work"):
        paper_again.run("mixture", rows=["xd"], seeds=[0])


def test_a_run_that_fails_is_named_and_the_others_are_kept(paper_again, monkeypatch):
    def make_all(jobs, at_once):
        first, second = jobs
        yield first, "ValueError: no such thing."
        yield second, runs.make(second)

    monkeypatch.setattr(runs, "make_all", make_all)
    with pytest.raises(ChildProcessError, match=r"1 that did not, .*toy xd 0: ValueError: no such"):
        paper_again.run("mixture", rows=["xd"], seeds=[0, 1])
    assert list(Records(paper_again.results, "mixture", "budget").runs()) == [("toy", "xd", 1)]


def _fails(job, pipe):
    runs.make = lambda _: {}["nothing"]
    runs._work(job, pipe)


def _is_killed(job, pipe):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "words"), [(_fails, "KeyError: 'nothing'"), (_is_killed, "ended with code -9")]
)
def test_a_process_that_fails_says_why(paper_again, monkeypatch, work, words):
    monkeypatch.setattr(runs, "_work", work)
    job = paper_again.job(TABLES["mixture"].tasks(["xd"], [0])[0], {})
    assert [(job, True)] == [(done, words in why) for done, why in runs.make_all([job], 1)]


def _sleeps(job, pipe):
    time.sleep(600)


def test_an_error_here_ends_what_still_runs(paper_again, monkeypatch):
    started, plain = [], runs._started

    def spied(job):
        started.append(plain(job))
        if len(started) == 2:
            raise KeyboardInterrupt
        return started[-1]

    monkeypatch.setattr(runs, "_work", _sleeps)
    monkeypatch.setattr(runs, "_started", spied)
    with pytest.raises(KeyboardInterrupt):
        paper_again.run("mixture", rows=["xd"], seeds=[0, 1])
    (_, first), (_, second) = started
    second.terminate()
    assert first.exitcode == -signal.SIGTERM


START = """
import pickle, sys, time
from pathlib import Path
from paper import runs
pipe, process = runs._started(pickle.loads(Path(sys.argv[1]).read_bytes()))
print(process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_run_ends_with_its_parent_and_goes_on(paper_again, here):
    paper = replace(paper_again, protocol=replace(paper_again.protocol, evaluations=40_000))
    job = paper.job(TABLES["mixture"].tasks(ROW, [0])[0], {})
    path = paper.data / "job"
    path.write_bytes(pickle.dumps(job))
    job.records.work.mkdir(parents=True)
    command = [sys.executable, "-c", START, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path.cwd()) as process:
        child = int(process.stdout.readline())
        _wait_until(job.checkpoint().exists)
        process.send_signal(signal.SIGKILL)
    _wait_until(lambda: not Path(f"/proc/{child}/stat").exists() or _is_zombie(child))
    assert job.checkpoint().exists()
    paper.run("mixture", rows=ROW, seeds=[0])
    run = job.records.runs()["toy", "elbo-1", 0]
    assert run["details"]["epochs"] == 100
    assert not job.checkpoint().exists()


def _wait_until(condition):
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def _is_zombie(pid):
    return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z"


def test_flows_of_other_settings_are_pretrained_anew(paper_again, here):
    paper_again.run("pretraining", rows=["after"], seeds=[0])
    wider = replace(paper_again, protocol=replace(paper_again.protocol, hidden=12))
    job = wider.job(TABLES["pretraining"].tasks(["after"], [0])[1], {})
    assert fits.after_pretraining(job).settings["hidden"] == 12
    weights = torch.load(fits._pretrained_path(job), weights_only=True)
    assert any(len(weight) == 12 for weight in weights["prior"].values() if weight.dim() == 2)
