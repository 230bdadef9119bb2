"""Pictures return axes, and show what the model says."""

import copy

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import toy
from scipy.stats import norm

from deconflow import XDGMM, FlowDeconvolver, PosteriorSamples, plots
from deconflow.densities import Ensemble, Restored
from deconflow.plots.marginals import members

SD = np.sqrt(np.diag(toy.NOISE))


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def averaged():
    _, w = toy.draw(400, seed=0)
    model = XDGMM(3, floor=0.1, n_average=3, average_over="folds", random_state=0)
    return model.fit(w, noise=SD), w


@pytest.fixture(scope="module")
def flow():
    _, w = toy.draw(100, seed=0)
    return FlowDeconvolver(epochs=3, hidden=8, random_state=0).fit(w, noise=SD), w


def test_marginals_of_a_mixture_are_exact(averaged):
    model, w = averaged
    axes = plots.marginals(model, w, names=["a", "b"])
    assert [ax.get_xlabel() for ax in axes] == ["a", "b"]
    x, y = axes[1].lines[0].get_data()
    mixture = model.marginal([1])
    sd = np.sqrt(mixture.covariances[:, 0, 0])
    assert np.allclose(y, norm.pdf(x[:, None], mixture.means[:, 0], sd) @ mixture.weights)


def test_the_band_holds_the_average(averaged):
    model, _ = averaged
    assert len(members(model)) == 3
    ax = plots.marginals(model)[0]
    band = ax.collections[0].get_paths()[0].vertices
    x, y = ax.lines[0].get_data()
    middle = np.argmax(y)
    heights = band[np.isclose(band[:, 0], x[middle]), 1]
    assert heights.min() < y[middle] < heights.max()


def test_members_average_to_the_model(averaged):
    model, _ = averaged
    v = np.random.default_rng(0).normal(size=(20, 2))
    mean = np.mean([np.exp(part.log_prob(v)) for part in members(model)], axis=0)
    assert np.allclose(np.log(mean), model.score_samples(v))


def test_members_of_an_ensemble_of_flows(flow):
    """A model whose density is an ensemble shows a band, and the histories of all its flows."""
    model, w = flow
    pair = copy.copy(model)
    other = FlowDeconvolver(epochs=3, hidden=8, random_state=1).fit(w, noise=SD)
    both = Ensemble([model.density_.density, other.density_.density])
    pair.density_ = Restored(both, model.standardiser_)
    pair.histories_ = [model.history_.as_dict(), other.history_.as_dict()]
    assert len(members(pair)) == 2
    assert len(plots.marginals(pair)[0].collections) == 1
    ax = plots.history(pair)
    assert len(ax.get_legend().get_texts()) == 3
    assert len(ax.lines) == 6


def test_a_single_model_has_no_band(flow):
    model, w = flow
    axes = plots.marginals(model, w)
    assert not axes[0].collections
    x, y = axes[0].lines[0].get_data()
    assert abs(np.trapezoid(y, x) - 1) < 0.05


def test_axes_can_be_given(averaged):
    model, _ = averaged
    _, given = plt.subplots(1, 2)
    assert plots.marginals(model, axes=given)[1] is given[1]
    with pytest.raises(ValueError, match="Expected 2 axes; got 1"):
        plots.marginals(model, axes=given[0])
    with pytest.raises(ValueError, match="Expected 2 names; got 1"):
        plots.marginals(model, names=["a"])


def test_history(averaged, flow):
    bounds = plots.history(averaged[0]).lines[0].get_ydata()
    assert np.array_equal(bounds, averaged[0].lower_bounds_)
    ax = plots.history(flow[0])
    assert len(ax.lines[0].get_ydata()) == 3
    with pytest.raises(ValueError, match="Expected a model with a history"):
        plots.history(object())


def heights(ax):
    return ax.patches[-1].get_xy()[:, 1]


def test_ranks_are_flat_for_the_truth_only(averaged):
    model, w = averaged
    grid = plots.diagnostics(model, w, SD, effective_sample_size=np.full(50, 40.0))
    assert grid.shape == (2, 3)
    right = heights(grid[1, 0]).max()
    wrong = heights(plots.diagnostics(model, w, 20 * SD)[1, 0]).max()
    assert right < 45  # 400 rows in 20 bins: 20 each, 45 is beyond five standard deviations
    assert wrong > 60


def test_missing_values(averaged):
    model, w = averaged
    w = w.copy()
    w[:100, 0] = np.nan
    grid = plots.diagnostics(model, w, SD)
    assert abs(heights(grid[1, 0])[1:-1:2].sum() - 300) < 1
    assert plots.marginals(model, w) is not None


@pytest.mark.parametrize("dim", [1, 2])
def test_corner_of_few_dimensions(dim, rng):
    w, v = rng.normal(size=(100, dim)), rng.normal(size=(500, dim))
    drawn = PosteriorSamples(v[None, :300], v[:1], np.eye(dim)[None], np.ones(1))
    names = ["odd name", "b"][:dim]
    figure = plots.corner_figure(w, v, names=names, posterior=drawn, rows=[4], errors=w[:1] ** 2)
    assert len(figure.axes) == dim**2
    panel = figure.axes[0 if dim == 1 else 2]
    assert any(np.array_equal(line.get_xdata(), v[:300, 0]) for line in panel.lines)
