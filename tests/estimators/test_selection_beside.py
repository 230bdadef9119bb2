"""Selections beside other things that users say: refused by one line, or right."""

import numpy as np
import pandas as pd
import pytest

from deconflow import XDGMM, Efficiency, Observations, Selection, noise
from deconflow.measuring import as_rule, seen_rows
from deconflow.measuring.chances import Chances

N = 120
RNG = np.random.default_rng(0)
V = RNG.normal(size=(8 * N, 2))
SD = RNG.uniform(0.2, 0.6, V.shape)
W = V + SD * RNG.normal(size=V.shape)
SEEN = np.flatnonzero(W[:, 1] > 0)[:N]
W, SD = W[SEEN], SD[SEEN]
DATA = Observations.from_arrays(W, SD)


def rule(selection, data=DATA):
    return as_rule(selection, "measured", ["x", "y"], data)


BAD = {
    "zero everywhere": (lambda w: np.zeros(len(w)), "probability zero at all of them"),
    "more than one": (lambda w: np.full(len(w), 1.5), "between 0 and 1; got 1.5"),
    "not a number": (lambda w: np.full(len(w), np.nan), "between 0 and 1; got nan"),
    "of another shape": (lambda w: np.ones((len(w), 2)), "Expected selection to return shape"),
    "unknown column": ("g < 18", "with one of the columns w0"),
    "no condition": ("w0", "Expected selection as"),
    "no function": (3.0, "Expected selection as a function of points"),
    "rows outside": ("w0 > 1", "probability zero to be seen"),
    "columns not given": (
        lambda w, columns: np.ones(len(w)), "Expected columns for a selection that looks at them"
    ),
    "columns of other rows": (
        Selection(lambda w, columns: np.ones(len(w)), columns=np.ones(3)), "as w has; got 3"
    ),
    "another grid": (Efficiency([[0, 1]], [1.0]), "Expected an efficiency of 2 columns"),
}  # fmt: skip

FLAGS = np.where(np.arange(N)[:, None] % 5 == 0, [0, -1], 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"noise": noise.limited(SD, FLAGS)},
            "Expected no limits in place of values with a selection",
        ),
        (
            {"selection": lambda v, errors: errors[:, 0], "selection_of": "truth"},
            "Expected a function of points alone for a selection by the truth; got .* errors",
        ),
        ({"selection": Selection("w1 > 0", of="true")}, "Expected selection_of=.*; got 'true'"),
        ({"selection_of": "both"}, 'Expected selection_of="measured" or "truth"'),
        ({"selection": None, "selection_of": "truth"}, "Expected a selection with selection_of"),
        ({"selection": "w1 > 0 and w1 < 2 and w1 > 3"}, "lets some w1 through; got 'w1 > 0 and"),
        ({"selection": lambda w: ["seen"] * len(w)}, "Expected numbers in what selection returns"),
        *[({"selection": selection}, message) for selection, message in BAD.values()],
    ],
)
def test_refused_by_one_line(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        XDGMM(1).fit(**{"w": W, "noise": SD, "selection": "w1 > 0"} | arguments)


def test_columns_of_other_rows_are_refused():
    """A table of the selection with another index than that of ``w`` may be in another order."""
    table = pd.DataFrame(W, columns=["x", "y"])
    columns = pd.DataFrame({"z": W[:, 1]}).iloc[::-1]
    selection = Selection(lambda w, columns: np.ones(len(w)), columns=columns)
    with pytest.raises(ValueError, match="Expected columns with the index of w; got another"):
        XDGMM(1).fit(table, noise=SD, selection=selection)


def test_rows_without_weight_need_not_be_seen():
    weights = np.ones(N)
    weights[::3] = 0
    w = np.where(weights[:, None] > 0, W, -5.0)
    data = Observations.from_arrays(w, SD, weights=weights)
    assert rule("y > 0", data).ranges
    with pytest.raises(ValueError, match="probability zero to be seen"):
        rule("y > 0", Observations.from_arrays(w, SD))


def test_ranges_of_a_column_are_one():
    """Two ranges of a column are what lies in both, not a product of two chances."""
    points = np.column_stack([np.zeros(9), np.linspace(-1, 1, 9)])
    once = Chances(rule("0 < y < 9"), DATA, 0)(points)
    for text in ("y > 0 and y < 9", "y > 0 and y > -0.1 and y < 9"):
        np.testing.assert_allclose(Chances(rule(text), DATA, 0)(points), once)


@pytest.mark.parametrize(
    ("law", "share"),
    [
        (noise.gaussian(covariance=np.diag([0.16, 0.16])), 0.00621),  # 1 - Phi(1 / .4)
        (noise.laplace([0.4, 0.4]), 0.04104),  # exp(-1 / .4) / 2
    ],
    ids=["gaussian", "laplace"],
)
def test_small_chances_are_known_without_a_closed_form(law, share):
    """A truth that lies 1.0 outside is seen if noise carries it in.

    128 points that lie wider than the noise tell such chances within a third, whatever the seed;
    as many draws of the noise itself have one such draw or none for Gaussian noise.
    """
    data = Observations.from_arrays(W, law)
    found = [
        float(Chances(rule(lambda w: w[:, 1] > 0, data), data, seed)(np.array([[0.0, -1.0]]))[0])
        for seed in range(5)
    ]
    np.testing.assert_allclose(found, share, rtol=0.35)


@pytest.mark.parametrize(("scale", "shift"), [(2.0**-30, 0.0), (1.0, 2.0**22)])
def test_what_a_seen_row_says_does_not_depend_on_units(scale, shift):
    """Likelihoods of seen rows keep their widths for tiny values, and for ones far from zero."""
    plain = seen_rows(DATA, Chances(rule("y > 0"), DATA, 0))
    data = Observations.from_arrays(W * scale + shift, SD * scale)
    other = seen_rows(data, Chances(rule(f"y > {shift}", data), data, 0))
    np.testing.assert_allclose((other.w - shift) / scale, plain.w, atol=1e-5)
    np.testing.assert_allclose(
        other.noise.covariance() / scale**2, plain.noise.covariance(), rtol=1e-3, atol=1e-6
    )


def chance(v):
    """Rise from one in twenty to nearly all."""
    return 0.05 + 0.95 / (1 + np.exp(-3 * v[:, 1]))


@pytest.fixture(scope="module")
def model():
    return XDGMM(1, random_state=0).fit(W, noise=SD, selection=chance, selection_of="truth")


def test_a_regression_with_refits_knows_nothing_of_a_selection(model):
    with pytest.raises(ValueError, match="Expected no selection with"):
        model.regress(1, on=[0], w=W, noise=SD)


def test_unseen_rows_are_no_drift(model):
    """Unseen rows stand among the seen, so that the certificate finds no run of rows alike.

    The twin: rows of which the seen come first, and the unseen ones after them.
    """

    def order(found):
        return next(each.p for each in found.findings if each.check == "order")

    assert model.seen_share_ < 0.9  # at least one row in ten was not seen
    assert order(model.certify(W, noise=SD, selection=chance, selection_of="truth")) > 1e-3
    everything = np.concatenate([W, W - [0, 2]])
    twin = XDGMM(2, random_state=0).fit(everything, noise=np.concatenate([SD, SD]))
    assert order(twin.certify(everything, noise=np.concatenate([SD, SD]))) < 1e-3
