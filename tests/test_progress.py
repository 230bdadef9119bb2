"""Progress of fits: stages, and steps done."""

import io

import numpy as np
import pytest

from deconflow import XDGMM, BayesianXDGMM, FlowDeconvolver, noise
from deconflow.progress import Progress


@pytest.mark.parametrize(
    ("stage", "done", "said"),
    [
        (("checks",), 0, "checks"),
        (("checks", "", 1), 0, "checks"),
        (("fitting mixtures",), 3, "fitting mixtures, 3"),
        (("fitting mixtures", "", 9), 0, "fitting mixtures, 0 of 9"),
        (("passing over all rows", "rows", 300_000), 65_536,
         "passing over all rows, 65,536 of 300,000 rows"),
    ],
)  # fmt: skip
def test_the_stage_and_its_steps_are_shown(stage, done, said):
    with Progress(tell=lambda line: None) as progress:
        progress.begin("another", "epochs", 7)
        progress.advance(2, "train -1.5")
        assert progress.status() == "another, 2 of 7 epochs; train -1.5"
        progress.begin(*stage)
        progress.advance(done)
        assert progress.status() == said


def test_a_terminal_has_a_bar(monkeypatch):
    stream = io.StringIO()
    stream.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", stream)
    with Progress() as progress:
        progress.begin("fitting mixtures", steps=3)
        progress.begin("checks")
    shown = stream.getvalue()
    assert "\rfitting mixtures, 0 of 3 |" in shown
    assert "\rchecks |" in shown


FITS = {
    "XDGMM, one": (XDGMM(2, random_state=0), "fitting mixtures"),
    "XDGMM, auto": (XDGMM("auto", random_state=0), "fitting mixtures"),
    "XDGMM, minibatch": (
        XDGMM(2, method={"minibatch": {"epochs": 2}}, random_state=0, tol=0), "fitting mixtures",
    ),
    "BayesianXDGMM": (BayesianXDGMM(2, n_sweeps=9, random_state=0), "sampling Bayesian mixtures"),
    "FlowDeconvolver": (
        FlowDeconvolver(epochs=2, hidden=8, random_state=0), "training the flow",
    ),
}  # fmt: skip


@pytest.mark.parametrize("law", [0.3, noise.student_t([0.3], df=4.0)], ids=["normal", "t"])
@pytest.mark.parametrize("name", FITS)
def test_who_watches_sees_the_same_answer(name, law, monkeypatch, capsys):
    model, stage = FITS[name]
    w = np.random.default_rng(0).normal(size=(60, 1))
    begun = []
    monkeypatch.setattr(Progress, "begin", lambda self, stage, *_, **__: begun.append(stage))
    alone = model.fit(w, noise=law).score_samples(w)
    assert capsys.readouterr().err == ""
    model.set_params(verbose=True)
    np.testing.assert_array_equal(model.fit(w, noise=law).score_samples(w), alone)
    model.set_params(verbose=False)
    assert stage in begun
    assert "_progress" not in vars(model)
