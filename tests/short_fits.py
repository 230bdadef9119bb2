"""Fits of ``Deconvolver`` for tests: short ones, and ones in which flows have all the weight."""

import numpy as np

from deconflow.auto import fit, flows
from deconflow.xd import gibbs


def shorten(monkeypatch, steps=6, n_flows=2, rows=256):
    """Let flows train for a few steps: enough for everything but a good density."""
    for name, value in {"SHORTEST": steps, "LONGEST": steps, "FLOWS_OF_FEW": n_flows}.items():
        monkeypatch.setattr(flows, name, value)
    monkeypatch.setattr(flows, "ROWS_TO_START", rows)
    monkeypatch.setattr(flows, "EPOCHS_TO_START", 1)


def shorten_chains(monkeypatch, sweeps=30):
    """Let chains of mixtures, most of a quick fit in three columns or more, make a few sweeps."""
    monkeypatch.setattr(gibbs, "MOST_SWEEPS", sweeps)


def let_flows_win(monkeypatch):
    """Have flows beside the mixtures alone, in any number of columns, with all the weight."""
    monkeypatch.setattr(fit, "FEWEST_COLUMNS", 1)
    monkeypatch.setattr(fit, "KINDS", {"flows": fit.KINDS["flows"]})
    for module in (fit, flows):
        monkeypatch.setattr(module, "weigh", lambda candidates, *_: np.eye(len(candidates))[-1])
