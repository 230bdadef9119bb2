"""What is shown while flows are trained."""

import numpy as np
import pytest
from short_fits import let_flows_win, shorten

from deconflow import Deconvolver
from deconflow.auto.parallel import Ticks


def test_epochs_are_counted_also_those_before_an_interruption(tmp_path):
    path = tmp_path / "epochs"
    for ticks, epochs in ((Ticks(path), range(3)), (Ticks(path), range(5, 8))):
        for epoch in epochs:
            ticks(epoch, None)
    assert path.stat().st_size == 3 + 8


@pytest.mark.filterwarnings("ignore::deconflow.UntrustedFitWarning")
def test_progress_says_what_is_fitted_and_how_far(monkeypatch, capsys):
    shorten(monkeypatch, steps=4)
    let_flows_win(monkeypatch)
    w = np.random.default_rng(0).normal(size=(60, 1))
    Deconvolver(verbose=True, random_state=0, n_jobs=1).fit(w, noise=0.5)
    shown = capsys.readouterr().err
    assert "mixtures of 1, floor 0.1" in shown
    assert "flows: 100%" in shown
    assert "epoch" in shown
    assert "stack" not in shown
