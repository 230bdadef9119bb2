"""Gibbs sampling: every draw against what it must be in the mean."""

import numpy as np
import pytest
from cases import CASES, start, values

from deconflow.noise import student_t
from deconflow.observations import Observations
from deconflow.xd import expectation, lay_out
from deconflow.xd.gibbs import Prior, Sweeper, begin

DRAWS = 400


def heavy_shared(rng):
    return {"w": values(rng, 61, 2), "noise": student_t(np.array([0.3, 0.6]), 3.0)}


def heavy_by_row(rng):
    return {"w": values(rng, 61, 2), "noise": student_t(rng.uniform(0.1, 1, (61, 2)), 3.0)}


KINDS = CASES | {f.__name__: f for f in (heavy_shared, heavy_by_row)}


def observe(case):
    given = {key: value for key, value in case.items() if key != "dim"}
    return Observations.from_arrays(**given)


def passes(name, floor_seen=1.0):
    """Sums of many passes, and what they must be in the mean by the sums of EM."""
    rng = np.random.default_rng(3)
    rows = lay_out(observe(KINDS[name](rng)))
    prior = Prior(np.zeros(rows.dim), 4.0 * np.eye(rows.dim), 0.2 * np.eye(rows.dim))
    state = begin(start(rng, rows.dim), 3, prior, rows.total_weight)
    V = state.U + floor_seen * prior.floor
    mixture = state.drawn(prior.floor)
    sums = expectation(type(mixture)(mixture.weights, mixture.means, V), rows)
    u = np.linalg.solve(V, sums.vu[..., None])[..., 0]
    G = np.linalg.solve(V, np.swapaxes(np.linalg.solve(V, sums.vgv), 1, 2))
    expected = (
        sums.q0,
        np.einsum("kij,kj->ki", state.U, u),
        np.tril(sums.q0[:, None, None] * state.U + state.U @ G @ state.U),
    )
    sweeper = Sweeper(rows, prior, np.random.default_rng(0))
    drawn: list[list[np.ndarray]] = [[], [], []]
    for _ in range(DRAWS):
        first, second = sweeper._pass(state)
        for each, value in zip(drawn, (state.count, first, np.tril(second)), strict=True):
            each.append(value)
    return [np.array(each) for each in drawn], expected


def scores(drawn, expected):
    """How many standard errors each mean is off, of components that are drawn often enough."""
    together = []
    often = expected[0] > 0.5
    for each, means in zip(drawn, expected, strict=True):
        some, should = each[:, often], means[often]
        varies = some.std(0) > 1e-9  # upper halves do not
        error = some.std(0)[varies] / np.sqrt(len(some))
        together.append(np.abs(some.mean(0)[varies] - should[varies]) / error)
    return np.concatenate(together)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_draws_have_the_moments_of_the_exact_posterior(name):
    off = scores(*passes(name))
    assert np.sqrt((off**2).mean()) < 1.6  # about 40 correlated normal numbers
    assert off.max() < 4.5


def test_a_wrong_floor_is_seen():
    off = scores(*passes("full", floor_seen=2.0))
    assert off.max() > 10
