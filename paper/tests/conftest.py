from functools import partial

import matplotlib
import numpy as np
import pytest

from deconflow import Deconvolver
from deconflow.auto import flows
from paper import fits, page, protocols, runs
from paper.protocols import Protocol, Rung
from paper.reproduction import Reproduction

matplotlib.use("Agg")

TINY = Protocol(
    "budget", train_rows=160, validation_rows=40, test_rows=60, hidden=8, layers=1, blocks=1,
    dropout=0.0, batch_size=100, learning_rate=1e-3, schedule="cosine", clip_norm=5.0,
    evaluations=2400, wine_rows=90, patience=1, scored_draws=32, folds=2,
    rungs=(Rung(2, 1, 1), Rung(1, 2, 1)), kept_draws=50,
)  # fmt: skip
PARTS = (
    "mixture", "pretraining", "uci", "ablation", "grid", "paper", "seeds", "orderings",
    "differences", "cost", "orders",
)  # fmt: skip


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Experiments of a second, on made-up wines, in a folder of their own."""
    monkeypatch.setitem(protocols.PROTOCOLS, "budget", TINY)
    small = {"learning_rate": (0.01,), "n_components": (2, 3)}
    monkeypatch.setitem(protocols.GRID, "xd", small)
    for wine in ("white", "red"):
        point = {"learning_rate": 0.01, "n_components": 2}
        monkeypatch.setitem(protocols.CHOSEN, (wine, "xd"), point)
    monkeypatch.setitem(fits.TOY_XD, "max_iter", 20)
    monkeypatch.setitem(fits.TOY_XD, "n_init", 1)
    monkeypatch.setattr(fits, "Deconvolver", partial(Deconvolver, quick=True))
    for name, value in {"SHORTEST": 4, "LONGEST": 4, "FLOWS": 2, "FLOWS_OF_FEW": 2}.items():
        monkeypatch.setattr(flows, name, value)
    rng = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    for wine in ("white", "red"):
        np.save(tmp_path / "data" / f"wine_{wine}.npy", rng.normal(size=(140, 3)))
    return tmp_path


@pytest.fixture
def here(monkeypatch):
    """Runs happen in this process, which is quicker; returns the names of those that were made."""
    made = []

    def make_all(jobs, at_once):
        for job in jobs:
            made.append(job.task.stem)
            yield job, runs.make(job)

    monkeypatch.setattr(runs, "make_all", make_all)
    return made


@pytest.fixture
def paper_again(tiny):
    """The experiments, with a document whose parts are empty."""
    paper = Reproduction(
        tiny / "results", tiny / "data", protocols.PROTOCOLS["budget"], say=lambda line: None
    )
    paper.document.parent.mkdir()
    paper.document.write_text("\n\n".join("\n".join(page.markers(name)) for name in PARTS))
    assert tuple(page.parts(paper.results, paper.document)) == PARTS
    return paper
