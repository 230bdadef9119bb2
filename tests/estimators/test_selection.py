"""Rows of which only some were seen: by what was measured, or by the truth."""

import numpy as np
import pandas as pd
import pytest

from deconflow import (
    XDGMM,
    BayesianXDGMM,
    Deconvolver,
    Efficiency,
    FlowDeconvolver,
    Observations,
    Selection,
    noise,
)
from deconflow.measuring import Chances, as_rule, seen_rows


def table(seed=0, n=800, sizes=(0.3, 0.9)):
    """Draw truths N(0.5, 1) with errors that differ; those measured above zero are seen."""
    rng = np.random.default_rng(seed)
    v = 0.5 + rng.normal(size=4 * n)
    sd = rng.uniform(*sizes, 4 * n)
    w = v + sd * rng.normal(size=4 * n)
    seen = np.flatnonzero(w > 0)[:n]
    return w[seen, None], sd[seen, None], len(seen) / (seen[-1] + 1)


def moments(model):
    drawn = model.sample(50_000, random_state=0)
    return drawn.mean(), drawn.std()


def step(w):
    return (w[:, 0] > 0).astype(float)


@pytest.mark.parametrize(
    "selection",
    ["w0 > 0", step, Efficiency([[-100.0, 0.0, 100.0]], [0.0, 1.0])],
    ids=["text", "function", "grid"],
)
def test_a_cut_is_undone(selection):
    """A Gaussian truth of which 35 % were not seen.

    Standard errors of mean and sd from 800 cut rows are about .08 (by 20 other seeds); the cut
    itself moves the mean by .5 and the sd by .35, as the twin shows.
    """
    w, sd, share = table()
    model = XDGMM(1, random_state=0).fit(w, noise=sd, selection=selection)
    mean, width = moments(model)
    assert abs(mean - 0.5) < 0.2
    assert abs(width - 1.0) < 0.15
    assert abs(model.seen_share_ - share) < 0.1  # follows mean and sd
    twin = XDGMM(1, random_state=0).fit(w, noise=sd)
    assert moments(twin)[0] > 0.8
    assert twin.seen_share_ == 1.0


@pytest.mark.parametrize(
    "model",
    [
        XDGMM("auto", random_state=0),
        BayesianXDGMM(random_state=0, n_chains=2, n_sweeps=60),
        pytest.param(Deconvolver(quick=True, random_state=0, n_jobs=1), marks=pytest.mark.slow),
        pytest.param(FlowDeconvolver(epochs=20, random_state=0), marks=pytest.mark.slow),
    ],
    ids=lambda model: type(model).__name__,
)
def test_every_estimator_takes_a_selection(model):
    """The cut moves the mean from .5 to 1.1; a free shape comes back less far than a Gaussian."""
    w, sd, _ = table(1, 800)
    model.fit(w, noise=sd, selection="w0 > 0")
    assert abs(moments(model)[0] - 0.5) < 0.35
    assert "unseen rows were simulated" in " ".join(model.known_)


def test_selection_by_the_truth_is_divided_out():
    """Truths N(0, 1) seen with a chance that rises from .1 to 1: the seen ones have mean .6.

    The standard error of the mean is about .05.
    """
    rng = np.random.default_rng(3)
    v = rng.normal(size=(6000, 1))

    def chance(points):
        return 0.1 + 0.9 / (1 + np.exp(-2 * points[:, 0]))

    v = v[rng.uniform(size=len(v)) < chance(v)]
    w = v + 0.5 * rng.normal(size=v.shape)
    bayes = BayesianXDGMM(random_state=0, n_chains=2, n_sweeps=60)
    for model in (XDGMM(2, random_state=0), bayes):
        model.fit(w, noise=[0.5], selection=chance, selection_of="truth")
        assert abs(moments(model)[0]) < 0.15
    twin = XDGMM(2, random_state=0).fit(w, noise=[0.5])
    assert moments(twin)[0] > 0.35


def test_unseen_rows_have_the_errors_that_they_should():
    """Large errors carry more rows across a limit, so that they are 61 % of the rows seen.

    Truths N(0, .7) with errors .2 or 1.2, half each, seen above .5. Two other seeds gave shares
    within .011 of the true one and means within .04. The twin takes all rows to have the large
    errors that most have.
    """
    rng = np.random.default_rng(0)
    v = 0.7 * rng.normal(size=6000)
    sd = np.where(rng.uniform(size=6000) < 0.5, 0.2, 1.2)
    w = v + sd * rng.normal(size=6000)
    seen = w > 0.5
    rows, errors = w[seen, None], sd[seen, None]
    model = XDGMM(1, random_state=0).fit(rows, noise=errors, selection="w0 > 0.5")
    assert abs(model.seen_share_ - seen.mean()) < 0.04
    assert abs(moments(model)[0]) < 0.15
    twin = XDGMM(1, random_state=0).fit(rows, noise=[1.2], selection="w0 > 0.5")
    assert abs(moments(twin)[0]) > 0.3 or abs(twin.seen_share_ - seen.mean()) > 0.04


def test_errors_of_unseen_rows_by_a_function():
    """Said to be as those seen, nothing changes but the draws."""
    w, _, _ = table(2, 600, sizes=(0.6, 0.6))

    def fitted(selection):
        return XDGMM(1, random_state=0).fit(w, noise=[0.6], selection=selection).seen_share_

    plain = fitted("w0 > 0")
    same = fitted(Selection("w0 > 0", errors=lambda v: np.full(v.shape, 0.6)))
    assert abs(same - plain) < 0.08
    with pytest.raises(ValueError, match="Expected errors of the selection to return shape"):
        fitted(Selection("w0 > 0", errors=lambda v: np.ones(3)))


@pytest.mark.slow
def test_a_rule_may_look_at_errors_and_other_columns():
    """Rows are seen if they lie five of their errors above a threshold of their own."""
    rng = np.random.default_rng(4)
    v, sd = 2 + rng.normal(size=(3000, 1)), rng.uniform(0.2, 0.5, (3000, 1))
    threshold = rng.uniform(0, 1, 3000)
    w = v + sd * rng.normal(size=v.shape)

    def seen(w, errors, columns):
        return (w[:, 0] - columns["threshold"].to_numpy() > 5 * errors[:, 0]).astype(float)

    columns = pd.DataFrame({"threshold": threshold})
    keep = seen(w, sd, columns) > 0
    selection = Selection(seen, columns=columns[keep].reset_index(drop=True))
    model = XDGMM(1, random_state=0).fit(w[keep], noise=sd[keep], selection=selection)
    assert abs(moments(model)[0] - 2) < 0.25  # its standard error is about .08
    twin = XDGMM(1, random_state=0).fit(w[keep], noise=sd[keep])
    assert moments(twin)[0] > 2.6


def test_efficiency_from_a_file(tmp_path):
    np.savez(tmp_path / "grid.npz", values=[[0.1, 0.2]], edges_0=[0, 1], edges_1=[0, 1, 2])
    grid = Efficiency.from_npz(tmp_path / "grid.npz")
    np.testing.assert_allclose(grid([[0.5, 1.5], [0.5, 2.0], [2.0, 0.5]]), [0.2, 0.2, 0.0])
    with pytest.raises(ValueError, match="Expected a grid of chances in"):
        Efficiency.from_npz(tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", x=[1.0])
    with pytest.raises(ValueError, match="Expected values, edges_0"):
        Efficiency.from_npz(tmp_path / "other.npz")


def test_a_certificate_asks_for_the_selection_again():
    w, sd, _ = table(8, 300)
    model = XDGMM(1, random_state=0).fit(w, noise=sd, selection="w0 > 0")
    with pytest.raises(ValueError, match="Expected selection, as in the fit; got none"):
        model.certify(w, noise=sd)


@pytest.mark.slow
def test_the_certificate_sees_rows_as_selected():
    """A right model is not in doubt because of the cut; with other errors it is."""
    w, sd, _ = table(9, 1000)
    model = XDGMM(1, random_state=0).fit(w, noise=sd, selection="w0 > 0")
    found = model.certify(w, noise=sd, selection="w0 > 0")
    assert not {each.check for each in found.cautions} & {"edges", "order"}
    plain = XDGMM(1, random_state=0).fit(w, noise=sd)
    with pytest.raises(ValueError, match="Expected no selection, as in the fit; got some"):
        plain.certify(w, noise=sd, selection="w0 > 0")
    assert "edges" in {each.check for each in plain.certify(w, noise=sd).cautions}


@pytest.mark.parametrize(
    ("edges", "values", "message"),
    [
        ([[0, 1, 1]], [0.5, 0.5], "Expected rising edges of column 0"),
        ([[0, 1]], [0.5, 0.5], "Expected values of shape"),
        ([[0, 1]], [1.5], "Expected values between 0 and 1"),
    ],
)
def test_bad_grids_are_refused(edges, values, message):
    with pytest.raises(ValueError, match=message):
        Efficiency(edges, values)


# -- selections beside other things that users say: refused by one line, or right -----------------


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
    assert rule("y > 0", Observations.from_arrays(w, SD, weights=weights)).ranges
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

    The twin: runs of five rows that are seen, and of five that are not.
    """

    def order(found):
        return next(each.p for each in found.findings if each.check == "order")

    assert model.seen_share_ < 0.9  # at least one row in ten was not seen
    assert order(model.certify(W, noise=SD, selection=chance, selection_of="truth")) > 1e-3
    runs = W - np.outer(np.arange(len(W)) // 5 % 2, [0, 2])
    assert order(XDGMM(2, random_state=0).fit(runs, noise=SD).certify(runs, noise=SD)) < 1e-3
