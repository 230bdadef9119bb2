"""Axes that suit the values, labels with units, and colours that all readers can tell apart."""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from deconflow.plots.axis import Axis, span
from deconflow.plots.style import COLOURS, DATA, DENSITY, MARKERS, OF_BANDS, OF_BARS, SECOND
from deconflow.plots.words import bare, typeset


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
    counts = np.repeat([0.0, 1.0, 2.0, 5.0], 20)
    heights, edges = Axis(0, "n", -0.4, 6.2).histogram(counts)
    assert np.allclose(edges, np.arange(-0.5, 7))
    assert np.allclose(heights, [0.25, 0.25, 0.25, 0, 0, 0.25, 0])


def test_a_curve_of_draws_has_their_mass_and_keeps_narrow_peaks():
    rng = np.random.default_rng(0)
    draws = np.concatenate([rng.normal(-3, 0.2, 5000), rng.normal(3, 1, 5000)])
    x, y = Axis(0, "x", -8.0, 8.0).curve_of_draws(draws)
    assert abs(np.trapezoid(y, x) - 1) < 0.01
    peak = 0.5 / (0.2 * np.sqrt(2 * np.pi))  # a kernel of the spread of all would halve it
    assert abs(y.max() / peak - 1) < 0.15


def linear(rgb):
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lightness(colour, alpha=1.0):
    """L* of a colour on white paper, as a printer without colours shows it."""
    rgb = 1 - alpha * (1 - np.array(to_rgb(colour)))
    luminance = linear(rgb) @ [0.2126, 0.7152, 0.0722]
    return 116 * np.cbrt(luminance) - 16 if luminance > 0.008856 else 903.3 * luminance


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
