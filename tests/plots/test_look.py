"""What can be said of a picture's look: columns, axes, bins, size; units; colours."""

import matplotlib

matplotlib.use("Agg")

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from deconflow import XDGMM
from deconflow.plots.axis import Axis, span
from deconflow.plots.style import COLOURS, DATA, DENSITY, MARKERS, OF_BANDS, OF_BARS, SECOND
from deconflow.plots.words import bare, typeset


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def stars():
    rng = np.random.default_rng(0)
    w = np.column_stack([rng.normal(size=300), rng.lognormal(size=300), rng.normal(15, 1, 300)])
    return XDGMM(1).name_columns(["x", "flux", "mag"]).fit(w, noise=0.1), w


def test_columns_ranges_logarithms_and_inverted_axes(stars):
    model, w = stars
    axes = model.plot(
        "marginals", w, columns=["mag", "flux"], invert="mag", log=["flux"], bins=17,
        range={"mag": (None, 18)}, size=(5, 2), dpi=50, title="$x^2$",
    )  # fmt: skip
    assert [ax.get_xlabel() for ax in axes] == ["mag", "flux"]
    left, right = axes[0].get_xlim()
    assert left == 18
    assert 10 < right < 14
    assert axes[1].get_xscale() == "log"
    assert len(axes[0].patches[0].get_data().values) == 17
    figure = axes[0].figure
    assert tuple(figure.get_size_inches()) == (5, 2)
    assert figure.dpi == 50
    assert figure.get_suptitle() == "$x^2$"


def test_densities_along_logarithmic_axes_are_per_decade(stars):
    """So that areas are shares, as they are along the others."""
    model, w = stars
    ax = model.plot("marginals", w, columns="flux", log="flux", range={"flux": (1e-4, 1e4)})[0]
    x, y = ax.lines[0].get_data()
    assert ax.get_ylabel() == "density per decade"
    mass = np.exp(model.marginal("flux").log_prob(np.linspace(1e-4, 30, 4000)[:, None])).sum()
    assert abs(np.trapezoid(y, np.log10(x)) - mass * 30 / 4000) < 0.01
    heights, edges, _ = ax.patches[0].get_data()
    assert abs((heights * np.diff(np.log10(edges))).sum() - (w[:, 1] > 1e-4).mean()) < 1e-9


BAD = {
    "keyword": ({"colour": "red"}, "Expected keywords among columns, range.* got 'colour'"),
    "column": ({"columns": ["z"]}, "Expected columns= among x, flux, mag.* got 'z'"),
    "range of what": ({"range": (0, 1)}, r"Expected range= as \{column: .*got \(0, 1\)"),
    "backwards": ({"range": {"x": (2, 1)}}, r"range= of 'x' as two numbers, the lower .*\(2, 1\)"),
    "no end": ({"range": {"x": (0, np.inf)}}, "range= of 'x' as two numbers"),
    "one number": ({"range": {"x": 3}}, "range= of 'x' as two numbers.* got 3"),
    "not shown": ({"columns": "x", "range": {"mag": (0, 1)}}, "range= of columns that are shown"),
    "log of none": ({"columns": "x", "log": "mag"}, "log= of columns that are shown; got 'mag'"),
    "log from zero": ({"log": "flux", "range": {"flux": (0, 1)}}, "range= of 'flux' above 0"),
    "nothing there": ({"range": {"x": (50, None)}}, "range= of 'x' that holds some values"),
    "bins": ({"bins": 0}, "bins= as a whole number of at least 1; got 0"),
    "many bins": ({"bins": 10**9}, "bins= in"),
    "dpi": ({"dpi": "high"}, "dpi= in .* got 'high'"),
    "size": ({"size": (0, 3)}, r"size= as width and height.* got \(0, 3\)"),
    "title": ({"title": r"$\nonsense$"}, "title= as text that can be set"),
    "rows": ({"rows": [1]}, r"no rows= for a picture of kind marginals; got \[1\]"),
    "kind": ({"kind": "pie"}, "kind"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_makes_no_sense_is_refused(stars, name):
    model, w = stars
    options, message = BAD[name]
    with pytest.raises((TypeError, ValueError), match=message):
        model.plot(**{"kind": "marginals", "w": w, **options})


def test_axes_that_are_given_keep_their_figure(stars):
    model, _ = stars
    _, ax = plt.subplots()
    (drawn,) = model.plot(columns="x", axes=ax, title="here")
    assert drawn is ax
    assert ax.get_title() == "here"
    with pytest.raises(ValueError, match=r"no size= beside axes=.* got \(3, 3\)"):
        model.plot(columns="x", axes=ax, size=(3, 3))
    with pytest.raises(ValueError, match="no log= for a picture of kind history"):
        model.plot("history", log="x")


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
def test_units_are_set(label, expected):
    pytest.importorskip("astropy")
    assert typeset(label) == expected
    assert bare(label) == label.split(" [")[0]
    figure, ax = plt.subplots(figsize=(1, 1), dpi=20)
    ax.set_xlabel(typeset(label))
    figure.canvas.draw()


def test_a_model_knows_its_units(stars):
    units = pytest.importorskip("astropy.units")
    table = pytest.importorskip("astropy.table")
    w = table.QTable([stars[1][:, 0] * units.mas / units.yr], names=["pm"])
    model = XDGMM(1).fit(w, noise=[0.1])
    for look in ({}, {"range": {"pm": (-1, 1)}}, {"range": {"pm [mas / yr]": (-1, 1)}}):
        ax = model.plot("marginals", w, **look)[0]
        assert ax.get_xlabel() == r"pm [$\mathrm{mas\,yr^{-1}}$]"


def test_a_long_tail_does_not_hide_the_peak():
    """Parallaxes of a survey, say: most at one, some at a hundred."""
    rng = np.random.default_rng(0)
    values = rng.lognormal(0, 0.5, 5000)
    values[:50] *= 100
    low, high = span(values)
    assert low < np.quantile(values, 0.02)
    assert np.quantile(values, 0.975) < high < 8  # the outermost of a percent are at 100 and more
    heights, edges = Axis(0, "x", (low, high)).histogram(values)
    assert ((edges[1:] > 0.5) & (edges[:-1] < 2)).sum() > 10
    assert abs((heights * np.diff(edges)).sum() - (values <= high).mean()) < 1e-9
    few = np.concatenate([rng.normal(size=900), rng.normal(20, 1, size=100)])  # the twin
    assert span(few)[1] > 21


def test_few_values_are_ticks_and_counts_have_a_bar_each(stars):
    model, w = stars
    ax = model.plot("marginals", w[:5], columns="x")[0]
    assert not ax.patches
    assert np.array_equal(ax.lines[-1].get_xdata(), w[:5, 0])
    counts = np.repeat([0.0, 1.0, 2.0, 5.0], 20)
    heights, edges = Axis(0, "n", (-0.4, 6.2)).histogram(counts)
    assert np.allclose(edges, np.arange(-0.5, 7))
    assert np.allclose(heights, [0.25, 0.25, 0.25, 0, 0, 0.25, 0])


def test_a_curve_of_draws_has_their_mass_and_keeps_narrow_peaks():
    rng = np.random.default_rng(0)
    draws = np.concatenate([rng.normal(-3, 0.2, 5000), rng.normal(3, 1, 5000)])
    x, y = Axis(0, "x", (-8.0, 8.0)).curve_of_draws(draws)
    assert abs(np.trapezoid(y, x) - 1) < 0.01
    peak = 0.5 / (0.2 * np.sqrt(2 * np.pi))  # a kernel of the spread of all would halve it
    assert abs(y.max() / peak - 1) < 0.15


def lightness(colour, alpha=1.0):
    """L* of a colour on white paper, as a printer without colours shows it."""
    rgb = 1 - alpha * (1 - np.array(to_rgb(colour)))
    luminance = linear(rgb) @ [0.2126, 0.7152, 0.0722]
    return 116 * np.cbrt(luminance) - 16 if luminance > 0.008856 else 903.3 * luminance


def linear(rgb):
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def test_colours_can_be_told_apart_in_grey():
    """Lightness runs from 0 to 100; a difference of 10 is seen at once."""
    surfaces = [lightness(DATA, OF_BARS), lightness(DENSITY, OF_BANDS)]
    together = [*surfaces, lightness(DENSITY), lightness(SECOND)]
    assert min(abs(a - b) for a, b in itertools.combinations(together, 2)) > 12
    rows = [lightness(colour) for colour in COLOURS]
    assert min(abs(a - b) for a, b in itertools.pairwise(rows)) > 10
    assert max(rows) < 80  # and all of them from the paper
    assert len(set(MARKERS)) == len(MARKERS) > len(COLOURS)
    default = [lightness(f"C{i}") for i in range(4)]  # the twin: matplotlib's own
    assert min(abs(a - b) for a, b in itertools.pairwise(default)) < 10


BLINDNESS = {
    "protanopia": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "deuteranopia": [
        [0.3673, 0.8606, -0.2280],
        [0.2801, 0.6725, 0.0474],
        [-0.0118, 0.0429, 0.9689],
    ],
    "tritanopia": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}
"""What becomes of linear colours: Machado, Oliveira and Fernandes (2009), at full severity."""


def lab(linear_rgb):
    """Colours in CIE L*a*b*, where distances are those that eyes see."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.clip(linear_rgb, 0, 1) @ np.transpose(to_xyz) / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.stack(
        [116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1
    )


def nearest(colours, blindness):
    seen = lab(linear(np.array([to_rgb(c) for c in colours])) @ np.transpose(BLINDNESS[blindness]))
    return min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))


@pytest.mark.parametrize("blindness", BLINDNESS)
def test_colours_can_be_told_apart_by_the_colour_blind(blindness):
    """Ten is a difference that is seen at a glance, 2.3 one that is just seen."""
    assert nearest([DENSITY, *COLOURS], blindness) > 10
    assert nearest(["#d62728", "#8c564b", "#2ca02c", "#bcbd22"], "deuteranopia") < 10  # the twin
