"""What is shown while flows are trained."""

import numpy as np
import pytest
from short_fits import let_flows_win, shorten

from deconflow import Deconvolver
from deconflow.auto.parallel import Ticks
from deconflow.progress import Progress


def test_epochs_are_counted_also_those_before_an_interruption(tmp_path):
    path = tmp_path / "epochs"
    for ticks, epochs in ((Ticks(path), range(3)), (Ticks(path), range(5, 8))):
        for epoch in epochs:
            ticks(epoch, None)
    assert len(path.read_bytes()) == 3 + 8


def follow(monkeypatch):
    """Keep of every stage how many of its steps were done, of how many."""
    seen = []
    begin, advance = Progress.begin, Progress.advance

    def begun(self, stage, unit="", steps=None):
        begin(self, stage, unit, steps)
        if self.shown:
            seen.append((stage, [0, steps]))

    def advanced(self, steps=1, remark=""):
        advance(self, steps, remark)
        if self.shown:
            seen[-1][1][0] += steps

    monkeypatch.setattr(Progress, "begin", begun)
    monkeypatch.setattr(Progress, "advance", advanced)
    return seen


@pytest.mark.filterwarnings("ignore::deconflow.UntrustedFitWarning")
def test_progress_says_what_is_fitted_and_how_far(monkeypatch, capsys):
    shorten(monkeypatch, steps=4)
    let_flows_win(monkeypatch)
    seen = follow(monkeypatch)
    w = np.random.default_rng(0).normal(size=(60, 1))
    Deconvolver(verbose=True, random_state=0, n_jobs=1).fit(w, noise=0.5)
    stages = ["fitting mixtures", "training flows", "checking the fit"]
    assert [words for words, _ in seen] == stages
    flows = dict(seen)["training flows"]
    assert flows[0] == flows[1] > 0  # every epoch was told of
