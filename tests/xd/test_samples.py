"""Many rows: samples choose, all rows fit, and no row is judged by a fit that has seen it."""

import numpy as np
import pytest

from deconflow import XDGMM, Deconvolver, GaussianMixture, Observations, core, open_rows, streams
from deconflow.auto.candidates import thinned
from deconflow.engines.shared import folds_of_sample
from deconflow.xd import (
    CrossFits,
    FitSettings,
    FoldedRows,
    Job,
    PreparedData,
    Stopping,
    cross_fits,
    fit_averaged,
    fit_together,
    fold_numbers,
    ladder,
    wins,
)

N = 4000
SETTINGS = FitSettings(1, stopping=Stopping(tol=1e-6, max_iter=100, accelerate=True, threads=1))


def clumps(n=N, seed=0):
    """Two clumps on a line, far apart: the number of components is beyond doubt."""
    rng = np.random.default_rng(seed)
    v = rng.normal(size=n) + 6.0 * (rng.random(n) < 0.3)
    sd = rng.uniform(0.2, 0.8, size=n)
    return (v + sd * rng.normal(size=n))[:, None], sd[:, None]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    w, sd = clumps()
    file = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(pa.table({"x": w[:, 0], "x_err": sd[:, 0]}), file)
    return file


@pytest.fixture
def few_are_many(monkeypatch):
    """Make a few thousand rows many."""
    monkeypatch.setattr(ladder, "FEW_ROWS", 600)
    monkeypatch.setattr(ladder, "SAMPLES", (500, 1200))
    monkeypatch.setattr(ladder, "MOST_TO_CHOOSE", 1500)
    monkeypatch.setattr(streams, "ROWS_AT_ONCE", 700)


def averaged(w, sd, **options):
    data = Observations.from_arrays(w, sd)
    return fit_averaged(data, SETTINGS, np.random.RandomState(0), folds=3, starts=1, **options)


@pytest.mark.usefixtures("few_are_many")
def test_a_sample_chooses_what_all_rows_would(monkeypatch):
    w, sd = clumps()
    chosen = averaged(w, sd)
    assert (chosen.n_choosing, chosen.n_rows) == (1200, N)
    assert not np.isnan(chosen.held_out).any()
    monkeypatch.setattr(ladder, "FEW_ROWS", N)
    monkeypatch.setattr(ladder, "MOST_TO_CHOOSE", N)
    by_all = averaged(w, sd)
    assert by_all.all_chose
    for fit in (chosen, by_all):  # one component is out of the question, and sixteen are
        sizes = fit.table["n_components"][fit.table["chosen"]]
        assert 2 <= sizes.min() <= sizes.max() <= 8
    # Both are within the error of 4,000 rows of one another: about p / 2n with p = 10.
    assert chosen.held_out.mean() == pytest.approx(by_all.held_out.mean(), abs=2e-3)


def test_rows_stay_in_their_fold_in_every_sample():
    w, sd = clumps(1000)
    whole = CrossFits(Observations.from_arrays(w, sd), 3, np.random.RandomState(0))
    rows = np.sort(np.random.default_rng(0).permutation(1000)[:200])
    some = whole.among(rows)
    for few, fold in zip(some.folds, whole.folds, strict=True):
        assert set(rows[few.held]) == set(rows) & set(fold.held)
        assert set(rows[few.kept]) == set(rows) & set(fold.kept)
    thin = thinned(whole.folds, 300)
    assert sum(len(fold.held) for fold in thin) == 300
    assert all(set(t.held) <= set(f.held) for t, f in zip(thin, whole.folds, strict=True))


def test_a_sample_has_rows_of_rare_columns(monkeypatch):
    monkeypatch.setattr(ladder, "FEW_ROWS", 600)
    monkeypatch.setattr(ladder, "SAMPLES", (500,))
    monkeypatch.setattr(ladder, "LEAST_MEASURED", 5)
    w = np.random.default_rng(0).normal(size=(5000, 2))
    w[10:, 1] = np.nan
    data = Observations.from_arrays(w, [1.0, 1.0])
    (rows,) = ladder.growing_samples(data, np.random.RandomState(0))
    assert len(rows) == len(set(rows)) == 500
    assert (rows < 10).sum() >= 5


def test_blocks_of_rows_are_drawn_as_rows_are(monkeypatch):
    rows_p = np.random.default_rng(0).normal(size=(2, 4000)) + np.array([[0.01], [0.0]])
    often = wins(rows_p, np.ones(4000), np.zeros(2), np.random.RandomState(0))
    monkeypatch.setattr(cross_fits, "MOST_DRAWN", 400)
    blocks = wins(rows_p, np.ones(4000), np.zeros(2), np.random.RandomState(0))
    # 500 draws each: a share has a standard error of .02 at most.
    assert blocks[0] == pytest.approx(often[0], abs=0.1)


@pytest.mark.usefixtures("few_are_many")
def test_fits_that_share_passes_are_those_of_each_alone(path):
    """Each has the answer of EM on the rows that it does not leave out."""
    stream = open_rows(path, ["x"])
    overview = stream.overview(N, seed=5)
    sample = Observations.from_arrays(overview.sample.w, overview.sample.noise)
    start = GaussianMixture(np.array([0.5, 0.5]), np.array([[0.0], [5.0]]), np.ones((2, 1, 1)))
    few, more = (
        FitSettings(2, stopping=Stopping(tol=0.0, max_iter=passes, threads=1)) for passes in (3, 6)
    )
    jobs = [Job(start, few, 0), Job(start, more, 1)]
    found = fit_together(jobs, sample, FoldedRows(stream, overview, 2), threads=1)
    fold = fold_numbers(overview.sample_numbers, 2)
    assert 0.4 < fold.mean() < 0.6
    for job, result in zip(jobs, found, strict=True):
        alone = PreparedData(sample[fold != job.fold])
        wanted = alone.fit(job.settings, np.random.RandomState(0), start)
        assert result.n_iter == wanted.n_iter
        assert result.log_likelihood == pytest.approx(wanted.log_likelihood, abs=1e-9)
        np.testing.assert_allclose(result.mixture.means, wanted.mixture.means, rtol=1e-8)


@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize(
    "model",
    [XDGMM("auto", random_state=0), Deconvolver(quick=True, random_state=0, n_jobs=1)],
    ids=lambda model: type(model).__name__,
)
def test_a_stream_is_fitted_as_rows_in_memory_are(model, path, monkeypatch):
    monkeypatch.setattr(core, "SAMPLE_VALUES", 1000)
    beyond = model.fit(open_rows(path, ["x"]))
    assert "of 4,000 rows choose the model; all of them fit it." in beyond.describe()
    at = np.linspace(-3, 9, 200)[:, None]
    p = np.exp(beyond.score_samples(at))
    truth = 0.7 * np.exp(-0.5 * at**2) + 0.3 * np.exp(-0.5 * (at - 6) ** 2)
    truth = truth[:, 0] / np.sqrt(2 * np.pi)
    # Absolute error integrated; 4,000 noisy rows give .03 to .06, a sample of 1,000 twice that.
    assert np.abs(p - truth).sum() * 12 / 199 < 0.1
    assert beyond.density_.replicates is not None


@pytest.mark.usefixtures("few_are_many")
def test_rows_without_weight_move_no_other_to_another_fold(path, tmp_path, monkeypatch):
    """Folds of a sample count its rows of weight only: no row is judged by a fit that saw it."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pq.read_table(path)
    weights = np.tile([0.0, 1.0, 2.0], len(table))[: len(table)]
    pq.write_table(table.append_column("much", pa.array(weights)), tmp_path / "weighted.parquet")
    monkeypatch.setattr(core, "SAMPLE_VALUES", 1400)
    stream = open_rows(tmp_path / "weighted.parquet", ["x"], weights="much")
    overview = stream.overview(1400, 0)
    folds = folds_of_sample(overview, 3)
    kept = overview.sample_numbers[overview.sample.weights > 0]
    for f, fold in enumerate(folds):
        assert (fold_numbers(kept, 3)[fold.held] == f).all()
    assert sum(len(fold.held) for fold in folds) == (overview.sample.weights > 0).sum()
    assert XDGMM("auto", random_state=0, n_jobs=1).fit(stream).n_components_ >= 2
