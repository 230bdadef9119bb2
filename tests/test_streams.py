"""Rows beyond memory: the same sums, samples and fits as in memory, chunk by chunk."""

import numpy as np
import pytest

from deconflow import (
    XDGMM,
    DeconvolvingKDE,
    FlowDeconvolver,
    GaussianMixture,
    Observations,
    open_rows,
    streams,
    xd,
)
from deconflow.xd import lay_out, many_rows
from deconflow.xd.em import coordinates, mixture_at, slopes
from deconflow.xd.maximisation import one_pass

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Two clumps in two columns, some values missing, errors of their own, in one file."""
    rng = np.random.default_rng(0)
    n = 4000
    v = rng.normal(size=(n, 2)) + 4.0 * (rng.random((n, 1)) < 0.3)
    sd = rng.uniform(0.2, 0.8, size=(n, 2))
    w = v + sd * rng.normal(size=(n, 2))
    w[::50, 1] = np.nan
    columns = {"x": w[:, 0], "y": w[:, 1], "x_err": sd[:, 0], "y_err": sd[:, 1]}
    columns["much"] = rng.uniform(0.5, 2.0, size=n)
    path = tmp_path_factory.mktemp("streams") / "stars.parquet"
    pq.write_table(pa.table(columns), path)
    return path, w, sd, columns["much"]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    """Make few rows many: a table of several chunks, and samples that grow."""
    monkeypatch.setattr(streams, "ROWS_AT_ONCE", 700)
    monkeypatch.setattr(many_rows, "FIRST_SAMPLE", 500)


def two_components():
    return GaussianMixture(
        np.array([0.6, 0.4]), np.array([[0.0, 0.0], [3.0, 4.0]]), np.stack([np.eye(2)] * 2)
    )


@pytest.mark.parametrize("weighted", ["not", "by row", "zero in a part"])
def test_statistics_of_parts_add_up_to_those_of_all(weighted, table):
    """On one scale of weights; a part of weight zero adds nothing but its rows."""
    _, w, sd, much = table
    late = np.arange(len(w)) >= 100
    weights = {"not": None, "by row": much, "zero in a part": much * late}[weighted]

    def found(part):
        own = None if weights is None else weights[part]
        return xd.statistics(w[part], two_components(), noise=sd[part], sample_weight=own)

    whole = found(slice(None))
    for one, other in zip(whole.parts, (found(~late) + found(late)).parts, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12 * whole.n_rows)


ONE, THREE = two_components().heaviest(1), np.arange(6.0).reshape(3, 2)


def test_em_by_statistics_is_that_of_xdgmm(table):
    _, w, sd, _ = table
    start = two_components()
    model = XDGMM(2, method="em", max_iter=5, tol=0, init=start).fit(w, noise=sd)
    mixture = start
    for _ in range(5):
        halves = np.array_split(np.arange(len(w)), 2)
        found = sum(xd.statistics(w[half], mixture, noise=sd[half]) for half in halves)
        mixture = found.maximise(mixture)
    np.testing.assert_allclose(mixture.means, model.means_, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mixture.covariances, model.covariances_, rtol=1e-9, atol=1e-9)


def found(w=THREE, mixture=None, noise=(1.0, 1.0)):
    return xd.statistics(w, mixture or two_components(), noise=noise)


def weighted():
    return Observations.from_arrays(THREE, [1.0, 1.0], weights=[1.0, 2.0, 3.0])


def no_stream(model, path, **beside):
    return model.fit(open_rows(path, ["x", "y"]), **beside)


NOT_SAID = "Expected a column or a number for the errors of each"
REFUSED = {
    "one name": (lambda path: open_rows(path, "xy"), "Expected columns as a list"),
    "numbers": (lambda path: open_rows(path, [0, 1]), "Expected columns as a list"),
    "errors": (lambda path: open_rows(path, ["x"], errors="x=x_err"), "Expected errors as a list"),
    "missing": (lambda path: open_rows(path, ["x"], missing=-99), "Expected missing as a list"),
    "values as errors": (lambda path: open_rows(path, ["x", "y"], errors=["x", "y"]),
        "Expected the errors of 'x' in another column"),
    "one error": (lambda path: no_stream(XDGMM(1), path, noise=[0.3]), NOT_SAID),
    "error of a name": (lambda path: no_stream(XDGMM(1), path, noise="x_err"), NOT_SAID),
    "error of all": (lambda path: no_stream(XDGMM(1), path, noise=np.ones((2, 2))), NOT_SAID),
    "no error": (lambda path: no_stream(XDGMM(1), path, noise={}), NOT_SAID),
    "no sample": (lambda path: open_rows(path, ["x"]).overview(0),
        "Expected n_sample as a whole number of at least 1"),
    "minibatch": (lambda path: no_stream(XDGMM(2, method="minibatch"), path),
        "Expected method='anderson' with rows beyond memory"),
    "bounds": (lambda path: no_stream(XDGMM(2, bounds={"x": (0, None)}), path),
        "Expected no bounds"),
    "weights beside": (lambda path: no_stream(XDGMM(1), path, sample_weight=np.ones(4000)),
        "Expected no sample_weight with a RowStream"),
    "memory": (lambda path: no_stream(DeconvolvingKDE(), path),
        "Expected no rows beyond memory with DeconvolvingKDE"),
    "another mixture": (lambda _: found().maximise(ONE), "Expected the mixture of these stat"),
    "sum of two": (lambda _: found() + found(mixture=ONE), "Expected statistics of the same mix"),
    "other width": (lambda _: found(THREE[:, :1], noise=[1.0]),  # would be stretched over both
        "Expected rows of 2 columns, the dimensions of the mix"),
    "weighted rows": (lambda _: found(weighted(), noise=None),
        "Expected Observations without weights"),
    "no mixture": (lambda _: found(mixture=XDGMM(2)),
        "Expected mixture as a GaussianMixture; got XDGMM"),
    "floor": (lambda _: found().maximise(two_components(), floor=[np.nan, 0.1]),
        "Expected floor as 2 numbers of at least 0"),
    "one floor": (lambda _: found().maximise(two_components(), floor=0.1),
        "Expected floor as 2 numbers of at least 0"),
    "negative floor": (lambda _: found().maximise(two_components(), floor=[-0.1, 0.1]),
        "Expected floor as 2 numbers of at least 0"),
    "no rows": (lambda _: found(THREE[:0]).maximise(two_components()), "got those of none"),
    "likelihood of none": (lambda _: found(THREE[:0]).mean_log_likelihood, "got those of none"),
    "no statistics": (lambda _: found() + None, "unsupported operand"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case, table):
    call, message = REFUSED[case]
    with pytest.raises((TypeError, ValueError), match=message):
        call(table[0])


def test_a_stream_has_the_rows_of_its_table(table):
    path, w, _, _ = table
    chunks = list(open_rows(path, ["x", "y"]).chunks())
    assert len(chunks) == 6  # of 700 rows
    np.testing.assert_array_equal(np.concatenate([part.measured() for part in chunks]), w)


def test_an_overview_counts_and_draws_without_replacement(table):
    path, w, _, _ = table
    found = open_rows(path, ["x", "y"]).overview(300, seed=1)
    assert found.n_rows == 4000
    rows = np.flatnonzero(np.isin(w[:, 0], found.sample.w[:, 0]))
    assert len(rows) == len(found.sample.w) == 300
    # A mean of 300 places drawn by chance from 4000 has a standard error of 64.
    assert abs(rows.mean() - 1999.5) < 4 * 64
    again = open_rows(path, ["x", "y"]).overview(300, seed=1)
    np.testing.assert_array_equal(again.sample.w, found.sample.w)
    other = open_rows(path, ["x", "y"]).overview(300, seed=2)
    assert not np.array_equal(other.sample.w, found.sample.w)


def test_a_fit_to_a_stream_is_that_in_memory(table, tmp_path):
    path, w, sd, _ = table
    settings = {"tol": 1e-9, "random_state": 0}
    streamed = XDGMM(2, **settings).fit(open_rows(path, ["x", "y"]))
    inside = XDGMM(2, **settings).fit(w, noise=sd)
    assert streamed.lower_bound_ == pytest.approx(inside.lower_bound_, abs=1e-8)
    order = np.argsort(streamed.means_[:, 0]), np.argsort(inside.means_[:, 0])
    np.testing.assert_allclose(
        streamed.means_[order[0]], inside.means_[order[1]], atol=1e-3
    )  # where the likelihood is flat to 1e-8
    assert streamed.fit_.names == ["x", "y"]
    streamed.save(tmp_path / "model")
    assert XDGMM.load(tmp_path / "model").n_iter_ == streamed.n_iter_


def test_slopes_are_those_of_the_likelihood():
    rng = np.random.default_rng(1)
    rows = lay_out(Observations.from_arrays(rng.normal(size=(200, 2)) * 2, [0.5, 0.3]))
    mixture = two_components()
    constraints = xd.Constraints.free(2, None)
    x = coordinates(mixture)
    slope = slopes(mixture, one_pass(mixture, rows, 1))
    for d in range(len(x)):
        values = []
        for sign in (1, -1):
            moved = x.copy()
            moved[d] += sign * 1e-5
            there = mixture_at(moved, mixture, constraints)
            values.append(one_pass(there, rows, 1).mean_log_likelihood)
        # Differences of second order: their error is of the order of 1e-10.
        assert slope[d] == pytest.approx((values[0] - values[1]) / 2e-5, abs=1e-7)


def test_a_fit_says_how_many_rows_it_had(table, tmp_path, monkeypatch):
    path, w, sd, _ = table
    model = XDGMM(1).fit(open_rows(path, ["x", "y"]))
    assert model.known_ == ["All 4,000 rows were fitted, in chunks."]
    model.save(tmp_path / "model")
    assert XDGMM.load(tmp_path / "model").known_ == model.known_
    assert model.fit(w, noise=sd).known_ == []
    monkeypatch.setattr("deconflow.core.SAMPLE_VALUES", 600)
    flow = FlowDeconvolver("gaussian_mixture", objective="elbo", epochs=1, random_state=0)
    assert flow.fit(open_rows(path, ["x", "y"])).known_ == [
        "A sample of 300 of 4,000 rows was fitted."
    ]
