"""A guest in others' programs: random state, defaults and threads of the process are theirs."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from short_fits import let_flows_win, shorten
from sklearn.base import clone
from torch.distributions import (
    Beta,
    Categorical,
    Cauchy,
    Dirichlet,
    Exponential,
    Gamma,
    Gumbel,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    StudentT,
    VonMises,
)

from deconflow import XDGMM, Deconvolver, DeconvolvingKDE, FlowDeconvolver, WaveletDeconvolver
from deconflow._limits import _threads_of_products, cpus, threads_at_most
from deconflow.noise import from_law, gaussian, laplace, student_t, uniform
from deconflow.randomness import Draws
from deconflow.torch_modes import lend_generator

RNG = np.random.default_rng(0)
W = RNG.normal(size=(60, 2)) * [1.0, 0.5] + [2.0, -1.0]
SD = RNG.uniform(0.1, 0.4, size=W.shape)
TINY = {"epochs": 2, "batch_size": 40, "hidden": 8, "n_layers": 2}


def flow(**settings):
    return FlowDeconvolver(**{**TINY, "n_draws": 4, "random_state": 0, **settings})


def gumbel(scale):
    return Gumbel(0.0 * scale, scale)


FITS = {
    "XDGMM": (XDGMM(2, random_state=0), lambda: SD),
    "XDGMM, auto": (XDGMM("auto", random_state=0), lambda: laplace([0.2, 0.1])),
    "XDGMM, minibatch": (XDGMM(2, method="minibatch", random_state=0), lambda: gaussian(sd=SD)),
    "KDE": (DeconvolvingKDE(), lambda: SD),
    "KDE, a law": (DeconvolvingKDE(), lambda: student_t(SD, 5.0)),
    "wavelet": (WaveletDeconvolver(), lambda: laplace([0.2])),
    "maf": (flow(flow="maf"), lambda: SD),
    "maf, a law": (flow(flow="maf"), lambda: student_t(SD, 5.0)),
    "made": (flow(flow="made", objective="roulette", base_components=3), lambda: SD),
    "spline": (flow(flow="spline", objective="elbo"), lambda: from_law(gumbel, scale=SD)),
    "coupling": (
        flow(flow="coupling", objective="coupled", posterior_family="mixture"), lambda: SD
    ),
    "mixture": (flow(flow="mixture", objective="coupled"), lambda: uniform(0.5 * SD)),
    "exact": (
        flow(flow="gaussian_mixture", posterior_family="exact", base_components=2),
        lambda: gaussian(covariance=SD[:, :, None] * np.eye(2)),
    ),
    "Deconvolver": (Deconvolver(n_members=1, n_jobs=1, random_state=0), lambda: SD),
}  # fmt: skip

#: Fits by the loop that trains the other flows, too.
ALIKE = ("maf", "made", "spline", "coupling", "KDE", "XDGMM", "exact", "Deconvolver")
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name in ALIKE)) for name in FITS]


@pytest.fixture
def short(monkeypatch):
    """A Deconvolver of short flows, which win."""
    shorten(monkeypatch, steps=20, n_flows=1, rows=5000)
    let_flows_win(monkeypatch)


def answers(model, w, noise):
    """Something of everything that a model is asked."""
    posterior = model.posterior(w, noise=noise, n_samples=3, n_proposals=20)
    asked = [
        model.score_samples(w),
        model.score_observations(w, noise=noise),
        model.p_values(w, noise=noise),
        model.sample(5, random_state=1),
        posterior.mean,
        posterior.sample(2, random_state=0),
    ]
    if isinstance(model, XDGMM | DeconvolvingKDE | Deconvolver):  # for flows these are slow
        asked.append(model.condition(w[:7, :1], [0], n_samples=5).mean)
        asked.append(model.density_.marginal([1]).log_prob(w[:7, 1:]))
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
@pytest.mark.parametrize("name", NAMES)
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


# -- random state -------------------------------------------------------------------------------


class Elsewhere(threading.Thread):
    """Another part of the program, which draws from torch's own generator all the while."""

    def __init__(self):
        super().__init__()
        self.done, self.drawn = threading.Event(), []

    def run(self):
        while not self.done.is_set():
            self.drawn.append(torch.rand(2))
            self.done.wait(1e-4)

    def __enter__(self):
        self.start()

    def __exit__(self, *_):
        self.done.set()
        self.join()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_another_thread_draws_what_it_would_alone(name, short):
    model, noise = FITS[name]
    w = W[:, :1] if name == "wavelet" else W
    before = random.getstate(), repr(np.random.get_state())  # noqa: NPY002
    torch.manual_seed(1)
    elsewhere = Elsewhere()
    with elsewhere:
        answers(clone(model).fit(w, noise=noise()), w, noise())
    torch.manual_seed(1)
    undisturbed = [torch.rand(2) for _ in elsewhere.drawn]
    assert torch.equal(torch.stack(elsewhere.drawn), torch.stack(undisturbed))
    assert (random.getstate(), repr(np.random.get_state())) == before  # noqa: NPY002


LAWS = [
    StudentT(torch.full((3, 2), 3.0)), Gamma(torch.ones(3, 2), 1.0), Beta(torch.ones(3, 2), 2.0),
    Dirichlet(torch.ones(3, 2)), VonMises(torch.zeros(3, 2), 1.0), Exponential(torch.ones(3, 2)),
    Gumbel(torch.zeros(3, 2), 1.0),
    MultivariateNormal(torch.zeros(3, 2), torch.eye(2)), Cauchy(torch.zeros(3, 2), 1.0),
    MixtureSameFamily(Categorical(torch.ones(3, 2)), Normal(torch.zeros(3, 2), 1.0)),
]  # fmt: skip


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_a_law_draws_with_a_lent_generator_as_with_torchs_own(law):
    torch.manual_seed(5)
    expected, before = law.sample((4,)), torch.get_rng_state()
    with Draws(5).in_use(), lend_generator():
        drawn = law.sample((4,))
    assert torch.equal(drawn, expected)
    assert torch.equal(torch.get_rng_state(), before)


# -- threads ------------------------------------------------------------------------------------


def test_processors_are_those_that_were_allowed(monkeypatch):
    monkeypatch.setattr("joblib.effective_n_jobs", lambda n_jobs: 8)
    for said, count in {"1": 1, "3,2": 3, "": 8, "none": 8, "99": 8}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", said)
        assert cpus() == cpus(-1) == count
        assert cpus(5) == 5


def test_the_threads_of_torch_are_limited_also_where_a_program_has_set_them(one_thread):
    def in_a_thread():
        torch.set_num_threads(3)
        with threads_at_most(2):
            inside = torch.get_num_threads(), _threads_of_products()
        with threads_at_most(9):
            more = torch.get_num_threads()
        return inside, more, torch.get_num_threads()

    with ThreadPoolExecutor(1) as pool:
        inside, more, after = pool.submit(in_a_thread).result()
    assert inside[0] == 2 >= inside[1]
    assert (more, after) == (3, 3)
