"""The average with nothing to set, where its parts matter: few rows, atoms, given folds."""

import numpy as np
import pytest
import toy
from scipy.stats import norm

from deconflow import XDGMM, Observations
from deconflow.xd import FitSettings, Stopping, fit_averaged, log_p
from deconflow.xd.layout import lay_out

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
    assert (np.exp(twin.score_samples(at)) / truth).min() < 0.5


def test_auto_is_the_ladder():
    w, sd = effects(400, 0)
    model = XDGMM("auto", random_state=0).fit(w, noise=sd)
    assert model.selection_.keys() == averaged(w, sd).table.keys()
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
        ({"init": {"means": np.zeros((1, 1))}}, 'a mixture to start from; got "auto"'),
        ({"fixed": {"means": True}}, "Expected fixed=None with"),
        ({"method": "minibatch"}, "a number with minibatches"),
    ],
)
def test_auto_refuses_what_it_would_ignore(options, words):
    w, sd = effects(30, 0)
    with pytest.raises(ValueError, match=words):
        XDGMM("auto", **options).fit(w, noise=sd)


def test_a_column_that_few_rows_measure_is_left_to_every_fit():
    w = np.random.default_rng(1).normal(size=(60, 2))
    w[2:, 1] = np.nan
    w[:2, 1] = 5.0, 6.0
    model = XDGMM("auto", random_state=3).fit(w, noise=[0.1, 0.1])
    # EM stops early where nearly all of a column is missing: 5.5 is not reached, 0 is far.
    assert all(mixture.means[:, 1].max() > 3 for mixture in model.mixtures_)
    w[1, 1] = np.nan
    with pytest.raises(ValueError, match=r"measured in at least 2 rows.*got column 1 in one"):
        XDGMM("auto", random_state=3).fit(w, noise=[0.1, 0.1])


# -- averages of three folds ----------------------------------------------------------------------


QUICK = FitSettings(1, stopping=Stopping(tol=1e-5, max_iter=200, accelerate=True))


def averaged_quickly(data):
    return fit_averaged(data, QUICK, np.random.RandomState(0), folds=3, starts=1)


@pytest.fixture(scope="module")
def on_the_toy():
    _, w = toy.draw(6000, 0)
    return averaged_quickly(Observations.from_arrays(w, np.sqrt(np.diag(toy.NOISE))))


def test_three_components_are_found(on_the_toy):
    assert on_the_toy.settings.n_components in (3, 4)  # rows cannot tell these apart
    table = on_the_toy.table
    assert table["share"].sum() == pytest.approx(1.0)
    assert table["share"][table["n_components"] <= 6].sum() == pytest.approx(1.0)
    assert table["share"][table["n_components"] < 3].sum() == 0  # two are clearly too few
    assert list(table["n_components"][:4]) == [1, 2, 3, 4]


def test_a_single_gaussian_stays_one():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(2000, 2)) + 0.5 * rng.normal(size=(2000, 2))
    assert averaged_quickly(Observations.from_arrays(w, [0.5, 0.5])).settings.n_components == 1


def test_the_floor_follows_the_rows():
    """Narrow truths, seen sharply by a tenth of the rows only: the floor must go down."""
    rng = np.random.default_rng(0)
    v = 0.05 * rng.normal(size=(4000, 1)) + rng.choice([-2.0, 2.0], size=(4000, 1))
    sd = np.where(rng.uniform(size=v.shape) < 0.1, 0.02, 0.3)
    found = averaged_quickly(Observations.from_arrays(v + sd * rng.normal(size=v.shape), sd))
    assert found.settings.floor < 0.05


def test_few_rows_have_few_components():
    rng = np.random.default_rng(0)
    found = averaged_quickly(Observations.from_arrays(rng.normal(size=(12, 3)), [0.1, 0.1, 0.1]))
    assert found.settings.n_components == 1


def heavy_tails(n, seed):
    """Rows in five columns with tails that no few Gaussians have, blurred."""
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(n, 5)) / np.sqrt(rng.chisquare(3, size=(n, 1)) / 3)
    return v, Observations.from_arrays(v + 0.5 * rng.normal(size=v.shape), np.full(5, 0.5))


def test_rows_are_judged_by_the_average_that_left_them_out():
    _, data = heavy_tails(200, 0)
    fit = averaged_quickly(data)
    assert len(fit.mixtures) == len(fit.folds) == 3
    for mixture, fold in zip(fit.mixtures, fit.folds, strict=True):
        rows = lay_out(data[fold.held])
        np.testing.assert_allclose(fit.held_out[fold.held], log_p(mixture, rows), rtol=1e-9)
    assert fit.held_out.mean() > fit.table["held_out"].max() - 1e-3  # no worse than the best alone
