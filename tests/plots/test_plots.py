"""Pictures return axes, and show what the model says."""

import copy

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import toy
from scipy.stats import norm

from deconflow import XDGMM, FlowDeconvolver, GaussianMixture, plots
from deconflow.densities import Ensemble
from deconflow.estimators import MixtureFit, Replicates, WeightedFit
from deconflow.estimators.saved_candidates import members_of
from deconflow.mixtures import mix
from deconflow.plots.curves import _steady

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
    mixture = model.marginal(["v1"]).mixture
    sd = np.sqrt(mixture.covariances[:, 0, 0])
    assert np.allclose(y, norm.pdf(x[:, None], mixture.means[:, 0], sd) @ mixture.weights)


def test_the_band_holds_the_average(averaged):
    model, _ = averaged
    assert len(model.density_.averaged()) == 3
    ax = plots.marginals(model)[0]
    band = ax.collections[0].get_paths()[0].vertices
    x, y = ax.lines[0].get_data()
    middle = np.argmax(y)
    heights = band[np.isclose(band[:, 0], x[middle]), 1]
    assert heights.min() < y[middle] < heights.max()
    expected = model.band([x[middle]], column=0)
    assert np.allclose([heights.min(), heights.max()], [expected.lower[0], expected.upper[0]])
    texts = [text.get_text() for text in plots.marginals(model)[-1].get_legend().get_texts()]
    assert texts == ["deconvolved", "90 % band"]


def test_the_diagonal_of_a_corner_has_the_bands(averaged):
    model, w = averaged
    draws = model.sample(2000, random_state=0)
    figure = plots.corner_figure(w, draws, model=model)
    assert "90 % band" in texts_of(figure.axes[1])
    shaded = figure.axes[3].collections[0].get_paths()[0].vertices
    x = shaded[1, 0]
    heights = shaded[np.isclose(shaded[:, 0], x), 1]
    expected = model.band([x], column=1)
    assert np.allclose([heights.min(), heights.max()], [expected.lower[0], expected.upper[0]])
    assert figure.axes[3].get_ylim()[1] >= shaded[:, 1].max()
    single = XDGMM(1, random_state=0).fit(w, noise=SD)  # the twin: no replicates, no band
    bare = plots.corner_figure(w, draws, model=single)
    assert not bare.axes[3].collections
    assert "90 % band" not in texts_of(bare.axes[1])


def test_members_average_to_the_model(averaged):
    model, _ = averaged
    v = np.random.default_rng(0).normal(size=(20, 2))
    mean = np.mean([np.exp(part.log_prob(v)) for part in model.density_.averaged()], axis=0)
    assert np.allclose(np.log(mean), model.score_samples(v))


def test_members_of_an_ensemble_of_flows(flow):
    """A model whose density is an ensemble shows the histories of all its flows.

    Flows that differ by their start are no replicates: there is no band.
    """
    model, w = flow
    pair = copy.copy(model)
    other = FlowDeconvolver(epochs=3, hidden=8, random_state=1).fit(w, noise=SD)
    both = Ensemble([model.density_.density, other.density_.density])
    fit = model.density_
    pair._own_density = WeightedFit(both, fit.standardiser, fit.proposing, fit.names)
    pair.histories_ = [model.history_.as_dict(), other.history_.as_dict()]
    assert len(pair.density_.averaged()) == 2
    assert not plots.marginals(pair)[0].collections
    ax = plots.history(pair)
    assert len(ax.get_legend().get_texts()) == 3
    assert len(ax.lines) == 6


def test_a_single_model_has_no_band(flow):
    model, w = flow
    axes = plots.marginals(model, w)
    assert not axes[0].collections
    x, y = axes[0].lines[0].get_data()
    assert abs(np.trapezoid(y, x) - 1) < 0.05


class Chosen:
    """What a Deconvolver that chose XD shows of itself."""

    def __init__(self):
        rng = np.random.default_rng(0)
        parts = [
            GaussianMixture(np.array([0.4, 0.6]), rng.normal(size=(2, 1)), np.ones((2, 1, 1)))
            for _ in range(3)
        ]
        self.density_ = MixtureFit(parts, ["v0"])
        self.density_.replicates = Replicates(self.density_.averaged())
        self.selection_ = {
            "n_components": np.array([1, 2, 4, 2]),
            "floor": np.array([0.1, 0.1, 0.1, 0.2]),
            "behind_best": np.array([0.3, 0.0, 0.1, 0.05]),
            "behind_best_se": np.array([0.1, 0.0, 0.1, 0.02]),
        }

    def sample(self, n, random_state=None):
        return self.density_.sample(n, random_state)


def test_a_choice_of_xd_has_a_band_and_shows_what_it_chose_from():
    ax = plots.marginals(Chosen())[0]
    assert [text.get_text() for text in ax.get_legend().get_texts()][-1] == ("90 % band")
    x, y = ax.lines[0].get_data()
    assert np.allclose(y, np.exp(Chosen().density_.log_prob(x[:, None])))
    ax = plots.history(Chosen())
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "2", "4"]
    points = [bars.lines[0].get_ydata() for bars in ax.containers]
    assert [list(y) for y in points] == [[-0.3, 0.0, -0.1], [-0.05]]


def test_an_average_of_what_was_compared_shows_the_comparison(rng):
    model = XDGMM([1, 2], n_average=3, average_over="folds", random_state=0)
    ax = plots.history(model.fit(rng.normal(size=(60, 1)), noise=0.3))
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "2"]
    np.testing.assert_allclose(
        ax.containers[0].lines[0].get_ydata(), -model.selection_["behind_best"]
    )


def test_an_average_is_taken_apart(rng):
    """Of models of version 0.1, which do not say how large the members of their average are."""
    parts = [
        GaussianMixture(
            rng.dirichlet(np.ones(k)), rng.normal(size=(k, 2)), np.tile(np.eye(2), (k, 1, 1))
        )
        for k in (1, 4, 2)
    ]
    for sizes in (None, [1, 4, 2]):
        for part, found in zip(parts, members_of(mix(parts), sizes, 3), strict=True):
            assert np.allclose(part.weights, found.weights)
            assert np.array_equal(part.means, found.means)
    moved = parts[1].in_units([1.0, 2.0], [3.0, 0.5])
    v = rng.normal(size=(5, 2))
    assert np.allclose(moved.log_prob(v * [3, 0.5] + [1, 2]) + np.log(1.5), parts[1].log_prob(v))


def test_axes_can_be_given(averaged):
    model, _ = averaged
    _, given = plt.subplots(1, 2)
    assert plots.marginals(model, axes=given)[1] is given[1]
    with pytest.raises(ValueError, match="Expected 2 axes; got 1"):
        plots.marginals(model, axes=given[0])
    with pytest.raises(ValueError, match="Expected 2 names; got 1"):
        plots.marginals(model, names=["a"])


BAD = {
    "no model": (
        lambda model: plots.marginals(np.zeros((3, 2))),
        "Expected model as .* got ndarray",
    ),
    "no model, checks": (lambda model: plots.diagnostics(3, [[1.0, 2.0]], 0.1), "Expected model"),
    "one axis": (lambda model: plots.marginals(model, np.zeros(3)), r"w of shape \(N, 2\).*\(3,\)"),
    "another width": (lambda model: plots.marginals(model, np.zeros((9, 3))), r"w of .*\(9, 3\)"),
    "no rows": (lambda model: plots.diagnostics(model, np.zeros((0, 2)), SD), "w of .* not empty"),
    "no columns": (
        lambda model: plots.corner_figure([[1.0]], np.zeros((9, 0))),
        "samples of shape",
    ),
    "text": (lambda model: plots.corner_figure([["a"]], [[1.0]]), "numbers in w; got 'a'"),
    "nothing to see": (
        lambda model: plots.marginals(model, [[1.0, np.nan], [2.0, 1e300]]),
        "values to draw in every column of w.* none in column 1",
    ),
    "a text as names": (lambda model: plots.marginals(model, names="ab"), "2 names; got 'ab'"),
    "no axes": (lambda model: plots.history(model, axes=3), "axes of matplotlib; got 3"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_drawn_is_refused(name, averaged):
    call, message = BAD[name]
    with pytest.raises((TypeError, ValueError), match=message):
        call(averaged[0])


def test_many_dimensions_are_wrapped():
    model = XDGMM(1, random_state=0).fit(np.random.default_rng(0).normal(size=(50, 5)), noise=0.1)
    axes = plots.marginals(model)
    assert len(axes) == 5
    assert len(axes[0].figure.axes) == 6
    assert {ax.get_subplotspec().rowspan.start for ax in axes} == {0, 1}


def test_history(averaged, flow):
    bounds = plots.history(averaged[0]).lines[0].get_ydata()
    assert np.array_equal(bounds, averaged[0].lower_bounds_)
    label = plots.history(averaged[0]).get_xlabel()
    assert label == "step of EM (one of the 3 fits averaged)"
    ax = plots.history(flow[0])
    assert len(ax.lines[0].get_ydata()) == 3
    with pytest.raises(ValueError, match="trained step by step; got a object"):
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


def test_noise_may_be_missing_where_a_value_is(averaged):
    model, w = averaged
    w, sd = w.copy(), np.tile(SD, (len(w), 1))
    w[:100, 0] = sd[:100, 0] = np.nan
    grid = plots.diagnostics(model, w, sd)
    assert abs(heights(grid[1, 0])[1:-1:2].sum() - 300) < 1
    assert heights(grid[1, 1]).max() < 45  # the other dimension keeps all of its rows
    sd[200, 1] = np.nan  # the twin: a value that was measured has noise
    with pytest.raises(ValueError, match="noise"):
        plots.diagnostics(model, w, sd)


def test_a_corner_shows_pairs_of_rows_that_lack_other_values(rng):
    w = rng.normal(size=(30, 3))
    w[np.arange(30), np.arange(30) % 3] = np.nan  # no row is complete
    figure = plots.corner_figure(w, rng.normal(size=(500, 3)), names=["$a", "b", "c"])
    panel = figure.axes[3]  # the second against the first
    shown = panel.lines[-1].get_xydata()
    assert np.isfinite(shown).all(1).sum() == 10
    assert figure.axes[6].get_xlabel() == r"\$a"


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("estimator", ["mixture", "flow"])
def test_corner_of_few_dimensions(dim, estimator, rng):
    """Draws are shown of every kind of posterior, exact or weighted."""
    w, v = rng.normal(size=(100, dim)), rng.normal(size=(500, dim))
    model = XDGMM(1) if estimator == "mixture" else FlowDeconvolver(epochs=1, hidden=8)
    drawn = model.set_params(random_state=0).fit(w, noise=0.5).posterior(w[[4]], noise=0.5)
    names = ["odd name", "b"][:dim]
    figure = plots.corner_figure(w, v, names=names, posterior=drawn, rows=[4], errors=w[:1] ** 2)
    assert len(figure.axes) == dim**2
    assert drawn.samples.shape == (1, 100, dim)
    if dim == 1:  # a curve around the mean of the posterior, which has the mass of one
        x, y = figure.axes[0].lines[1].get_data()
        assert abs(np.trapezoid(y, x) - 1) < 0.02
        assert abs(np.trapezoid(x * y, x) - drawn.mean[0, 0]) < 0.5 * drawn.sd[0, 0]
        assert "row 4, with its posterior" in texts_of(figure.axes[0])
        assert not any("sigma" in text for text in texts_of(figure.axes[0]))
    else:
        shown = [line.get_xdata() for line in figure.axes[2].lines]
        assert any(np.array_equal(x, drawn.samples[0, :, 0]) for x in shown)
        assert "row 4" in texts_of(figure.axes[1])


def test_marginals_that_are_estimates_are_drawn_without_their_chance():
    x = np.linspace(-3, 3, 200)
    curve = np.exp(-(x**2))
    noisy = curve * (1 + 0.02 * np.random.default_rng(0).normal(size=200))
    noisy[50] *= 8
    steady = _steady(noisy)
    assert abs(steady - curve).max() < 0.03
    assert abs(noisy - curve).max() > 0.5  # the twin


@pytest.fixture(scope="module")
def regressed():
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    v = np.column_stack([x, np.sin(x) + 0.2 * rng.normal(size=400)])
    sd = rng.uniform(0.1, 0.4, v.shape)
    w = v + sd * rng.normal(size=v.shape)
    model = XDGMM(3, floor=0.1, random_state=0).name_columns(["x", "$y"]).fit(w, noise=sd)
    return model, w, sd, model.regress("$y", on="x", w=w, noise=sd, n_refits=10)


def texts_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_a_regression_shows_rows_curve_band_and_line(regressed):
    _, w, sd, found = regressed
    ax = plots.regression(found, w, sd)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", r"\$y")
    assert texts_of(ax) == [
        "mean of \\$y", "its 90 % band", "16 to 84 % of the true values", "best line",
        "300 of 400 rows",
    ]  # fmt: skip
    lines = {line.get_label(): line for line in ax.lines}
    x, y = lines["mean of \\$y"].get_data()
    np.testing.assert_allclose(y, found.predict(x))
    x, y = lines["best line"].get_data()
    np.testing.assert_allclose(y, found.intercept + found.slope[0] * x)
    bars = ax.containers[0]
    shown = bars.lines[0].get_xydata()
    assert len(shown) == 300
    rows = [np.flatnonzero((w == point).all(1))[0] for point in shown]
    wide = [segment[1, 0] - segment[0, 0] for segment in bars.lines[2][0].get_segments()]
    np.testing.assert_allclose(wide, 2 * sd[rows, 0])
    band = next(c for c in ax.collections if c.get_label() == "its 90 % band")
    expected = found.band([x[50]])
    vertices = band.get_paths()[0].vertices
    heights = vertices[np.isclose(vertices[:, 0], x[50]), 1]
    ends = [expected.lower[0], expected.upper[0]]
    np.testing.assert_allclose([heights.min(), heights.max()], ends)


def test_a_regression_without_rows_or_errors(regressed):
    model, w, sd, _ = regressed
    _, given = plt.subplots()
    ax = plots.regression(model.regress(1, 0), axes=given, names=["a", "b"])
    assert ax is given
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "b")
    assert "its 90 % band" not in texts_of(ax)
    holes = w.copy()
    holes[:300, 0] = np.nan
    assert "measured" in texts_of(plots.regression(model.regress(1, 0), holes, sd))
    for wrong, message in (
        (lambda: plots.regression(model), "regression that regress gives; got XDGMM"),
        (lambda: plots.regression(model.regress(1, 0), w[:, :1], 0.1), "w with all columns"),
        (lambda: plots.regression(model.regress(1, 0), [[np.nan, 1], [1, np.nan]], 0.1), "both"),
        (lambda: plots.regression(model.regress(1, 0), level=2), "level"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            wrong()
