"""Axes that suit the values, labels with units, and colours that all readers can tell apart."""

import numpy as np
import pytest

from deconflow.plots.drawing import Axis, bare, span, typeset


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
