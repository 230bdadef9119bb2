"""Atoms of the truth and rows of a background, against brute force."""

import numpy as np
import pytest
from scipy import stats
from sklearn.neighbors import KernelDensity

from deconflow import XDGMM
from deconflow.estimators import ESTIMATORS

SD = 0.4
TINY = {
    "XDGMM": {"n_components": 1, "random_state": 0},
    "BayesianXDGMM": {"n_chains": 2, "n_sweeps": 30, "random_state": 0, "n_jobs": 1},
    "Deconvolver": {"quick": True, "random_state": 0, "n_jobs": 1},
    "LogSplineDeconvolver": {},
}
SLOW = ("BayesianXDGMM", "Deconvolver")
GRID = np.linspace(-8, 10, 9001)


def mixed(n=500, share=0.3, background=0.15, seed=0):
    rng = np.random.default_rng(seed)
    v = np.where(rng.random(n) < share, 0.0, rng.normal(2.0, 1.0, size=n))
    w = v + SD * rng.normal(size=n)
    lost = rng.random(n) < background
    w[lost] = rng.uniform(-20, 20, size=lost.sum())
    return v, w[:, None], lost


@pytest.fixture(scope="module")
def model():
    _, w, _ = mixed(background=0.0)
    return XDGMM(1, atoms=[0.0], random_state=0).fit(w, noise=SD)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in TINY]
)
def test_shares_in_all_estimators(name):
    """500 rows tell shares to about 0.03; a mixture that knows of no parts has none."""
    v, w, lost = mixed()
    made = ESTIMATORS[name](atoms=[0.0], background="uniform", **TINY[name])
    fitted = made.fit(w, noise=SD)
    assert fitted.atom_weights_[0] == pytest.approx(0.3, abs=0.1)
    assert fitted.background_share_ == pytest.approx(lost.mean(), abs=0.05)
    drawn = fitted.sample(1000, random_state=0)
    assert (drawn == 0).mean() == pytest.approx(fitted.atom_weights_[0], abs=0.05)
    posterior = fitted.posterior(w, SD)
    found = posterior.probability_of_background
    assert found[lost].mean() > 0.8
    assert found[~lost].mean() < 0.1
    assert len(fitted.known_) == 2
    plain = XDGMM(1, random_state=0).fit(w, noise=SD)
    assert plain.background_share_ == 0
    assert len(plain.atom_weights_) == 0
    assert np.abs(plain.posterior(w, SD).mean[~lost, 0] - v[~lost]).mean() > (
        np.abs(posterior.mean[~lost, 0] - v[~lost]).mean()
    )


def test_shares_have_standard_errors():
    """Of 40 tables nine in ten intervals hold the share, 36 +- 2; halved errors hold fewer."""
    z = []
    for seed in range(40):
        _, w, _ = mixed(n=300, background=0.0, seed=seed)
        fitted = XDGMM(1, atoms=[0.0], random_state=0).fit(w, noise=SD)
        z.append((fitted.atom_weights_[0] - 0.3) / fitted.part_errors_[0])
        assert f"+- {fitted.part_errors_[0]:.1%}" in fitted.known_[0]
    assert 31 <= (np.abs(z) < 1.645).sum() <= 40
    assert (np.abs(z) < 0.82).sum() < 31


def test_observations_have_mass_one(model):
    _, w, _ = mixed()
    with_both = XDGMM(1, atoms=[0.0], background="uniform", random_state=0).fit(w, noise=SD)
    low, high = w.min(), w.max()
    points = np.linspace(low, high, 8001)
    for fitted in (model, with_both):
        density = np.exp(fitted.score_observations(points[:, None], SD))
        assert np.trapezoid(density, points) == pytest.approx(1, abs=2e-3)
    rest = np.trapezoid(np.exp(model.score_samples(GRID[:, None])), GRID)
    assert rest == pytest.approx(1 - model.atom_weights_[0], abs=1e-4)


def test_atoms_at_a_bound():
    rng = np.random.default_rng(0)
    v = np.where(rng.random((600, 1)) < 0.4, 0.0, rng.gamma(4.0, size=(600, 1)))
    w = v + SD * rng.normal(size=v.shape)
    fitted = XDGMM(2, atoms=[0.0], bounds=(0, None), random_state=0).fit(w, noise=SD)
    assert fitted.atom_weights_[0] == pytest.approx(0.4, abs=0.08)
    posterior = fitted.posterior(w, SD)
    assert posterior.samples.min() >= 0
    assert posterior.mean.min() >= 0


def test_points_of_two_columns():
    rng = np.random.default_rng(0)
    at = rng.random((500, 1)) < 0.3
    v = np.where(at, [1.0, -1.0], rng.normal(size=(500, 2)) * [1, 2])
    w = v + 0.2 * rng.normal(size=v.shape)
    w[::7, 0] = np.nan
    model = XDGMM(1, atoms=[[1.0, -1.0]], background="uniform", random_state=0).fit(w, noise=0.2)
    assert model.atom_weights_[0] == pytest.approx(0.3, abs=0.06)
    assert model.background_share_ < 0.05
    posterior = model.posterior(w, 0.2)
    assert posterior.marginal([1]).mean == pytest.approx(posterior.mean[:, [1]])
    assert posterior[3:5].mean == pytest.approx(posterior.mean[3:5])
    assert model.density_.marginal([1]).sample(500, 0).shape == (500, 1)
    conditioned = model.condition([[1.0]], [0])
    assert (conditioned.sample(200, random_state=0) == -1.0).mean() > 0.9


BACKGROUNDS = {
    "function": lambda: lambda w: np.full(len(w), -np.log(40.0)),
    "column": lambda: lambda w: np.full((len(w), 1), -np.log(40.0)),
    "scipy": lambda: stats.uniform(-20, 40),
    "KernelDensity": lambda: KernelDensity(bandwidth=3.0).fit(
        np.random.default_rng(5).uniform(-20, 20, size=(500, 1))
    ),
}


@pytest.mark.parametrize("kind", BACKGROUNDS)
def test_backgrounds_of_ones_own(kind, tmp_path):
    _, w, lost = mixed(400, share=0.0)
    model = XDGMM(1, background=BACKGROUNDS[kind](), random_state=0).fit(w, noise=SD)
    assert model.background_share_ == pytest.approx(lost.mean(), abs=0.05)
    with pytest.raises(ValueError, match='Expected background="uniform" in a model that is saved'):
        model.save(tmp_path / "model")


def test_exact_values_are_at_an_atom_or_not():
    rng = np.random.default_rng(0)
    w = np.where(rng.random((200, 1)) < 0.25, 0.0, rng.normal(1.0, 1.0, size=(200, 1)))
    sd = np.where(np.arange(200)[:, None] < 150, 0.0, SD)
    w[150:] += SD * rng.normal(size=(50, 1))
    model = XDGMM(1, atoms=[0.0], random_state=0).fit(w, noise=sd)
    assert model.atom_weights_[0] == pytest.approx(0.25, abs=0.08)
    posterior = model.posterior(w[:150], 0.0)
    np.testing.assert_array_equal(posterior.probability_of_atoms[:, 0], w[:150, 0] == 0)
    np.testing.assert_allclose(posterior.mean, w[:150], atol=1e-9)


def test_rows_of_a_background_may_lie_beyond_bounds():
    rng = np.random.default_rng(0)
    w = np.r_[rng.exponential(size=(300, 1)) + SD * rng.normal(size=(300, 1)), [[-30.0], [40.0]]]
    model = XDGMM(1, bounds=(0, None), background="uniform", random_state=0).fit(w, noise=SD)
    assert model.posterior(w[-2:], SD).probability_of_background.min() > 0.9
