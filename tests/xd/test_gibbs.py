"""Gibbs sampling: every draw against what it must be in the mean."""

import numpy as np
import pytest
from cases import CASES, start, values

from deconflow import Observations
from deconflow.noise import student_t
from deconflow.xd import expectation, lay_out, shares_of, stacked, wins
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
    assert scores(*passes("full", floor_seen=2.0)).max() > 10


# -- what each of several densities gets of an average, from made-up held-out rows ----------------


N = 4000
ONES, ALIKE = np.ones(N), np.ones(2)
FREE = np.zeros(2)


def rng():
    return np.random.RandomState(0)


def two_halves():
    """Two densities, each good on the rows where the other is bad: the average is best."""
    good = rng().uniform(size=N) < 0.5
    return np.stack([np.where(good, 0.0, -3.0), np.where(good, -3.0, 0.0)])


def twins(lead):
    """Two densities that differ by chance, .05 a row, and by a lead of the first."""
    noise = 0.05 * rng().normal(size=N)
    return np.stack([noise - noise.mean() + lead, np.zeros(N)])


@pytest.mark.parametrize(("errors", "expected"), [(0.0, 0.5), (1.0, 0.84), (3.0, 0.9987)])
def test_wins_are_the_probability_of_the_lead(errors, expected):
    """A lead of so many errors wins with the normal's probability; 500 draws know it to .05."""
    lead = errors * 0.05 / np.sqrt(N)
    assert wins(twins(lead), ONES, FREE, rng())[0] == pytest.approx(expected, abs=0.05)


def test_what_rows_cannot_tell_apart_is_averaged():
    assert shares_of(twins(0.0), ONES, ALIKE, rng()).min() > 0.35
    clear = shares_of(twins(0.05), ONES, ALIKE, rng())  # sixty errors
    assert clear[0] > 0.9


def test_an_average_that_is_better_than_its_parts_is_found():
    """One of the two is ahead and always wins: steps of EM still see that both are wanted."""
    rows = two_halves()
    rows[0] += 0.2
    assert wins(rows, ONES, FREE, rng())[0] > 0.99
    shares = shares_of(rows, ONES, ALIKE, rng())
    assert shares.min() > 0.35
    alone = rows[0].mean()
    assert np.log(shares @ np.exp(rows)).mean() > alone + 0.5


def test_rows_count_by_their_weights():
    rows = two_halves()
    weights = np.where(rows[0] == 0, 9.0, 1.0)
    shares = stacked(rows, weights, np.full(2, 0.5), 300)
    whole = np.repeat(rows, weights.astype(int), axis=1)
    repeated = stacked(whole, np.ones(whole.shape[1]), np.full(2, 0.5), 300)
    np.testing.assert_allclose(shares, repeated, atol=1e-9)
    assert shares[0] > 0.85


def test_small_shares_are_given_to_the_others():
    rows = np.stack([np.zeros(N), np.full(N, -1e-3), np.full(N, -5.0)])
    shares = shares_of(rows, ONES, np.ones(3), rng())
    assert shares[2] == 0.0
    assert shares.sum() == pytest.approx(1.0)


def test_who_has_more_parameters_must_gain_by_them():
    """Equal on the rows, .05 nat of chance each: an error of 3.2 nats; 60 parameters cost 15."""
    assert shares_of(twins(0.0), ONES, np.array([20.0, 80.0]), rng())[0] > 0.85
    seen = shares_of(twins(-0.02), ONES, np.array([20.0, 80.0]), rng())  # 80 nats behind
    assert seen[1] > 0.85
