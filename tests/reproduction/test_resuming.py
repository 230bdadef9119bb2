"""A table that is stopped goes on where it was, to the same numbers."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from deconflow.fitting.checkpoint import Checkpoint
from deconflow.reproduction.experiments import TABLES
from deconflow.reproduction.jobs import Job
from deconflow.reproduction.records import Records, write_json
from deconflow.reproduction.running import Runner

ROW = ["elbo-1"]


def score(front):
    return Records(front.results, "mixture", "budget").runs()["toy", "elbo-1", 0]["minus_log_p_v"]


def test_an_interrupted_run_resumes_from_its_checkpoint(paper_again, here, monkeypatch):
    whole = replace(paper_again, results=paper_again.results.parent / "whole" / "results")
    whole.run("mixture", rows=ROW, seeds=[0])
    plain, saved, loaded = Checkpoint.save, [], []

    def interrupted(self, state):
        plain(self, state)
        saved.append(state)
        if len(saved) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        paper_again.run("mixture", rows=["xd", *ROW], seeds=[0])
    monkeypatch.setattr(Checkpoint, "save", plain)
    load = Checkpoint.load

    def spied(self):
        state = load(self)
        loaded.append(len(state["history"]["train"]))
        return state

    monkeypatch.setattr(Checkpoint, "load", spied)
    paper_again.run("mixture", rows=["xd", *ROW], seeds=[0])
    assert loaded == [3]
    assert score(paper_again) == score(whole)
    assert here.count("mixture.toy.xd.0") == 1, "a finished run was repeated"


def test_what_another_fit_left_behind_does_not_stop_a_run(paper_again, here):
    fresh = replace(paper_again, results=paper_again.results.parent / "fresh" / "results")
    fresh.run("mixture", rows=ROW, seeds=[0])
    left = Records(paper_again.results, "mixture", "budget").work
    Checkpoint(left / "mixture.toy.elbo-1.0.fit.checkpoint", "of another fit").save({})
    paper_again.run("mixture", rows=ROW, seeds=[0])
    assert score(paper_again) == score(fresh)
    assert not list(left.glob("*.checkpoint"))


def test_what_a_process_finished_after_its_parent_died_is_collected(paper_again, here):
    records = Records(paper_again.results, "mixture", "budget")
    run = {
        "table": "mixture", "dataset": "toy", "row": "xd", "seed": 0, "minus_log_p_v": 2.0,
        "minus_log_p_w": 3.0, "truth_v": 2.0, "truth_w": 3.0, "seconds": 1.0, "core_seconds": 1.0,
        "details": {}, "settings": {},
    }  # fmt: skip
    write_json(records.finished_path("mixture.toy.xd.0"), run)
    paper_again.run("mixture", rows=["xd"], seeds=[0])
    assert here == []
    assert records.runs()["toy", "xd", 0] == run


def test_two_at_the_same_table_are_refused(paper_again, here):
    records = Records(paper_again.results, "mixture", "budget")
    with records.alone(), pytest.raises(ValueError, match="Expected no other process at work"):
        paper_again.run("mixture", rows=["xd"], seeds=[0])


def test_a_run_that_fails_is_named_and_tried_again(paper_again, monkeypatch):
    def broken(self, job):
        log = self.records.work / "log"
        log.write_text("Traceback\nValueError: no such thing.")
        from deconflow.reproduction.running import _Process

        return _Process(job, subprocess.Popen([sys.executable, "-c", ""]), log)

    monkeypatch.setattr(Runner, "_started", broken)
    with pytest.raises(ChildProcessError, match=r"toy xd 0: ValueError: no such thing"):
        paper_again.run("mixture", rows=["xd"], seeds=[0])
    assert Records(paper_again.results, "mixture", "budget").runs() == {}


@pytest.mark.slow
def test_a_process_that_is_killed_goes_on(paper_again):
    protocol = replace(paper_again.protocol, evaluations=80_000)
    front = replace(paper_again, protocol=protocol)
    records = Records(front.results, "mixture", "budget")
    task = TABLES["mixture"].tasks(ROW, [0])[0]
    job = Job(task, protocol, front.data, records.work)
    path = records.work / "killed.job"
    write_json(path, {"job": job.as_dict(), "results": str(front.results)})
    command = [sys.executable, "-m", "deconflow.reproduction.work", str(path)]
    with subprocess.Popen(command, env=os.environ) as process:
        end = time.monotonic() + 120
        while not job.checkpoint().exists() and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert job.checkpoint().exists()
    front.run("mixture", rows=ROW, seeds=[0])
    assert records.runs()["toy", "elbo-1", 0]["details"]["epochs"] == 200
    assert not job.checkpoint().exists()


def test_a_run_that_another_process_has_finished_is_left_alone(paper_again, here, monkeypatch):
    """A process that was left over from an earlier command finishes while this one waits."""
    from deconflow.reproduction import work

    records = Records(paper_again.results, "mixture", "budget")
    task = TABLES["mixture"].tasks(["xd"], [0])[0]
    job = Job(task, paper_again.protocol, paper_again.data, records.work)
    path = records.work / "left_over.job"
    write_json(path, {"job": job.as_dict(), "results": str(paper_again.results)})
    work.main(path)
    before = records.finished_path(task.stem).read_text()
    monkeypatch.setattr(work, "_make", lambda *_: pytest.fail("the run was repeated"))
    work.main(path)
    assert records.finished_path(task.stem).read_text() == before
