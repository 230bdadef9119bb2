import json
from functools import partial

import matplotlib
import numpy as np
import pytest

from deconflow import Deconvolver
from deconflow.auto import plan
from deconflow.reproduction import fits, paper, protocols, running, toy_fits, wine_fits, work
from deconflow.reproduction.front import Reproduction
from deconflow.reproduction.protocols import Protocol, Rung

matplotlib.use("Agg")

TINY = Protocol(
    "budget", train_rows=160, validation_rows=40, test_rows=60, hidden=8, layers=1, blocks=1,
    dropout=0.0, batch_size=100, learning_rate=1e-3, schedule="cosine", clip_norm=5.0, epochs=None,
    evaluations=2400, wine_rows=90, patience=1, scored_draws=32, folds=2,
    rungs=(Rung(2, 1, 1), Rung(1, 2, 1)), kept_draws=50,
)  # fmt: skip


class Ended:
    """What is left of a process that has ended."""

    returncode = 0

    def poll(self):
        return 0

    def terminate(self):
        pass

    def wait(self):
        return 0


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Experiments of a second, on made-up wines, in a folder of their own."""
    monkeypatch.setitem(protocols.PROTOCOLS, "budget", TINY)
    small = {"learning_rate": (0.01,), "n_components": (2, 3)}
    monkeypatch.setitem(paper.GRID, "xd", small)
    for wine in ("white", "red"):
        monkeypatch.setitem(paper.CHOSEN, (wine, "xd"), {"learning_rate": 0.01, "n_components": 2})
    monkeypatch.setitem(toy_fits.XD, "max_iter", 20)
    monkeypatch.setitem(toy_fits.XD, "n_init", 1)
    monkeypatch.setattr(wine_fits, "XD_CHOICE", {"n_components": (1, 2), "floor": 0.1})
    monkeypatch.setitem(wine_fits.XD_AVERAGE, "max_iter", 20)
    monkeypatch.setattr(fits, "Deconvolver", partial(Deconvolver, quick=True))
    for name, value in {"SHORTEST": 4, "LONGEST": 4, "MEMBERS": 2, "COMPARED_FLOWS": 1}.items():
        monkeypatch.setattr(plan, name, value)
    rng = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    for wine in ("white", "red"):
        np.save(tmp_path / "data" / f"wine_{wine}.npy", rng.normal(size=(140, 3)))
    return tmp_path


@pytest.fixture
def here(monkeypatch):
    """Runs happen in this process, which is quicker; returns the names of those that were made."""
    made = []

    def started(self, job):
        path = self.records.work / f"{job.task.stem}.job"
        results = str(self.records.folder.parent)
        path.write_text(json.dumps({"job": job.as_dict(), "results": results}))
        made.append(job.task.stem)
        work.main(path)
        log = path.with_suffix(".log")
        log.write_text("")
        return running._Process(job, Ended(), log)

    monkeypatch.setattr(running.Runner, "_started", started)
    monkeypatch.setattr(running, "PAUSE", 0.0)
    return made


@pytest.fixture
def paper_again(tiny):
    """The front, with a document whose parts are empty."""
    from deconflow.reproduction.document import _markers, parts

    front = Reproduction(
        tiny / "results", tiny / "data", protocols.PROTOCOLS["budget"], say=lambda line: None
    )
    front.document.parent.mkdir()
    names = parts(front.results, front.document.parent / "images")
    front.document.write_text("\n\n".join("\n".join(_markers(name)) for name in names))
    return front
