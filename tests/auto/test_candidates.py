"""What candidates are compared on, and what the prior of their weights is."""

import re
import sys
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import norm
from short_fits import let_flows_win, shorten, shorten_chains

from deconflow import Deconvolver, GaussianMixture, Observations, noise, progress
from deconflow.auto import candidates, flows
from deconflow.auto.candidates import Candidate, Plan, best_weights, compared, fit_splines, weigh
from deconflow.auto.candidates import stack as stack_with
from deconflow.auto.fit import try_flows
from deconflow.auto.flows import network_of, refit, score
from deconflow.densities import MixtureDensity
from deconflow.objectives import Chains
from deconflow.xd import Fold

N = 1000
RNG = np.random.default_rng(0)


def test_rows_that_nobody_asked_are_left_out_and_impossible_ones_count():
    held_out = np.full(N, 0.5)
    held_out[:100], held_out[100:160] = np.nan, -np.inf
    both = [Candidate("mixtures", np.zeros(N), []), Candidate("flows", held_out, [])]
    log_p, rows = compared(both)
    assert len(rows) == N - 100
    assert log_p[1, 0] == candidates.IMPOSSIBLE
    # Sixty impossible rows among 900 need somebody who knows them.
    assert 0.03 < weigh(both, np.ones(N), 3, np.random.RandomState(0))[0] < 0.3
    held_out[100:160] = 0.5
    assert weigh(both, np.ones(N), 3, np.random.RandomState(0))[0] == 0.0


def test_flows_are_scored_on_rows_from_all_over_a_table(monkeypatch):
    """A table in order of brightness must not be judged by its brightest rows alone."""
    task = SimpleNamespace(
        data=Observations.from_arrays(np.zeros((20_000, 1)), 0.1),
        averaged=SimpleNamespace(folds=[SimpleNamespace(held=np.arange(0, 20_000, 2))] * 5),
        seed=0,
    )
    monkeypatch.setattr(flows, "ensemble_of", lambda members, dim: MixtureDensity.spread(dim, 1))
    mixture = GaussianMixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)))
    held_out = np.full(20_000, np.nan)
    score(task, 0, mixture, [], held_out)
    asked = np.flatnonzero(np.isfinite(held_out))
    assert len(asked) == 1000
    assert abs(asked.mean() - 10_000) < 4 * 20_000 / np.sqrt(12 * 1000)


@pytest.mark.parametrize("asked_for", [2, None])
def test_a_number_of_flows_that_is_not_used_is_told(asked_for):
    plan = Plan(1, n_flows=asked_for)
    data = Observations.from_arrays(np.zeros((60, 1)), 0.3)
    task = SimpleNamespace(data=data, plan=plan, notes=[])
    assert try_flows(task) is None
    assert ["in fewer than 3 columns" in note for note in task.notes] == [True] * bool(asked_for)


def test_without_torch_there_are_no_flows_but_a_note(monkeypatch):
    monkeypatch.setitem(sys.modules, "deconflow.auto.flows", None)
    data = Observations.from_arrays(np.zeros((60, 3)), 0.3)
    task = SimpleNamespace(data=data, plan=Plan(1), notes=[])
    assert try_flows(task) is None
    assert task.notes[0].endswith("is not installed. Run: pip install 'deconflow[flows]'.")


@pytest.mark.slow
def test_a_row_far_from_all_others_ends_no_fit(monkeypatch):
    shorten_chains(monkeypatch)
    rng = np.random.default_rng(0)
    w = rng.normal(size=(100, 3))
    w[0] = 1e6
    for given in (rng.uniform(0.05, 0.15, w.shape), [0.1, 0.1, 0.1]):
        model = Deconvolver(quick=True, random_state=0, n_jobs=1).fit(w, noise=given)
        assert model.score_samples(rng.normal(size=(500, 3))).mean() > -5.5


@pytest.mark.parametrize("quick", [True, False])
def test_spline_fits_that_failed_are_not_averaged(monkeypatch, quick):
    from deconflow.splines import LogSplineFit

    monkeypatch.setattr(LogSplineFit, "converged", property(lambda self: False))
    w = np.random.default_rng(0).normal(size=(60, 1))
    model = Deconvolver(quick=quick, random_state=0, n_jobs=1).fit(w, noise=0.3)
    assert "spline" not in model.weights_
    assert "There is no log-spline. Its fit did not converge" in model.summary()


@pytest.mark.parametrize(
    ("w", "law", "reason"),
    [
        (
            np.where(np.eye(200, 2) > 0, np.nan, RNG.normal(size=(200, 2))),
            0.3,
            "values are missing",
        ),
        (
            RNG.normal(size=(20_000, 2)),
            noise.student_t(RNG.uniform(0.1, 0.3, size=(20_000, 2)), 3.0),
            "would take it too long",
        ),
    ],
    ids=["missing values", "many laws"],
)
def test_there_is_no_spline_where_values_are_missing_or_laws_are_too_many(w, law, reason):
    every = np.arange(len(w))
    task = SimpleNamespace(
        data=Observations.from_arrays(w, law),
        averaged=SimpleNamespace(folds=[Fold(kept=every, held=every)]),
        plan=Plan(1),
        notes=[],
    )
    assert fit_splines(task) is None
    assert reason in task.notes[0]


# -- weights of candidates: learned where rows can tell, even where they cannot -------------------


def rng(seed=0):
    return np.random.RandomState(seed)


def stack(log_p, weights, r):
    return stack_with(log_p, weights, np.ones(len(log_p)), r)


def two_laws(n, share, seed=0):
    """Rows of which a share follows the first of two laws, and the log density of each."""
    r = rng(seed)
    x = np.where(r.uniform(size=n) < share, r.normal(-1, 1, n), r.normal(1, 1, n))
    return np.stack([norm(-1, 1).logpdf(x), norm(1, 1).logpdf(x)])


@pytest.mark.parametrize("share", [0.2, 0.5, 0.7])
def test_shares_of_laws_are_found(share):
    """Of 4,000 rows, with a standard error of about .012."""
    found = stack(two_laws(4000, share), np.ones(4000), rng())
    assert found[0] == pytest.approx(share, abs=0.05)
    turned = stack(two_laws(4000, share)[::-1], np.ones(4000), rng())
    np.testing.assert_allclose(turned[::-1], found, atol=1e-6)


def test_the_weaker_the_signal_the_nearer_to_even():
    """Two candidates that differ by noise of .05 per row and by a small mean."""
    noise = 0.05 * rng().normal(size=(2, 400))
    noise -= noise.mean(1, keepdims=True)
    best = [stack(noise - [[0.0], [gap]], np.ones(400), rng())[0] for gap in (0.0, 0.002, 0.02)]
    assert 0.3 < best[0] < 0.7
    assert best[0] < best[1] < best[2]
    assert best[2] > 0.8


def test_the_prior_speaks_where_rows_cannot():
    """Equal candidates get shares in proportion to it; with a thousand rows of evidence none."""
    prior = np.array([1.0, 3.0])
    alike = stack_with(np.zeros((2, 50)), np.ones(50), prior, rng())
    np.testing.assert_allclose(alike, prior / 4, atol=1e-6)
    told = stack_with(np.array([[0.0], [-1.0]]) + np.zeros((2, 1000)), np.ones(1000), prior, rng())
    np.testing.assert_array_equal(told, [1, 0])


def test_rows_count_by_their_weights():
    log_p = np.zeros((2, 400))
    log_p[1, :200], log_p[1, 200:] = 1.0, -5.0
    all_rows = stack(log_p, np.ones(400), rng())
    first_half = stack(log_p, np.repeat([2.0, 0.0], 200), rng())
    assert first_half[1] > 0.95
    assert all_rows[1] < 0.7


def test_the_maximum_is_one():
    """Beside a general optimiser, on a problem with an answer at an edge."""
    p = np.exp(rng().normal(size=(3, 60)) - [[0.0], [0.3], [2.0]])
    weights, prior = rng(1).uniform(size=60), np.array([0.5, 3.0, 1.0])

    def less(free):
        a = np.exp(free) / np.exp(free).sum()
        return -(weights @ np.log(a @ p) + prior @ np.log(a))

    wanted = np.exp(minimize(less, np.zeros(3), tol=1e-12).x)
    found = best_weights(p, weights, prior, np.full(3, 1 / 3))
    np.testing.assert_allclose(found, wanted / wanted.sum(), atol=1e-4)


# -- other proposals during training: kept if they are better, a network only where it is needed ---


def ring(spread=0.1, arcs=12):
    """A thin ring: no single Gaussian proposes well for it."""
    angles = torch.arange(arcs) * 2 * torch.pi / arcs
    means = 2 * torch.stack([angles.cos(), angles.sin()], 1)
    return MixtureDensity(
        torch.full((arcs,), 1 / arcs), means, spread * torch.eye(2).repeat(arcs, 1, 1)
    )


def chains_on(density, mixture, n=600):
    torch.manual_seed(0)
    sd = torch.tensor([0.6, 0.6])
    w = density.sample(n) + sd * torch.randn(n, 2)
    data = Observations.from_arrays(w.double().numpy(), sd.double().numpy())
    data = data.to(dtype=torch.float32)
    return Chains(density.requires_grad_(False), data, mixture, n_proposals=3)


def visit_all(chains, times):
    for _ in range(times):
        chains.visit(chains.with_proposals(chains.rows), chains.rows.row)


#: What proposes in a wrong place.
FAR = GaussianMixture(np.ones(1), np.array([[6.0, 6.0]]), 0.01 * np.eye(2)[None])


def test_a_network_learns_to_propose():
    chains = chains_on(ring(0.02), FAR)
    visit_all(chains, 30)
    before = chains.efficiency(chains.with_proposals(chains.rows), 64)
    chains.set_proposal(FAR, network_of(chains))
    assert chains.efficiency(chains.with_proposals(chains.rows), 64) > 2 * before


@pytest.mark.parametrize(("poor", "wanted"), [(1.0, True), (0.0, False)])
def test_a_network_is_trained_only_where_proposals_are_poor(monkeypatch, poor, wanted):
    monkeypatch.setattr(flows, "POOR", poor)
    monkeypatch.setattr(flows, "mixture_of", lambda density, n_components: FAR)
    chains = chains_on(ring(0.02), FAR)
    visit_all(chains, 30)
    refit(chains)
    assert (chains.network is not None) is wanted


def test_worse_proposals_are_not_kept(monkeypatch):
    monkeypatch.setattr(flows, "mixture_of", lambda density, n_components: FAR)
    good = GaussianMixture(np.ones(1), np.zeros((1, 2)), 2 * np.eye(2)[None])
    chains = chains_on(ring(), good)
    refit(chains)
    np.testing.assert_array_equal(chains.proposing.means, good.means)


def test_better_proposals_are_kept():
    chains = chains_on(ring(), FAR)
    refit(chains)
    assert np.abs(chains.proposing.means).max() < 1


# -- what is shown while flows are trained --------------------------------------------------------


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


@pytest.mark.filterwarnings("ignore::deconflow.UntrustedFitWarning")
def test_flows_are_trained_in_processes_that_get_them_pickled(monkeypatch):
    def in_a_child(n_jobs, return_as):
        return lambda tasks: [
            function(*given, **named)
            for function, given, named in map(cloudpickle.loads, map(cloudpickle.dumps, tasks))
        ]

    shorten(monkeypatch, steps=4)
    let_flows_win(monkeypatch)
    w = np.random.default_rng(0).normal(size=(60, 1))
    alone, beside = Deconvolver(random_state=0, n_jobs=1), Deconvolver(random_state=0, n_jobs=2)
    alone.fit(w, noise=0.5)
    monkeypatch.setattr(flows, "Parallel", in_a_child)
    beside.fit(w, noise=0.5)
    np.testing.assert_allclose(alone.score_samples(w), beside.score_samples(w), rtol=1e-6)
