import numpy as np
import pytest
import toy

from deconflow.observations import Observations
from deconflow.xd import FitSettings, Stopping, fit_averaged, log_p
from deconflow.xd.layout import lay_out

SETTINGS = FitSettings(1, stopping=Stopping(tol=1e-5, max_iter=200, accelerate=True))


def averaged(data):
    return fit_averaged(data, SETTINGS, np.random.RandomState(0), folds=3, starts=1)


@pytest.fixture(scope="module")
def on_the_toy():
    _, w = toy.draw(6000, 0)
    return averaged(Observations.from_arrays(w, np.sqrt(np.diag(toy.NOISE))))


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
    assert averaged(Observations.from_arrays(w, [0.5, 0.5])).settings.n_components == 1


def test_the_floor_follows_the_rows():
    """Narrow truths, seen sharply by a tenth of the rows only: the floor must go down."""
    rng = np.random.default_rng(0)
    v = 0.05 * rng.normal(size=(4000, 1)) + rng.choice([-2.0, 2.0], size=(4000, 1))
    sd = np.where(rng.uniform(size=v.shape) < 0.1, 0.02, 0.3)
    found = averaged(Observations.from_arrays(v + sd * rng.normal(size=v.shape), sd))
    assert found.settings.floor < 0.05


def test_few_rows_have_few_components():
    rng = np.random.default_rng(0)
    found = averaged(Observations.from_arrays(rng.normal(size=(12, 3)), [0.1, 0.1, 0.1]))
    assert found.settings.n_components == 1


def heavy_tails(n, seed):
    """Rows in five columns with tails that no few Gaussians have, blurred."""
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(n, 5)) / np.sqrt(rng.chisquare(3, size=(n, 1)) / 3)
    return v, Observations.from_arrays(v + 0.5 * rng.normal(size=v.shape), np.full(5, 0.5))


def test_rows_are_judged_by_the_average_that_left_them_out():
    _, data = heavy_tails(200, 0)
    fit = averaged(data)
    assert len(fit.mixtures) == len(fit.folds) == 3
    for mixture, fold in zip(fit.mixtures, fit.folds, strict=True):
        rows = lay_out(data[fold.held])
        np.testing.assert_allclose(fit.held_out[fold.held], log_p(mixture, rows), rtol=1e-9)
    assert fit.held_out.mean() > fit.table["held_out"].max() - 1e-3  # no worse than the best alone
