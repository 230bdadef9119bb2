"""What is shown while flows are trained."""

import re

import numpy as np
import pytest
from short_fits import let_flows_win, shorten

from deconflow import Deconvolver, progress


@pytest.mark.filterwarnings("ignore::deconflow.UntrustedFitWarning")
def test_progress_says_what_is_fitted_and_how_far(monkeypatch, capsys):
    shorten(monkeypatch, steps=4)
    let_flows_win(monkeypatch)
    monkeypatch.setattr(progress, "WRITTEN_EVERY", 0.0)
    w = np.random.default_rng(0).normal(size=(60, 1))
    Deconvolver(verbose=True, random_state=0, n_jobs=1).fit(w, noise=0.5)
    last = {line.split(",")[0]: line for line in capsys.readouterr().err.splitlines()}
    assert list(last) == ["fitting mixtures", "training flows", "checking the fit"]
    done = re.fullmatch(r"training flows, (\d+) of (\d+) epochs; train .*", last["training flows"])
    assert done[1] == done[2]  # every epoch was told of
