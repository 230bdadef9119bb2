"""The average with nothing to set, where its parts matter: few rows, atoms, given folds."""

import numpy as np
import pytest
from scipy.stats import norm

from deconflow import XDGMM
from deconflow.observations import Observations
from deconflow.xd import FitSettings, Stopping, fit_averaged

STOPPING = Stopping(tol=1e-6, max_iter=300, accelerate=True, threads=1)
SETTINGS = FitSettings(1, stopping=STOPPING)


def clumps(n, seed):
    """Three clumps in five dimensions: noisy rows and clean ones."""
    rng = np.random.default_rng(seed)
    centres = 2.0 * rng.normal(size=(3, 5))
    roots = 0.6 * rng.normal(size=(3, 5, 5)) / np.sqrt(5) + 0.3 * np.eye(5)
    which = rng.integers(3, size=n + 2000)
    v = centres[which] + np.einsum("nij,nj->ni", roots[which], rng.normal(size=(n + 2000, 5)))
    return v[:n] + 0.3 * rng.normal(size=(n, 5)), v[n:]


def averaged(w, sd, **options):
    data = Observations.from_arrays(w, sd)
    return fit_averaged(data, SETTINGS, np.random.RandomState(0), **options)


@pytest.mark.parametrize("n", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_few_rows_in_many_columns_are_shrunk(n, monkeypatch):
    """Never worse than one Gaussian, and worse by far without shrinking: the negative twin."""
    sd = np.full(5, 0.3)
    ours, plain, one = [], [], []
    for seed in (100, 101, 102):
        w, clean = clumps(n, seed)
        fit = averaged(w, sd)
        assert fit.table["share"][fit.table["shrinkage"] > 0].sum() > 0
        ours.append(fit.mixture.log_prob(clean).mean())
        one.append(XDGMM(1, floor=0.1).fit(w, noise=sd).score_samples(clean).mean())
        with monkeypatch.context() as patch:
            patch.setattr("deconflow.xd.ladder.ENOUGH_ROWS", 0)
            plain.append(averaged(w, sd).mixture.log_prob(clean).mean())
    assert np.mean(ours) > np.mean(one) + 0.3
    assert min(np.subtract(ours, one)) > -0.05
    assert np.mean(ours) > np.mean(plain) + 0.05


def test_many_rows_are_not_shrunk():
    w, _ = clumps(1500, 100)
    assert (averaged(w, np.full(5, 0.3), folds=2, starts=1).table["shrinkage"] == 0).all()


def effects(n, seed):
    """Effects of which 85 % are zero, and their errors."""
    rng = np.random.default_rng(seed)
    v = np.where(rng.uniform(size=n) < 0.85, 0.0, rng.normal(0, 0.3, n))
    sd = rng.uniform(0.05, 0.3, n)
    return (v + sd * rng.normal(size=n))[:, None], sd[:, None]


@pytest.mark.parametrize("seed", [103, pytest.param(104, marks=pytest.mark.slow)])
def test_an_atom_makes_no_false_modes(seed):
    """The slab beside an atom at zero comes out within a factor of two, and without dips.

    The twin: eight components with the floor of the start make modes that are not there.
    """
    w, sd = effects(3000, seed)
    at = np.array([[-0.33], [-0.2], [0.2], [0.25], [0.33]])
    truth = 0.15 * norm.pdf(at[:, 0], 0, 0.3)
    ratio = np.exp(averaged(w, sd).mixture.log_prob(at)) / truth
    assert ratio.min() > 0.5
    assert ratio.max() < 2.0
    twin = XDGMM(8, floor=0.1, random_state=0).fit(w, noise=sd)
    wrong = np.exp(twin.score_samples(at)) / truth
    assert wrong.min() < 0.5


def test_auto_is_the_ladder():
    w, sd = effects(400, 0)
    model = XDGMM("auto", random_state=0).fit(w, noise=sd)
    fit = averaged(w, sd)
    assert model.selection_.keys() == fit.table.keys()
    assert len(model.mixtures_) == 5
    parts = [part.log_prob(w) for part in model.mixtures_]
    np.testing.assert_allclose(np.exp(parts).mean(0), np.exp(model.score_samples(w)), rtol=1e-9)
    assert "without each of 5 folds" in model.describe()


def test_auto_says_where_covariances_are_shrunk(tmp_path):
    w, _ = clumps(30, 100)
    model = XDGMM("auto", random_state=0).fit(w, noise=np.full(5, 0.3))
    assert "covariances are shrunk" in model.describe()
    model.save(tmp_path / "model")
    again = XDGMM.load(tmp_path / "model")
    assert again.describe() == model.describe()
    np.testing.assert_array_equal(again.component_counts_, model.component_counts_)
    big = XDGMM("auto", random_state=0).fit(effects(500, 1)[0], noise=effects(500, 1)[1])
    assert "shrunk" not in big.describe()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"floor": 0.1}, 'Expected floor=0.0 with n_components="auto"'),
        ({"n_init": 3}, "Expected n_init=1 with"),
        ({"init": {"means": np.zeros((1, 1))}}, "Expected init as a name with"),
        ({"fixed": {"means": True}}, "Expected fixed=None with"),
        ({"method": "minibatch"}, 'a number with method="minibatch"'),
    ],
)
def test_auto_refuses_what_it_would_ignore(options, words):
    w, sd = effects(30, 0)
    with pytest.raises(ValueError, match=words):
        XDGMM("auto", **options).fit(w, noise=sd)


def test_a_column_that_few_rows_measure_is_left_to_every_fit():
    rng = np.random.default_rng(1)
    w = rng.normal(size=(60, 2))
    w[2:, 1] = np.nan
    w[:2, 1] = 5.0, 6.0
    model = XDGMM("auto", random_state=3).fit(w, noise=[0.1, 0.1])
    # EM stops early where nearly all of a column is missing: 5.5 is not reached, 0 is far.
    assert all(mixture.means[:, 1].max() > 3 for mixture in model.mixtures_)
    w[1, 1] = np.nan
    with pytest.raises(ValueError, match=r"measured in at least 2 rows.*got column 1 in one"):
        XDGMM("auto", random_state=3).fit(w, noise=[0.1, 0.1])
