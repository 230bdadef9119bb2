"""What is shown while flows are trained."""

import numpy as np
import pytest
from short_fits import let_flows_win, shorten

from deconflow import Deconvolver
from deconflow.auto.parallel import BEFORE, DONE, Ticks
from deconflow.progress import Progress


def test_epochs_are_counted_also_those_before_an_interruption(tmp_path):
    path = tmp_path / "epochs"
    for ticks, epochs in ((Ticks(path), range(3)), (Ticks(path), range(5, 8))):
        for epoch in epochs:
            ticks(epoch, None)
    assert path.read_bytes() == 3 * DONE + 5 * BEFORE + 3 * DONE


def follow(monkeypatch):
    """Keep of every stage how many of its steps were done, of how many."""
    seen = []
    begin, advance = Progress.begin, Progress.advance

    def begun(self, words, unit=""):
        begin(self, words, unit)
        if self.shown:
            seen.append((words, [0, len(self._left)]))

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
    shown = capsys.readouterr().err
    assert "Fitting 60 rows of 1 column takes about" in shown
    stages = ["fitting mixtures", "training flows", "checking the fit"]
    assert [words for words, _ in seen] == stages
    flows = dict(seen)["training flows"]
    assert flows[0] == flows[1] > 0  # every epoch was told of
