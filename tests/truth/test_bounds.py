"""Bounds: how they are said, mirrors of rows, and folds of densities."""

import numpy as np
import pytest
import torch
from scipy import stats

from deconflow import Observations
from deconflow.densities import Folded, MixtureDensity
from deconflow.noise import gaussian, laplace, split_normal, student_t
from deconflow.truth import Bounds, as_bounds

INF = np.inf


@pytest.mark.parametrize(
    ("said", "lower", "upper"),
    [
        ({"x": (0, None)}, [0, -INF], [INF, INF]),
        ({1: (None, 2.5)}, [-INF, -INF], [INF, 2.5]),
        ({np.int64(1): (-1, 1), "x": None}, [-INF, -1], [INF, 1]),
        ({"1": (0, 1)}, [-INF, 0], [INF, 1]),  # as JSON has the keys
        ([(0, 1), None], [0, -INF], [1, INF]),
        (((0, INF), (-INF, 3)), [0, -INF], [INF, 3]),
        (np.array([[0.0, 1.0], [-INF, INF]]), [0, -INF], [1, INF]),
    ],
)
def test_bounds_are_said_in_many_ways(said, lower, upper):
    found = as_bounds(said, ["x", "y"])
    np.testing.assert_array_equal(found.lower, lower)
    np.testing.assert_array_equal(found.upper, upper)
    again = as_bounds(np.stack([found.lower, found.upper], 1), ["x", "y"])
    np.testing.assert_array_equal(again.lower, found.lower)


@pytest.mark.parametrize("said", [None, {}, [None, None], {"x": (None, None)}, {"x": (-INF, INF)}])
def test_no_bounds(said):
    assert as_bounds(said, ["x", "y"]) is None


def test_a_pair_is_for_a_single_column():
    for said in ((0, None), [(0, None)]):
        found = as_bounds(said, ["x"])
        assert (found.lower.tolist(), found.upper.tolist()) == ([0.0], [INF])
    with pytest.raises(ValueError, match="Expected bounds as pairs"):
        as_bounds((0, 1), ["x", "y"])


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (3, "one pair, or one per column; got 3"),
        (True, "one pair, or one per column; got True"),
        (np.array(0.0), "one pair, or one per column"),
        ("x", "one pair, or one per column; got 'x'"),
        ((0, 1, 2), "for each of 1 columns"),
        ((1, 0), "low below high"),
        ((0, 0), "low below high"),
        ((np.nan, 1), "low below high"),
        ((INF, None), "low below high"),
        ({"z": (0, 1)}, "among x; got 'z'"),
        ({True: (0, 1)}, "among x; got True"),
        ({0: (0, 1), "x": (0, 2)}, "each column once"),
        ({0: (0, "a")}, r"got \(0, 'a'\)"),
        ({0: (0, True)}, "of numbers"),
        ({0: 3}, "got 3 in"),
    ],
)
def test_bounds_that_make_no_sense(said, message):
    with pytest.raises(ValueError, match=message) as caught:
        as_bounds(said, ["x"])
    assert str(caught.value).startswith("Expected ")


BOXES = [
    Bounds(np.array([0.0]), np.array([INF])),
    Bounds(np.array([-INF]), np.array([1.5])),
    Bounds(np.array([-1.0]), np.array([1.0])),
    Bounds(np.array([0.0, -1.0]), np.array([INF, 1.0])),
    Bounds(np.array([-INF, 0.0]), np.array([INF, 2.0])),
]


@pytest.mark.parametrize("box", BOXES)
def test_folds_land_within_and_every_image_folds_to_its_point(box, rng):
    v = rng.normal(scale=3, size=(200, len(box.lower)))
    folded = box.fold(v)
    assert box.inside(folded).all()
    np.testing.assert_array_equal(box.fold(folded), folded)
    for sign, shift in box.reflections():
        np.testing.assert_allclose(box.fold(shift + sign * folded), folded, atol=1e-12)


@pytest.mark.parametrize("box", BOXES)
def test_folded_densities_integrate_to_one(box):
    """A Gaussian of width 0.8, off the middle; without its reflections mass is missing."""
    dim = len(box.lower)
    density = MixtureDensity(
        torch.ones(1), torch.full((1, dim), 0.3), 0.64 * torch.eye(dim)[None]
    ).double()
    low, high = (np.clip(end, -7.0, 7.0) for end in (box.lower, box.upper))
    edges = [np.linspace(a, b, 401 if dim == 1 else 201) for a, b in zip(low, high, strict=True)]
    middles = [0.5 * (edge[1:] + edge[:-1]) for edge in edges]
    points = np.stack(np.meshgrid(*middles, indexing="ij"), -1).reshape(-1, dim)
    cell = np.prod([edge[1] - edge[0] for edge in edges])
    with torch.no_grad():
        folded = Folded(density, box)
        mass = folded.log_prob(torch.from_numpy(points)).exp().sum() * cell
        plain = density.log_prob(torch.from_numpy(points)).exp().sum() * cell
        drawn = folded.sample(500)
        beyond = torch.from_numpy(np.full((1, dim), 50.0) * np.where(np.isinf(box.upper), -1, 1))
        outside = folded.log_prob(beyond)
    assert mass == pytest.approx(1, abs=2e-3)  # the midpoint rule, at steps of 0.07 at most
    assert plain < 0.97
    assert box.inside(drawn.double().numpy()).all()
    if not box.inside(beyond.numpy())[0]:
        assert torch.isneginf(outside).all()


def test_mirrors_keep_missing_values_weights_and_groups(rng):
    w = rng.normal(size=(40, 2))
    w[::3, 0] = np.nan
    data = Observations.from_arrays(
        w, 0.3, weights=np.arange(1.0, 41.0), groups=np.repeat(np.arange(20), 2)
    )
    both = as_bounds({"x": (-3, 3)}, ["x", "y"]).mirrored(data, 0)
    assert len(both) == 120
    np.testing.assert_array_equal(np.isnan(both.measured()), np.tile(np.isnan(w), (3, 1)))
    np.testing.assert_array_equal(both.groups, np.tile(data.groups, 3))
    np.testing.assert_allclose(both.weights, np.tile(data.weights, 3))
    assert (both.w[~both.observed] == 0).all()


ROOTS = np.random.default_rng(1).normal(size=(30, 2, 2))
NOISES = {
    "gaussian": gaussian(sd=[0.4]),
    "laplace": laplace([0.3]),
    "student": student_t([0.3], 4.0),
    "skewed": split_normal([0.2], [0.9]),
    "shared covariance": gaussian(covariance=[[1.0, 0.6], [0.6, 2.0]]),
    "covariances": gaussian(covariance=ROOTS @ ROOTS.transpose(0, 2, 1) + 0.1 * np.eye(2)),
}


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("projected", [False, True])
def test_a_mirrored_row_is_as_likely_for_the_mirrored_truth(kind, projected, rng):
    """Whatever the law: p(w' | v') of the images is p(w | v) of the row."""
    dim = 2 if "covariance" in kind else 1
    w, v = rng.normal(size=(30, dim)), rng.normal(size=(1, 30, dim))
    options = {"projection": rng.normal(size=(30, dim, dim))} if projected else {}
    data = Observations.from_arrays(w, NOISES[kind], **options)
    box = as_bounds([(-1, 2), None][:dim], ["x", "y"][:dim])
    both = box.mirrored(data, 0)
    expected = data.log_likelihood(v)[0]
    images = [shift + sign * v[0] for sign, shift in box.reflections(0)]
    found = both.log_likelihood(np.concatenate(images)[None])[0]
    np.testing.assert_allclose(found, np.tile(expected, 3), rtol=1e-9, atol=1e-9)
    if kind in ("skewed", "covariances"):  # the twin: with the noise as it was, another row
        flip = np.where(np.arange(dim) == 0, -1.0, 1.0)
        wrong = Observations.from_arrays(flip * w, NOISES[kind]).log_likelihood(v * flip)[0]
        plain = Observations.from_arrays(w, NOISES[kind]).log_likelihood(v)[0]
        assert np.abs(wrong - plain).max() > 0.1


def test_many_bounded_columns_get_a_few_images_each(rng):
    data = Observations.from_arrays(rng.uniform(size=(300, 4)), 0.1)
    both = as_bounds([(0, 1)] * 4, list("abcd")).mirrored(data, 0)
    assert len(both) == 9 * 300
    # each of the 81 images has the same chance, so the middle of all stays that of the box
    assert abs(both.w.mean(0) - 0.5).max() < 0.1


def check(w, sd, bounds=(0, None), **options):
    names = ["x", "y"][: w.shape[1]]
    as_bounds(bounds, names).check_rows(Observations.from_arrays(w, sd), names, **options)


def test_rows_that_contradict_bounds(rng):
    w = rng.exponential(size=(100, 1))
    for low, sd in ((w[7, 0], 0.0), (0.0, 0.0), (-0.79, 0.1)):
        w[7] = low
        check(w, sd)
    w[7] = -0.81
    with pytest.raises(ValueError, match=r"x = -0.81 \+- 0.1 in row 7, beyond 0 \(1 such rows\)"):
        check(w, 0.1)
    check(w, 0.1, background=True)
    with pytest.raises(ValueError, match="hold most of the truth"):
        check(w - 4, 3.0)
    missing = np.c_[w, w]
    missing[1:, 0] = np.nan
    check(missing, 0.1, {"y": (-1, None)})


def test_a_truth_near_its_bound_is_no_contradiction(rng):
    """Half of such tables have a median below zero; and long tails go far beyond."""
    v = rng.exponential(0.01, size=(400, 1))
    for seed in range(4):
        check(v + np.random.default_rng(seed).normal(size=(400, 1)), 1.0)
    tailed = v + rng.standard_t(2.5, size=(400, 1))
    tailed[0] = -20.0
    check(tailed, student_t([1.0], 2.5))
    with pytest.raises(ValueError, match="within 8 errors"):
        check(tailed, 1.0)


def test_the_mean_of_skewed_noise_counts(rng):
    """Rows with noise of mean 5 lie there, though the truth is below 1."""
    w = rng.uniform(size=(200, 1)) + stats.expon(scale=5.0).rvs(size=(200, 1), random_state=0)
    check(w, split_normal([5.0], [0.01]), (0, 1))
    with pytest.raises(ValueError, match="Expected "):
        check(w, 0.1, (0, 1))
