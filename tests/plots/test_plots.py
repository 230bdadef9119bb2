"""Pictures return axes, and show what the model says."""

import matplotlib
import numpy as np
import pytest

from deconflow.plots.drawing import Axis, bare, span, typeset

matplotlib.use("Agg")

import re

import matplotlib.pyplot as plt
import pandas as pd
import toy

from deconflow import XDGMM, BayesianXDGMM, FlowDeconvolver, noise, plots
from deconflow.estimators.base import KINDS
from deconflow.plots.pictures import MOST_COLUMNS
from deconflow.program import plot as program

SD = 0.5
SHAPES = {
    "corner": (2, 2), "marginals": (2,), "row": (3, 2), "before_after": (3,), "diagnostics": (2, 2)
}  # fmt: skip


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(400, 2)) * [1, 2] + SD * rng.normal(size=(400, 2))
    return XDGMM(1).fit(w, noise=SD, names=["x", "y"]), w


@pytest.fixture(scope="module")
def flow():
    pytest.importorskip("torch")
    _, w = toy.draw(100, seed=0)
    return FlowDeconvolver(epochs=3, hidden=8, random_state=0).fit(w, noise=SD), w


@pytest.fixture(scope="module")
def banded(fitted):
    return BayesianXDGMM(2, random_state=0).fit(fitted[1], noise=SD)


def texts_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def line_of(ax, label):
    return next(line for line in ax.lines if line.get_label() == label)


def options_of(kind):
    return {"rows": [3, 17, 40]} if kind in ("row", "corner") else {}


def test_kinds_are_functions_and_the_program_knows_all():
    assert set(KINDS) == set(program.KINDS) == set(plots.__all__) == set(SHAPES)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_takes_axes_or_figure_keywords(kind, fitted):
    model, w = fitted
    axes = model.plot(kind, w, SD, **options_of(kind), figsize=(5, 4), dpi=50)
    assert axes.shape == SHAPES[kind]
    figure = axes.flat[0].figure
    assert (*figure.get_size_inches(), figure.dpi) == (5, 4, 50)
    _, given = plt.subplots(*np.atleast_2d(axes).shape, squeeze=False)
    again = model.plot(kind, w, SD, **options_of(kind), ax=given)
    assert all(a is b for a, b in zip(np.ravel(again), given.ravel(), strict=True))
    with pytest.raises(TypeError, match="no dpi with ax="):
        model.plot(kind, w, SD, **options_of(kind), ax=given, dpi=50)


def heights(ax):
    return ax.patches[-1].get_xy()[:, 1]


def test_marginals_of_a_mixture_are_exact(fitted):
    model, w = fitted
    axes = plots.marginals(model, w)
    assert [ax.get_xlabel() for ax in axes] == ["x", "y"]
    assert texts_of(axes[1]) == ["deconvolved", "measured"]
    x, y = axes[1].lines[0].get_data()
    assert np.allclose(y, np.exp(model.density_.marginal("y").log_prob(x[:, None])))
    assert plots.marginals(model).shape == (2,)


def test_bands_are_drawn_of_models_with_replicates(banded, fitted):
    w = fitted[1]
    for ax, legend in (
        (plots.marginals(banded)[1], plots.marginals(banded)[1]),
        (plots.corner(banded, w)[1, 1], plots.corner(banded, w)[0, 1]),
    ):
        shaded = ax.collections[0].get_paths()[0].vertices
        x = shaded[50, 0]
        ends = shaded[np.isclose(shaded[:, 0], x), 1]
        expected = banded.density_.band([x], column=1)
        assert np.allclose([ends.min(), ends.max()], [expected.lower[0], expected.upper[0]])
        assert "90 % band" in texts_of(legend)
    bare = plots.corner(fitted[0], w)  # the twin: no replicates, no band
    assert not bare[1, 1].collections
    assert "90 % band" not in texts_of(bare[0, 1])


def test_many_columns_are_wrapped_and_very_many_are_refused_in_a_corner():
    w = np.random.default_rng(0).normal(size=(60, MOST_COLUMNS + 1))
    model = XDGMM(1).fit(w, noise=0.5)
    axes = plots.marginals(model, columns=range(5))
    assert len(axes) == 5
    assert len(axes[0].figure.axes) == 6
    with pytest.raises(ValueError, match="Expected at most 12 columns for a corner; got 13"):
        model.plot("corner", w)
    assert model.plot("corner", w, columns=[0, 12]).shape == (2, 2)


def test_rows_of_a_corner_are_named_in_their_colours(fitted):
    model, w = fitted
    axes = model.plot("corner", w, SD, rows=[17, 3])
    legend = axes[0, 1].get_legend()
    named = dict(zip(texts_of(axes[0, 1]), legend.legend_handles, strict=True))
    shown = [bars.lines[0] for bars in axes[1, 0].containers]
    for name, line, row in zip(("row 17", "row 3"), shown, (17, 3), strict=True):
        assert named[name].get_color() == line.get_color()
        assert named[name].get_marker() == line.get_marker()
        assert line.get_xydata().tolist() == [w[row].tolist()]
    assert shown[0].get_color() != shown[1].get_color()


@pytest.mark.parametrize("kind", ["fitted", "flow"])
def test_a_corner_of_one_column_has_curves_of_posteriors(kind, request):
    """Drawn in closed form, or of smoothed draws."""
    model, w = request.getfixturevalue(kind)
    ((ax,),) = model.plot("corner", w, SD, rows=[17], columns=[1])
    assert texts_of(ax) == ["deconvolved", "measured", "row 17, with its posterior"]
    x, y = ax.lines[1].get_data()
    answer = model.posterior(w[[17]], noise=SD, n_samples=2000, random_state=0)
    assert abs(np.trapezoid(y, x) - 1) < 0.02
    assert abs(np.trapezoid(x * y, x) - answer.mean[0, 1]) < 0.1 * answer.sd[0, 1]


def test_a_corner_shows_pairs_of_rows_that_lack_other_values(rng):
    w = rng.normal(size=(300, 3))
    w[np.arange(300), np.arange(300) % 3] = np.nan  # no row is complete
    model = XDGMM(1, random_state=0).fit(w, noise=0.1)
    axes = plots.corner(model, w, names=["$a", "b", "c"])
    assert np.isfinite(axes[1, 0].lines[-1].get_xydata()).all(1).sum() == 100
    assert [axes[2, 0].get_xlabel(), axes[1, 0].get_ylabel()] == [r"\$a", "b"]


def test_a_row_shows_measurement_prior_and_posterior(fitted):
    model, w = fitted
    axes = model.plot("row", w, SD, rows=[17])
    assert axes[0, 0].get_ylabel() == "row 17: density"
    assert texts_of(axes[0, 1]) == ["prior", "posterior", "measured"]
    x, prior = line_of(axes[0, 1], "prior").get_data()
    assert np.allclose(prior, np.exp(model.density_.marginal("y").log_prob(x[:, None])))
    answer = model.posterior(w[[17]], noise=SD)
    x, y = line_of(axes[0, 1], "posterior").get_data()
    assert np.allclose(np.trapezoid(x * y, x), answer.mean[0, 1], atol=1e-3)
    variance = np.trapezoid((x - answer.mean[0, 1]) ** 2 * y, x)
    assert np.allclose(variance, answer.sd[0, 1] ** 2, rtol=1e-2)
    bars = axes[0, 1].containers[0]
    assert bars.lines[0].get_xdata() == [w[17, 1]]
    (segment,) = bars.lines[2][0].get_segments()
    assert np.allclose(segment[:, 0], [w[17, 1] - SD, w[17, 1] + SD])


def test_a_row_far_out_is_in_the_picture(fitted):
    model, w = fitted
    far = np.vstack([w, [[30.0, np.nan]]])
    axes = model.plot("row", far, SD, rows=np.int64(400))
    assert axes[0, 0].get_xlim()[1] > 30
    assert not axes[0, 1].containers  # nothing was measured


def test_rows_with_limits_and_atoms():
    rng = np.random.default_rng(1)
    w, limits = rng.normal(size=(200, 1)), np.zeros((200, 1))
    limits[:20] = -1
    model = XDGMM(1).fit(w, noise=SD, limits=limits)
    axes = model.plot("row", w, SD, limits=limits, rows=[0, 100])
    assert texts_of(axes[0, 0])[-1] == "an upper limit"
    assert texts_of(axes[1, 0])[-1] == "measured"
    zeros = np.where(rng.random((300, 1)) < 0.5, 0.0, 3 * rng.normal(size=(300, 1)))
    w = zeros + 0.3 * rng.normal(size=zeros.shape)
    model = XDGMM(1, atoms=[0.0]).fit(w, noise=0.3)
    ax = model.plot("row", w, 0.3, rows=[0])[0, 0]
    share = model.posterior(w[:1], noise=0.3).probability_of_atoms[0, 0]
    assert f"posterior: {100 * share:.0f} % at 0" in texts_of(ax)
    x, y = line_of(ax, "posterior").get_data()
    assert abs(np.trapezoid(y, x) - (1 - share)) < 0.01


def test_the_truth_measured_again_looks_like_the_data(fitted):
    """By the closed form: the density of the truth, widened by the noise."""
    model, w = fitted
    (ax,) = model.plot("before_after", w, SD, columns="x")
    points = np.linspace(-2, 2, 9)
    sd = np.sqrt(model.covariances_[0, 0, 0] + SD**2)
    expected = np.exp(-0.5 * ((points - model.means_[0, 0]) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
    found = np.interp(points, *line_of(ax, "deconvolved, measured again").get_data())
    assert np.allclose(found, expected, atol=0.02)  # 20,000 draws in bins of a tenth: 0.01
    before = np.interp(points, *line_of(ax, "deconvolved").get_data())
    assert abs(before - expected).max() > 0.03  # the twin
    bars, edges, _ = ax.patches[0].get_data()
    assert abs((bars * np.diff(edges)).sum() - 1) < 0.02


def test_two_columns_are_shown_as_points(fitted):
    model, w = fitted
    holes = w.copy()
    holes[:100, 0] = np.nan
    axes = model.plot("before_after", holes, SD)
    titles = [ax.get_title() for ax in axes]
    assert titles == ["measured", "deconvolved", "deconvolved, measured again"]
    clouds = [ax.lines[0].get_xydata() for ax in axes]
    assert [int(np.isfinite(cloud).all(1).sum()) for cloud in clouds] == [300, 300, 300]
    spread = [np.nanstd(cloud[:, 0]) for cloud in clouds]
    assert spread[1] < 0.95 * spread[0]
    assert abs(spread[2] / spread[0] - 1) < 0.15  # three hundred values: 4 % each


def test_counts_are_compared_bar_by_bar():
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(9, 1, size=(200, 1))).astype(float)
    model = XDGMM(1).fit(counts, noise=noise.poisson())
    (ax,) = model.plot("before_after", counts, noise.poisson())
    measured, again = (patch.get_data() for patch in ax.patches[::-1])
    assert np.array_equal(measured.edges, again.edges)
    assert np.allclose(np.diff(measured.edges), 1)


def test_ranks_are_flat_for_the_truth_only(fitted):
    model, w = fitted
    right = heights(plots.diagnostics(model, w, SD)[1, 0]).max()
    wrong = heights(plots.diagnostics(model, w, 20 * SD)[1, 0]).max()
    assert right < 45  # 400 rows in 20 bins: 20 each, 45 is beyond five standard deviations
    assert wrong > 60


def test_diagnostics_of_rows_with_missing_values(fitted):
    model, w = fitted
    w, sd = w.copy(), np.full(w.shape, SD)
    w[:100, 0] = sd[:100, 0] = np.nan
    grid = plots.diagnostics(model, w, sd)
    assert abs(heights(grid[1, 0])[1:-1:2].sum() - 300) < 1
    assert abs(heights(grid[1, 1])[1:-1:2].sum() - 400) < 1


def test_weighted_posteriors_have_their_sizes_in_the_diagnostics(flow):
    assert flow[0].plot("diagnostics", flow[1], SD).shape == (2, 3)


LIMITS = np.eye(400, 2)
BAD = {
    "not fitted": (lambda m, w: XDGMM(1).plot(), "not fitted"),
    "kind": (lambda m, w: m.plot("pie"), "kind to be one of"),
    "column": (lambda m, w: m.plot(columns="z"), "Expected columns= among x, y.* got 'z'"),
    "names": (lambda m, w: m.plot(names="ab"), "Expected 2 names; got 'ab'"),
    "few axes": (lambda m, w: m.plot(ax=plt.subplots()[1]), "Expected 2 axes as ax; got 1"),
    "no such word": (lambda m, w: m.plot(colour="red"), "colour"),
    "one axis": (lambda m, w: m.plot("marginals", w[0]), r"shape \(N, D\); got \(2,\)"),
    "another width": (lambda m, w: m.plot("marginals", w[:, [0, 1, 1]]), "2 columns.* got 3"),
    "no data": (lambda m, w: m.plot("corner"), "Expected numbers as w; got None"),
    "only noise": (lambda m, w: m.plot("marginals", noise=SD), "Expected numbers as w; got None"),
    "no noise": (lambda m, w: m.plot("before_after", w), "Expected noise.* got none"),
    "nothing to see": (lambda m, w: m.plot("marginals", w * [1, np.nan]), "none in column 1"),
    "all limits": (
        lambda m, w: m.plot("marginals", w, limits=np.ones((400, 2))), "none in column 0"
    ),
    "no rows": (lambda m, w: m.plot("row", w, SD, rows=[]), "rows= with numbers of rows"),
    "no such row": (lambda m, w: m.plot("row", w, SD, rows=[400]), "rows= below 400.* got 400"),
    "half a row": (lambda m, w: m.plot("row", w, SD, rows=[1.5]), "rows= as a whole number"),
    "limits again": (
        lambda m, w: m.plot("diagnostics", w, SD, limits=LIMITS),
        "without limits for a picture of kind diagnostics",
    ),
    "covariates": (
        lambda m, w: XDGMM(1).fit(w, noise=SD, given=w[:, 0]).plot("before_after", w, SD),
        "Expected no covariates with a picture of kind before_after",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_drawn_is_refused(name, fitted):
    call, message = BAD[name]
    with pytest.raises((TypeError, ValueError, AttributeError), match=message):
        call(*fitted)


@pytest.mark.parametrize("kind", ["marginals", "corner"])
def test_measurements_of_other_columns_or_units_are_not_drawn(kind):
    """Negative twin: those of the fit are, with their units."""
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 2)), columns=["x", "y"])
    model = XDGMM(1).fit(table, noise=SD)
    model.plot(kind, table)
    with pytest.raises(ValueError, match=r"Expected the columns x, y, as in the fit.* got y, x"):
        model.plot(kind, table[["y", "x"]])
    u = pytest.importorskip("astropy.units")
    astropy = pytest.importorskip("astropy.table")
    units = astropy.QTable({"x": table["x"].to_numpy() * u.km, "y": table["y"].to_numpy() * u.s})
    model = XDGMM(1).fit(units, noise=SD)
    labels = [ax.get_xlabel() for ax in np.ravel(model.plot(kind, units))]
    assert r"x [$\mathrm{km}$]" in labels
    units["x"] = units["x"].to(u.m)
    with pytest.raises(ValueError, match="Expected column 'x' in km, as in the fit; got m"):
        model.plot(kind, units)


def test_matplotlib_waits_for_the_first_picture(request):
    """Outside of the pictures nobody imports it at the top of a file."""
    source = request.config.rootpath / "src" / "deconflow"
    early = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(
            r"^(import|from) (matplotlib|corner|deconflow\.plots)\b", path.read_text(), re.M
        )
    ]
    assert early
    assert all(name.startswith("plots/") for name in early)


# -- axes that suit the values, labels with units, and colours that all readers can tell apart ----


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("pmra [mas.yr**-1]", r"pmra [$\mathrm{mas\,yr^{-1}}$]"),
        ("v [km s-1]", r"v [$\mathrm{km\,s^{-1}}$]"),
        ("m [solMass]", r"m [$\mathrm{M_{\odot}}$]"),
        ("score [points of 20]", "score [points of 20]"),
        ("x", "x"),
        ("cost$ [k$]", r"cost\$ [k\$]"),
    ],
)
def test_units_are_typeset(label, expected):
    pytest.importorskip("astropy")
    assert typeset(label) == expected
    assert bare(label) == label.split(" [")[0]


def test_a_long_tail_does_not_hide_the_peak():
    """Parallaxes of a survey, say: most at one, some at a hundred."""
    rng = np.random.default_rng(0)
    values = rng.lognormal(0, 0.5, 5000)
    values[:50] *= 100
    low, high = span(values)
    assert low < np.quantile(values, 0.02)
    assert np.quantile(values, 0.975) < high < 8  # the outermost of a percent are at 100 and more
    heights, edges = Axis(0, "x", low, high).histogram(values)
    assert ((edges[1:] > 0.5) & (edges[:-1] < 2)).sum() > 10
    assert abs((heights * np.diff(edges)).sum() - (values <= high).mean()) < 1e-9
    few = np.concatenate([rng.normal(size=900), rng.normal(20, 1, size=100)])  # the twin
    assert span(few)[1] > 21


def test_counts_have_a_bar_each():
    heights, edges = Axis(0, "n", -0.4, 6.2).histogram(np.repeat([0.0, 1.0, 2.0, 5.0], 20))
    assert np.allclose(edges, np.arange(-0.5, 7))
    assert np.allclose(heights, [0.25, 0.25, 0.25, 0, 0, 0.25, 0])


def test_a_curve_of_draws_has_their_mass_and_keeps_narrow_peaks():
    rng = np.random.default_rng(0)
    draws = np.concatenate([rng.normal(-3, 0.2, 5000), rng.normal(3, 1, 5000)])
    x, y = Axis(0, "x", -8.0, 8.0).curve_of_draws(draws)
    assert abs(np.trapezoid(y, x) - 1) < 0.01
    peak = 0.5 / (0.2 * np.sqrt(2 * np.pi))  # a kernel of the spread of all would halve it
    assert abs(y.max() / peak - 1) < 0.15
