"""A guest in others' programs: random state, defaults and threads of the process are theirs."""

import random
import threading
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch.distributions import Gumbel

from deconflow import XDGMM, Deconvolver, DeconvolvingKDE, FlowDeconvolver, WaveletDeconvolver
from deconflow.auto import plan, training
from deconflow.auto.fit import Comparison
from deconflow.guests import as_guest
from deconflow.noise import from_law, gaussian, laplace, student_t, uniform

RNG = np.random.default_rng(0)
W = RNG.normal(size=(60, 2)) * [1.0, 0.5] + [2.0, -1.0]
SD = RNG.uniform(0.1, 0.4, size=W.shape)
TINY = {"epochs": 2, "batch_size": 40, "hidden": 8, "n_layers": 2, "posterior_layers": 2}


def flow(**settings):
    return FlowDeconvolver(**{**TINY, "n_draws": 4, "random_state": 0, **settings})


def gumbel(scale):
    return Gumbel(0.0 * scale, scale)


FITS = {
    "XDGMM": (XDGMM(2, random_state=0), lambda: SD),
    "XDGMM, chosen": (XDGMM([1, 2], n_folds=2, floor=0.1, random_state=0), lambda: laplace([0.2, 0.1])),
    "XDGMM, minibatch": (XDGMM(2, method="minibatch", random_state=0), lambda: gaussian(sd=SD)),
    "KDE": (DeconvolvingKDE(), lambda: SD),
    "KDE, a law": (DeconvolvingKDE(), lambda: from_law(gumbel, shared=True, scale=SD[:1])),
    "wavelet": (WaveletDeconvolver(), lambda: laplace([0.2])),
    "maf": (flow(dropout=0.1), lambda: SD),
    "maf, double": (flow(dtype="float64", averaging=0.9), lambda: student_t(SD, 5.0)),
    "made": (flow(flow="made", objective="roulette", base_components=3), lambda: SD),
    "spline": (flow(flow="spline", objective="wake_sleep"), lambda: from_law(gumbel, scale=SD)),
    "coupling": (
        flow(flow="coupling", objective="wake_wake", posterior_family="mixture"), lambda: SD
    ),
    "mixture": (flow(flow="mixture", objective="coupled"), lambda: uniform(0.5 * SD)),
    "exact": (
        flow(flow="gaussian_mixture", posterior_family="exact", base_components=2),
        lambda: gaussian(covariance=SD[:, :, None] * np.eye(2)),
    ),
    "Deconvolver": (Deconvolver(quick=True, n_jobs=1, random_state=0), lambda: SD),
}  # fmt: skip


@pytest.fixture
def short(monkeypatch):
    """A Deconvolver of short flows, which win."""
    monkeypatch.setattr(plan, "QUICK", 20)
    monkeypatch.setattr(training, "EPOCHS_TO_START", 1)
    monkeypatch.setattr(Comparison, "flows_win", lambda self: True)


def answers(model, w, noise):
    """Something of everything that a model is asked."""
    posterior = model.posterior(w, noise=noise, n_samples=3, n_proposals=20)
    asked = [
        model.score_samples(w),
        model.score_observations(w, noise=noise),
        model.sample(5, random_state=1),
        posterior.mean,
        posterior.sample(2, random_state=0),
    ]
    if isinstance(model, XDGMM | DeconvolvingKDE | Deconvolver):  # for flows these are slow
        asked.append(model.condition(w[:7, :1], [0], n_samples=5).mean)
        asked.append(model.marginal([1]).log_prob(w[:7, 1:]))
    return asked


def enter_odd_world(stack):
    """All that a program may set for torch, at once."""
    stack.callback(torch.set_default_dtype, torch.get_default_dtype())
    stack.callback(torch.set_default_device, None)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    stack.enter_context(torch.inference_mode())
    stack.enter_context(torch.autocast("cpu", torch.bfloat16))


def same(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FITS)
def test_what_the_caller_has_set_for_torch_changes_no_bit(name, one_thread, short, tmp_path):
    model, noise = FITS[name]
    w = W[:, :1] if name == "wavelet" else W
    expected = answers(clone(model).fit(w, noise=noise()), w, noise())
    with ExitStack() as stack:
        enter_odd_world(stack)
        law = noise()
        fitted = clone(model).fit(w, noise=law)
        same(answers(fitted, w, law), expected)
        fitted.save(tmp_path / "model")
        loaded = type(fitted).load(tmp_path / "model")
        assert torch.get_default_dtype() == torch.float64
        assert torch.is_inference_mode_enabled()
        assert torch.is_autocast_enabled("cpu")
        assert torch.zeros(1).is_meta
    same(answers(loaded, w, law), expected)
