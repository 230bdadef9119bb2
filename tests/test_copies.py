"""Copies of rows are told from rows that rounding has made equal."""

from dataclasses import replace

import numpy as np
import pytest

from deconflow import XDGMM, Observations
from deconflow.copies import find_copies, keep_copies_together
from deconflow.noise import gaussian, laplace, student_t

RNG = np.random.default_rng(1)


def normal(n, dim=1):
    return RNG.normal(size=(n, dim))


def five(rows):
    return np.repeat(rows, 5, axis=0)


def found(w, noise=0.1, **arrays):
    return find_copies(Observations.from_arrays(w, noise, **arrays))


def digits(values, count):
    """Round to so many digits each, however large the values are."""
    return np.array([float(f"{x:.{count - 1}e}") for x in values.ravel()]).reshape(values.shape)


def zeros_among(n):
    w = normal(n)
    w[: n // 3] = 0.0
    return w


def off_by_a_bit(w):
    changed = np.where(RNG.random(w.shape) < 0.5, w, (w + 0.1 + 0.2) - 0.3)
    assert 0 < np.abs(changed - w).max() < 1e-14
    return changed


COUNTS = RNG.poisson(300, size=(2000, 1)).astype(float)
HUNDREDTHS = np.round(normal(2000), 2)
BAND = np.round(normal(4000)[:, [0, 0]] + [0.0, 0.03] * normal(4000, 2), 2)
BY_CHANCE = {
    "one column of two digits": (HUNDREDTHS, 0.1),
    "so many that they fill the digits": (np.round(normal(20_000), 2), 0.1),
    "two columns": (np.round(normal(20_000, 2), 2), 0.1),
    "three coarse columns": (np.round(normal(3000, 3), 1), 0.1),
    "columns that go together": (BAND, 0.1),
    "whole numbers": (np.round(normal(500, 2)), 0.1),
    "few significant digits": (digits(np.exp(2 * normal(5000)), 2), 0.1),
    "many significant digits": (digits(np.exp(2 * normal(5000)), 4), 0.1),
    "single precision": (normal(200_000).astype(np.float32).astype(float), 0.1),
    "sums that are off by a bit": (off_by_a_bit(np.round(normal(2000), 1)), 0.1),
    "errors that follow from the values": (COUNTS, np.sqrt(COUNTS)),
    "errors of two digits": (HUNDREDTHS, 0.1 + np.round(0.1 * np.abs(HUNDREDTHS), 2)),
    "logarithms of whole numbers": (np.log(np.round(130 + 18 * normal(1600))), 0.1),
    "two columns of reciprocals": (1000 / np.round(130 + 18 * normal(1600, 2)), 0.1),
    "mostly even": (2 * np.round(10 * normal(3000)) + (RNG.random((3000, 1)) < 0.01), 0.1),
    "a value for what was not seen": (zeros_among(2000), 0.0),
    "the same of few rows": (zeros_among(90), 0.0),
    "one value": (np.ones((50, 1)), 0.1),
    "all different": (normal(1000, 3), 0.1),
    "one row": (normal(1), 0.1),
}
COPIED = {
    "one column": (five(normal(400)), 0.1),
    "three columns": (five(normal(400, 3)), 0.1),
    "a tenth of the rows": (np.vstack([(some := normal(1000, 2)), some[:100]]), 0.1),
    "drawn with replacement": (normal(1000)[RNG.integers(1000, size=1000)], 0.1),
    "rounded columns": (five(np.round(normal(400, 3), 2)), 0.1),
    "a coarse column beside a fine one": (
        five(np.hstack([np.round(normal(400)), normal(400)])),
        0.1,
    ),
    "rounded, but for the errors": (five(HUNDREDTHS), five(RNG.uniform(0.1, 0.2, (2000, 1)))),
    "single precision": (five(normal(400).astype(np.float32).astype(float)), 0.1),
    "logarithms": (five(np.log(130 + 18 * normal(400))), 0.1),
    "another law": (five(normal(400)), laplace(five(RNG.uniform(0.1, 0.2, (400, 1))))),
}


@pytest.mark.parametrize("name", BY_CHANCE)
def test_rounded_rows_are_no_copies(name):
    w, noise = BY_CHANCE[name]
    data = Observations.from_arrays(w, noise)
    assert not find_copies(data).surprising
    assert keep_copies_together(data).groups is None


@pytest.mark.parametrize("name", COPIED)
def test_copies_are_found(name):
    w, noise = COPIED[name]
    data = Observations.from_arrays(w, noise)
    copies = find_copies(data)
    assert copies.surprising
    assert copies.share > 0.15
    rows = np.column_stack([w, np.broadcast_to(data.noise.variance(), w.shape)])
    assert len(np.unique(copies.groups)) == len(np.unique(rows, axis=0))
    for group in np.unique(copies.groups)[:50]:
        assert len(np.unique(rows[copies.groups == group], axis=0)) == 1
    assert keep_copies_together(data).groups.tolist() == copies.groups.tolist()


@pytest.mark.parametrize(("dim", "to"), [(1, 1), (1, 2), (1, 3), (2, 2), (3, 2)])
def test_pairs_by_chance_are_as_many_as_expected(dim, to):
    for seed in range(3):
        w = np.round(np.random.default_rng(seed).normal(size=(20_000, dim)), to)
        _, sizes = np.unique(w, axis=0, return_counts=True)
        pairs = (sizes * (sizes - 1) / 2).sum()
        expected = find_copies(Observations.from_arrays(w, 0.1), near=False).expected
        if to == 1:  # piles, not looked at one by one
            assert expected > 0.5 * pairs
        else:
            assert abs(expected - pairs) < 0.1 * pairs + 5 * np.sqrt(pairs)


@pytest.mark.parametrize("to", [None, 2])
def test_equal_values_with_other_noise_are_no_copies(to):
    w = five(normal(400, 3) if to is None else np.round(normal(400, 3), to))
    assert not found(w, RNG.uniform(0.1, 0.2, w.shape)).surprising
    assert found(w, RNG.uniform(0.1, 0.2, w.shape)).share == 0
    shapes = five(np.ones((400, 3)))
    df = RNG.uniform(3, 5, w.shape)
    assert found(w, student_t(shapes, df=df)).share == 0
    assert found(w, student_t(shapes, df=five(df[::5]))).share == 1.0
    root = RNG.normal(size=(2000, 3, 3))
    covariance = root @ root.transpose(0, 2, 1)
    assert found(w, gaussian(covariance=covariance)).share == 0
    assert found(w, gaussian(covariance=five(covariance[::5]))).share == 1.0


def test_what_is_missing_tells_rows_apart():
    w = five(normal(400, 3))
    w[::5, 0] = np.nan
    copies = found(w)
    sizes = np.bincount(copies.groups)
    assert sorted(set(sizes)) == [1, 4]
    assert copies.share == 0.8
    w[1::5, 0] = np.nan
    sd = RNG.uniform(0.1, 0.2, w.shape)
    sd[:, 1:] = five(sd[::5, 1:])
    sd[2:, 0] = 0.3
    for noise in (sd, laplace(sd)):  # the noise of what is missing says nothing
        sizes = np.bincount(found(w, noise).groups)
        assert sorted(set(sizes)) == [2, 3]


def test_near_copies_are_counted():
    for dim in (1, 2, 5):
        w = five(normal(400, dim))
        near = w + 1e-9 * RNG.normal(size=w.shape)
        assert found(near).near_share > 0.99
        assert not found(near).surprising
        assert found(w).near_share == 0  # these are copies, not near ones
        assert found(near, 1e-9).near_share < 0.02  # as far apart as their errors
        assert found(near, 0.0).near_share > 0.99
    some = normal(2000, 2)
    some[:100] = some[100:200] + 1e-9
    assert 0.07 < found(some).near_share < 0.13


def test_nothing_is_overruled():
    data = Observations.from_arrays(five(normal(400)), 0.1, groups=np.arange(2000))
    assert keep_copies_together(data) is data
    assert data.group_codes() is None  # as without groups
    assert keep_copies_together(replace(data, groups=None)).group_codes() is not None


# -- what comes of it -----------------------------------------------------------------------------

CENTRES, WIDTHS = np.array([[-3.0, 0.0], [2.0, 2.0], [2.0, -3.0]]), np.array([0.6, 0.4, 0.8])


def blobs(n, rng):
    which = rng.integers(3, size=n)
    return CENTRES[which] + WIDTHS[which, None] * rng.normal(size=(n, 2))


def log_truth(v):
    squares = np.square(v[:, None] - CENTRES).sum(-1) / WIDTHS**2
    return np.log((np.exp(-0.5 * squares) / (2 * np.pi * WIDTHS**2)).mean(1))


@pytest.mark.slow
def test_copies_do_not_fool_a_choice():
    """Four hundred rows, five times each: as good as once. The folds of before are the twin."""
    rng = np.random.default_rng(0)
    v = blobs(400, rng)
    sd = rng.uniform(0.1, 0.5, v.shape)
    w = v + sd * rng.normal(size=v.shape)
    fresh = blobs(10_000, rng)

    def behind(w, sd, groups=None):
        model = XDGMM("auto", random_state=0, n_jobs=1).fit(w, noise=sd, groups=groups)
        return float((log_truth(fresh) - model.score_samples(fresh)).mean())

    once, kept = behind(w, sd), behind(five(w), five(sd))
    assert max(once, kept, behind(five(w), five(sd), np.repeat(np.arange(400), 5))) < 0.15
    assert behind(five(w), five(sd), np.arange(2000)) > 1.0
