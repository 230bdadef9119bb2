"""Pictures by their names, and what they show: rows, before and after, corners of some columns."""

import matplotlib

matplotlib.use("Agg")

import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from deconflow import XDGMM, noise, plots
from deconflow.plots.corners import MOST_COLUMNS
from deconflow.program.plot import KINDS

SD = 0.5


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(400, 2)) * [1, 2] + SD * rng.normal(size=(400, 2))
    return XDGMM(1).name_columns(["x", "y"]).fit(w, noise=SD), w


def texts_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_the_program_knows_all_kinds():
    assert sorted(KINDS) == sorted(plots.KINDS)


@pytest.mark.parametrize("kind", plots.KINDS)
def test_every_kind_takes_axes_and_returns_them(fitted, kind):
    model, w = fitted
    rows = [3, 17, 40] if kind in ("row", "corner") else []
    shape = {
        "corner": (2, 2), "marginals": (2,), "row": (3, 2), "before_after": (3,),
        "diagnostics": (2, 2), "history": (),
    }[kind]  # fmt: skip
    arguments = {} if kind == "history" else {"w": w, "noise": SD}
    axes = model.plot(kind, **arguments, rows=rows)
    assert np.shape(axes) == shape
    _, given = plt.subplots(*np.atleast_2d(axes).shape, squeeze=False)
    again = model.plot(kind, **arguments, rows=rows, axes=given)
    assert all(a is b for a, b in zip(np.ravel(again), given.ravel(), strict=True))


def test_a_row_shows_measurement_prior_and_posterior(fitted):
    model, w = fitted
    axes = model.plot("row", w, SD, rows=[17])
    assert axes[0, 0].get_ylabel() == "row 17: density"
    assert texts_of(axes[0, 1]) == ["prior", "posterior", "measured"]
    lines = {line.get_label(): line for line in axes[0, 1].lines}
    x, prior = lines["prior"].get_data()
    assert np.allclose(prior, np.exp(model.marginal("y").log_prob(x[:, None])))
    answer = model.posterior(w[[17]], noise=SD)
    x, y = lines["posterior"].get_data()
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
    axes = model.plot("row", far, SD, rows=[400])
    assert axes[0, 0].get_xlim()[1] > 30
    assert not axes[0, 1].containers  # nothing was measured
    fixed = model.plot("row", far, SD, rows=[400], range={"x": (-3, 3)})
    assert fixed[0, 0].get_xlim() == (-3, 3)


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
    answer = model.posterior(w[:1], noise=0.3)
    share = answer.probability_of_atoms[0, 0]
    assert f"posterior: {100 * share:.0f} % at 0" in texts_of(ax)
    x, y = next(line for line in ax.lines if line.get_label() == "posterior").get_data()
    assert abs(np.trapezoid(y, x) - (1 - share)) < 0.01


def heights_at(ax, label, points):
    line = next(line for line in ax.lines if line.get_label() == label)
    return np.interp(points, *line.get_data())


def test_the_truth_measured_again_looks_like_the_data(fitted):
    """By the closed form: the density of the truth, widened by the noise."""
    model, w = fitted
    (ax,) = model.plot("before_after", w, SD, columns="x")
    points = np.linspace(-2, 2, 9)
    sd = np.sqrt(model.covariances_[0, 0, 0] + SD**2)
    expected = np.exp(-0.5 * ((points - model.means_[0, 0]) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
    found = heights_at(ax, "deconvolved, measured again", points)
    assert np.allclose(found, expected, atol=0.02)  # 20,000 draws in bins of a tenth: 0.01
    assert abs(heights_at(ax, "deconvolved", points) - expected).max() > 0.03  # the twin
    heights, edges, _ = ax.patches[0].get_data()
    assert abs((heights * np.diff(edges)).sum() - 1) < 0.02


def test_two_columns_are_shown_as_points(fitted):
    model, w = fitted
    holes = w.copy()
    holes[:100, 0] = np.nan
    axes = model.plot("before_after", holes, SD, invert="y")
    assert [ax.get_title() for ax in axes] == [
        "measured", "deconvolved", "deconvolved, measured again",
    ]  # fmt: skip
    clouds = [ax.lines[0].get_xydata() for ax in axes]
    counts = [int(np.isfinite(cloud).all(1).sum()) for cloud in clouds]
    assert counts == [300, 300, 300]
    spread = [np.nanstd(cloud[:, 0]) for cloud in clouds]
    assert spread[1] < 0.95 * spread[0]
    assert abs(spread[2] / spread[0] - 1) < 0.15  # three hundred values: 4 % each
    assert axes[0].get_ylim()[0] > axes[0].get_ylim()[1]


def test_counts_are_compared_bar_by_bar():
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(9, 1, size=(200, 1))).astype(float)
    model = XDGMM(1).fit(counts, noise=noise.poisson())
    (ax,) = model.plot("before_after", counts, noise.poisson())
    measured, again = (patch.get_data() for patch in ax.patches[::-1])
    assert np.array_equal(measured.edges, again.edges)
    assert np.allclose(np.diff(measured.edges), 1)


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


def test_a_corner_of_one_column_has_curves_and_no_contours(fitted):
    model, w = fitted
    ((ax,),) = model.plot("corner", w, SD, rows=[17], columns="y")
    assert texts_of(ax) == ["deconvolved", "measured", "row 17, with its posterior"]
    x, y = ax.lines[0].get_data()
    assert np.allclose(y, np.exp(model.marginal("y").log_prob(x[:, None])))


def test_a_corner_with_logarithmic_axes():
    rng = np.random.default_rng(0)
    w = rng.lognormal(size=(300, 2))
    model = XDGMM(2, random_state=0).fit(w, noise=0.1)
    axes = model.plot("corner", w, log=[0, 1])
    assert axes[1, 0].get_xscale() == axes[1, 0].get_yscale() == axes[0, 0].get_xscale() == "log"


MISSING = {
    "no rows named": (("row",), {"rows": []}, "rows= with numbers of rows"),
    "no such row": (("row",), {"rows": [400]}, "rows= below 400, the number of rows; got 400"),
    "half a row": (("row",), {"rows": [1.5]}, "rows= as a whole number"),
    "no noise": (("before_after",), {"noise": None}, "noise for a picture of kind before_after"),
    "no data": (("corner",), {"w": None, "noise": None}, "w for a picture of kind corner"),
}


@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_is_said(fitted, name):
    model, w = fitted
    arguments, options, message = MISSING[name]
    with pytest.raises(ValueError, match=message):
        model.plot(*arguments, **{"w": w, "noise": SD, **options})


def test_what_cannot_be_simulated_again_is_refused(fitted):
    model, w = fitted
    x = np.linspace(-1, 1, 400)[:, None]
    given = XDGMM(1).fit(w, noise=SD, given=x)
    with pytest.raises(ValueError, match="without covariates for a picture of kind before_after"):
        given.plot("before_after", w, SD, given=x)
    limits = np.zeros(w.shape)
    limits[0] = 1
    with pytest.raises(ValueError, match="without limits for a picture of kind diagnostics"):
        model.plot("diagnostics", w, SD, limits=limits)
    with pytest.raises(Exception, match="not fitted"):
        XDGMM(1).plot()


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


@pytest.mark.parametrize("kind", ["marginals", "corner"])
def test_measurements_of_other_columns_or_units_are_not_drawn(kind):
    """Negative twin: those of the fit are."""
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 2)), columns=["x", "y"])
    model = XDGMM(1).fit(table, noise=SD)
    model.plot(kind, table)
    with pytest.raises(ValueError, match="Expected the columns x, y, in this order; got y, x"):
        model.plot(kind, table[["y", "x"]])
    u = pytest.importorskip("astropy.units")
    astropy = pytest.importorskip("astropy.table")
    units = astropy.QTable({"x": table["x"].to_numpy() * u.km, "y": table["y"].to_numpy() * u.s})
    model = XDGMM(1).fit(units, noise=SD)
    model.plot(kind, units)
    units["x"] = units["x"].to(u.m)
    with pytest.raises(ValueError, match="Expected column 'x' in km, as in the fit; got m"):
        model.plot(kind, units)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"noise": SD}, "Expected w beside noise; got none"),
        ({"given": [1.0]}, "Expected w beside given; got none"),
        ({"limits": [[0, 0]]}, "Expected w beside limits; got none"),
        ({"w": [[0.0, 1.0]], "given": [1.0]}, "Expected noise beside given; got none"),
        ({"kind": "row", "rows": None}, "Expected rows= as a whole number .*; got None"),
        ({"kind": "row", "rows": slice(2)}, "Expected rows= as a whole number .*; got slice"),
    ],
)
def test_what_cannot_be_used_is_said(fitted, arguments, message):
    with pytest.raises(ValueError, match=message):
        fitted[0].plot(**arguments)


def test_limits_are_not_drawn_as_measurements(fitted):
    model, w = fitted
    flags = np.zeros((10, 2), dtype=int)
    flags[1:, 0] = -1
    flags[:9, 1] = 1
    with pytest.raises(ValueError, match="Expected values to draw in every column"):
        model.plot("marginals", w[:9], limits=flags[:9])
    model.plot("marginals", w[:10], limits=flags)


def test_a_row_may_have_a_number_of_numpy(fitted):
    model, w = fitted
    assert model.plot("row", w, SD, rows=np.int64(3)).shape == (1, 2)


def test_diagnostics_of_rows_with_missing_values(fitted):
    model, w = fitted
    some = np.where(np.arange(400)[:, None] % 2 * [1, 0], np.nan, w)
    ranks = model.plot("diagnostics", some, SD)[1]
    tops = [ax.patches[-1].get_xy()[:, 1].max() for ax in ranks]
    assert tops[0] < tops[1]  # half of the values of the first column are there


def test_diagnostics_with_missing_values_are_those_by_hand(fitted):
    model, w = fitted
    w = w.copy()
    w[:100, 0] = np.nan
    by_name, by_hand = model.plot("diagnostics", w, SD), plots.diagnostics(model, w, SD)
    for one, other in zip(by_name[1], by_hand[1], strict=True):
        assert np.array_equal(one.patches[-1].get_xy(), other.patches[-1].get_xy())


def test_a_corner_of_very_many_columns_is_refused():
    w = np.random.default_rng(0).normal(size=(60, MOST_COLUMNS + 1))
    model = XDGMM(1).fit(w, noise=0.5)
    with pytest.raises(ValueError, match="Expected at most 12 columns for a corner; got 13"):
        model.plot("corner", w)
    assert model.plot("corner", w, columns=[0, 12]).shape == (2, 2)
