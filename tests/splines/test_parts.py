"""Parts of the log spline against brute force: hats, penalties, derivatives, bins, passes."""

import warnings

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma, norm
from scipy.stats import t as student

from deconflow import LogSplineDeconvolver, Observations
from deconflow.demo import cell_nuclei
from deconflow.noise import gaussian, student_t
from deconflow.splines import fit_log_spline, newton
from deconflow.splines.line import Basis, LineFrame, Nodes, polynomials
from deconflow.splines.planes import PlaneFrame, plane_penalty
from deconflow.splines.rows import as_rows, binned, domain_of

RNG = np.random.default_rng(100)


@pytest.mark.parametrize("sd", [0.0, 0.05, 0.3, 4.0])
def test_hats_are_integrated(sd):
    nodes = Nodes(np.array([-1.0, -0.4, 0.0, 0.3, 1.0]))
    w = np.array([-0.9, 0.1, 0.7])
    found = np.exp(nodes.log_likelihood(w, np.full(3, sd**2))) * nodes.mass
    hats = [lambda v, row=row: np.interp(v, nodes.x, row) for row in np.eye(5)]
    for i, place in enumerate(w):
        if sd == 0:
            wanted = [hat(place) for hat in hats]
        else:
            ends = (max(-1.0, place - 9 * sd), min(1.0, place + 9 * sd))
            breaks = nodes.x[(nodes.x > ends[0]) & (nodes.x < ends[1])]
            wanted = [
                quad(lambda v, h=hat, w=place: h(v) * norm.pdf(w, v, sd), *ends, points=breaks)[0]
                for hat in hats
            ]
        # A wide Gaussian sees a hat by its moments alone: to the fourth order of 0.7 / 4.
        np.testing.assert_allclose(found[i], wanted, rtol=1e-5, atol=1e-9)


def test_splines_go_on_as_lines_and_penalties_know_polynomials():
    basis = Basis(np.linspace(-1.0, 2.0, 8))
    x = np.linspace(-2, 3, 51)
    np.testing.assert_allclose(basis.design(x).sum(1), 1.0, atol=1e-12)
    beyond = basis.design(np.array([2.5, 3.0, 3.5]))
    np.testing.assert_allclose(np.diff(beyond, 2, axis=0), 0, atol=1e-12)
    for order in (2, 3):
        parts, null = basis.penalties(order, 4), polynomials((basis,), order)
        np.testing.assert_allclose(parts.sum(0), basis.penalties(order)[0], rtol=1e-10, atol=1e-9)
        assert abs(null.T @ parts.sum(0) @ null).max() < 1e-8
        cubic = polynomials((basis,), 4)[:, 3]
        assert cubic @ parts.sum(0) @ cubic > 1  # the twin: x^3 is seen


def test_the_penalty_on_a_plane_knows_no_direction():
    bases = Basis(np.linspace(-1, 1, 5)), Basis(np.linspace(-1, 1, 5))
    (S,) = plane_penalty(bases, 3)
    cubics = polynomials(bases, 4)[:, 6:]  # y^3, x y^2, x^2 y, x^3
    sizes = np.diag(cubics.T @ S @ cubics)
    np.testing.assert_allclose(sizes, 4 * np.array([36.0, 12.0, 12.0, 36.0]), rtol=1e-8)


def frame_and_rows(dim, n=400):
    v = RNG.normal(size=(n, dim))
    sd = RNG.uniform(0.2, 0.8, size=v.shape)
    rows = as_rows(Observations.from_arrays(v + sd * RNG.normal(size=v.shape), gaussian(sd=sd)))
    free = np.repeat([[-np.inf], [np.inf]], dim, axis=1)
    ends, _ = domain_of(rows, free)
    return (LineFrame if dim == 1 else PlaneFrame)(ends, free, 8), rows


@pytest.mark.parametrize("dim", [1, 2])
def test_derivatives_are_those_of_the_likelihood(dim):
    frame, rows = frame_and_rows(dim)
    likelihood, penalty = frame.likelihood(rows), frame.penalty(3)
    theta = penalty.parameters(frame.start()) + 0.05 * RNG.normal(size=penalty.basis.shape[1])
    along = RNG.normal(size=len(theta))
    low, here, high = (
        newton._look(likelihood, penalty.basis, theta + e * along) for e in (-1e-4, 0.0, 1e-4)
    )
    slope = (high.log_p - low.log_p) / 2e-4
    assert here.gradient @ along == pytest.approx(slope, rel=1e-5, abs=1e-5)
    change = -(high.gradient - low.gradient) / 2e-4
    np.testing.assert_allclose(
        here.hessian @ along, change, rtol=1e-4, atol=1e-4 * abs(change).max()
    )
    assert abs(here.information @ along - change).max() > 0.01 * abs(change).max()  # the twin


def test_a_pass_over_a_plane_is_the_sum_over_all_nodes():
    frame, rows = frame_and_rows(2, 30)
    S = np.array([[0.3, 0.2], [0.2, 0.25]])
    w = rows.centres[:, 0]
    rows = as_rows(Observations.from_arrays(w, gaussian(covariance=np.stack([S] * 30))))
    likelihood = frame.likelihood(rows)
    q = newton.masses(likelihood, frame.start())
    log_p, counts, _, between = likelihood.expect(q)
    lattice = frame.lattice
    v = np.stack(np.meshgrid(*(lattice.axis(d) for d in (0, 1)), indexing="ij"), -1).reshape(-1, 2)
    wide = np.linalg.inv(S + np.diag(lattice.step**2) / 6)
    offset = w[:, None] - v
    A = np.exp(-0.5 * np.einsum("igx,xy,igy->ig", offset, wide, offset))
    Q = A * q / (A @ q)[:, None]
    assert log_p == pytest.approx(np.log(A @ q).sum(), abs=1e-4)  # beyond 5.5 errors: 1e-7
    np.testing.assert_allclose(counts, Q.sum(0), atol=1e-5)
    E = Q @ np.kron(*frame._designs)
    np.testing.assert_allclose(between, E.T @ E, atol=1e-4)


@pytest.mark.parametrize("dim", [1, 2])
def test_bins_keep_the_moments(dim):
    n = 5000
    sd = 0.3 if dim == 2 else RNG.uniform(0.2, 0.5, size=(n, 1))
    w = RNG.normal(size=(n, dim))
    weights = RNG.uniform(0.5, 1.5, size=n)
    data = Observations.from_arrays(w, gaussian(sd=np.broadcast_to(sd, w.shape)), weights=weights)
    rows = as_rows(data)
    bins = binned(rows, np.full(dim, 0.001))
    assert len(bins) < 0.7 * n
    assert bins.count.sum() == pytest.approx(n)
    shares = [part.count / n for part in (rows, bins)]
    means = [s @ part.location for s, part in zip(shares, (rows, bins), strict=True)]
    np.testing.assert_allclose(*means, atol=1e-10)
    # The noise taken off is what being divided adds, but for what is not even within a bin.
    spread = [
        s @ (np.square(part.location) + part.covariances[:, 0].diagonal(axis1=1, axis2=2))
        for s, part in zip(shares, (rows, bins), strict=True)
    ]
    np.testing.assert_allclose(*spread, rtol=2e-3)


# -- fits of log splines: known truths, bounds, honest noise, other answers, bands ----------------


V = RNG.gamma(5.0, size=(2000, 1))
W = V + RNG.normal(size=V.shape)
X = np.linspace(0.05, 20, 2000)[:, None]
TRUTH = gamma(5.0)


def divergence(log_p, truth=TRUTH, x=X):
    p = truth.pdf(x[:, 0])
    return float((p * (np.log(p) - log_p)).sum() * (x[1, 0] - x[0, 0]))


@pytest.fixture(scope="module")
def line():
    return fit_log_spline(Observations.from_arrays(W, [1.0]))


@pytest.fixture(scope="module")
def plane():
    rng = np.random.default_rng(101)
    v = ring(1500, rng)
    sd = rng.uniform(0.15, 0.6, size=v.shape)
    return fit_log_spline(Observations.from_arrays(v + sd * rng.normal(size=v.shape), sd))


def ring(n, rng):
    angle, radius = rng.uniform(0, 2 * np.pi, n), rng.normal(2, 0.15, n)
    return radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], -1)


def ring_log_p(v):
    r = np.hypot(*v.T)
    return -0.5 * ((r - 2) / 0.15) ** 2 - np.log(0.15 * (2 * np.pi) ** 1.5 * r)


def test_a_gamma_truth(line):
    # Gamma truths with 1,000 rows have .007 in the geometric mean; these rows, fitted as if they
    # were exact, have .022.
    assert divergence(line.density.log_prob(X)) < 0.015
    blurred = fit_log_spline(Observations.from_arrays(W, [0.0]))
    assert divergence(blurred.density.log_prob(X)) > 0.018
    assert line.converged
    assert line.n_bins < 1500 < line.n_rows


def test_a_ring_under_errors_of_each_row(plane):
    v = ring(5000, np.random.default_rng(102))
    # Twice as many rows had .031 to .050 on four seeds; these are half as many.
    assert (ring_log_p(v) - plane.density.log_prob(v)).mean() < 0.12
    single = -0.5 * np.square(v).sum(1) / 2 - np.log(4 * np.pi)
    assert (ring_log_p(v) - single).mean() > 0.5
    assert plane.n_bins == plane.n_rows  # noise of their own: not binned


@pytest.mark.parametrize("which", ["line", "plane"])
def test_the_mixture_is_the_density(which, request):
    fit = request.getfixturevalue(which)
    v = fit.density.sample(4000, 0)
    gap = fit.density.log_prob(v) - fit.mixture.log_prob(v)
    assert abs(gap.mean()) < 1e-3 + 3 * gap.std() / 4000**0.5
    assert fit.mixture.n_components <= (241 if which == "line" else 3001)
    moved = fit.mixture.means + 0.2 * fit.mixture.sd
    twin = type(fit.mixture)(fit.mixture.weights, moved, fit.mixture.covariances)
    assert (fit.density.log_prob(v) - twin.log_prob(v)).mean() > 0.01


def test_a_start_is_the_same_answer_sooner(line):
    again = fit_log_spline(Observations.from_arrays(W, [1.0]), start=line)
    np.testing.assert_allclose(again.density.log_prob(V), line.density.log_prob(V), atol=0.1)
    assert abs(again.density.log_prob(V) - line.density.log_prob(V)).mean() < 0.01
    assert sum(c.rounds for c in again.curves) < sum(c.rounds for c in line.curves)


def test_a_bound_is_an_edge():
    rng = np.random.default_rng(103)
    v, truth = rng.exponential(size=(1000, 1)), rng.exponential(size=(5000, 1))
    w = v + 0.5 * rng.normal(size=v.shape)
    loss = {}
    for bounds in (None, (0, None)):
        model = LogSplineDeconvolver(bounds=bounds).fit(w, noise=0.5)
        loss[bounds] = (-truth[:, 0] - model.score_samples(truth)).mean()
    assert loss[0, None] < 0.02 < loss[None]
    assert model.score_samples([[-0.01]])[0] == -np.inf
    drawn = model.sample(5000, random_state=0)
    assert drawn.min() >= 0
    assert drawn.mean() == pytest.approx(1.0, abs=0.1)
    assert (model.posterior(w[:20], noise=0.5).mean >= 0).all()


@pytest.mark.slow
def test_missing_values_in_a_fold_of_the_plane():
    rng = np.random.default_rng(105)
    v = rng.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], size=900)
    w = v + 0.3 * rng.normal(size=v.shape)
    w[:150, 0], w[150:300, 1] = np.nan, np.nan
    fit = fit_log_spline(Observations.from_arrays(w, [0.3, 0.3]))
    drawn = fit.density.sample(5000, 0)
    np.testing.assert_allclose(np.cov(drawn.T), [[1, 0.7], [0.7, 1]], atol=0.15)
    found = LogSplineDeconvolver().fit(w, noise=0.3).posterior(w[:310], noise=0.3)
    # A missing first value is .7 of the second, whose share of its measurement is 1 / 1.09.
    slope = np.polyfit(w[:150, 1], found.mean[:150, 0], 1)[0]
    assert slope == pytest.approx(0.7 / 1.09, abs=0.1)
    assert found.sd[:150, 0].mean() > 1.5 * found.sd[300:, 0].mean()


def test_weights_are_copies():
    w, sd = W[:200], gaussian(sd=[1.0])
    weights = np.r_[np.full(100, 2.0), np.ones(100)]
    one = LogSplineDeconvolver().fit(w, noise=sd, sample_weight=weights).score_samples(X[::50])
    plain = LogSplineDeconvolver().fit(w, noise=sd).score_samples(X[::50])
    copies = LogSplineDeconvolver().fit(np.r_[w[:100], w], noise=sd).score_samples(X[::50])
    # Weights have mean one, so that copies count for more rows: nearly, not exactly the same.
    assert abs(one - copies).mean() < 0.5 * abs(plain - copies).mean() + 0.02


BAD = {
    "bounds are no pair": ({"bounds": 3}, "one pair, or one per column; got 3"),
    "bounds turned": ({"bounds": (2, 1)}, "low below high"),
    "bounds of text": (
        {"bounds": ("a", None)},
        "Expected bounds as pairs .* of numbers|as a pair",
    ),
    "bounds beside the data": ({"bounds": (50, None)}, "hold most of the truth"),
    "bounds for two": ({"bounds": [(0, None), (0, None)]}, "for each of 1 columns"),
    "equal rows": ({"w": np.ones((20, 1))}, "values that differ in every column"),
    "three columns": ({"w": np.c_[W, W, W][:50]}, r"at most 2 columns .* got 3"),
    "too few intervals": ({"n_intervals": 2}, "n_intervals as a whole number of at least 4"),
    "too many intervals": (
        {"n_intervals": 1000},
        "n_intervals as a whole number of at least 4 and at most 200",
    ),
}


@pytest.mark.parametrize(("settings", "message"), BAD.values(), ids=BAD)
def test_bad_settings(settings, message):
    w = settings.get("w", W[:50])
    with pytest.raises(ValueError, match=message):
        LogSplineDeconvolver(**{k: v for k, v in settings.items() if k != "w"}).fit(w, noise=1.0)


@pytest.mark.parametrize("dim", [1, 2])
def test_units_and_origin_change_nothing(dim):
    rng = np.random.default_rng(106)
    v = rng.normal(size=(150, dim))
    sd = rng.uniform(0.2, 0.6, size=v.shape)
    w = v + sd * rng.normal(size=v.shape)
    usual = LogSplineDeconvolver(n_intervals=8).fit(w, noise=sd).score_samples(v)
    for scale in (2.0**-498, 2.0**498):  # powers of two are exact
        model = LogSplineDeconvolver(n_intervals=8).fit(scale * w, noise=scale * sd)
        found = model.score_samples(scale * v) + dim * np.log(scale)
        np.testing.assert_allclose(found, usual, rtol=0, atol=1e-9)
    # Rounding at 1e9 may end the search for smoothing a step sooner: seen in the far tails only.
    moved = LogSplineDeconvolver(n_intervals=8).fit(1e9 + w, noise=sd)
    np.testing.assert_allclose(moved.score_samples(1e9 + v), usual, rtol=0, atol=0.05)


@pytest.mark.filterwarnings("error")
def test_a_row_far_out_does_not_end_the_search():
    """From a normal start such a row has no density at all: nothing tells where to go."""
    rng = np.random.default_rng(0)
    v = rng.normal(size=(2000, 1))
    w = v + 0.3 * rng.normal(size=v.shape)
    w[0] = 30.0
    model = LogSplineDeconvolver().fit(w, noise=0.3)
    assert abs((norm.logpdf(v[1:, 0]) - model.score_samples(v[1:])).mean()) < 0.01
    heavy = np.random.default_rng(3).standard_t(2, size=(1000, 1))
    model = LogSplineDeconvolver().fit(heavy + 0.3 * rng.normal(size=heavy.shape), noise=0.3)
    truth = rng.standard_t(2, size=(5000, 1))
    assert (student.logpdf(truth[:, 0], 2) - model.score_samples(truth)).mean() < 0.1


@pytest.mark.parametrize("dim", [1, 2])
def test_errors_coded_as_huge_numbers_change_nothing(dim):
    """Rows are alike by their own noise, not by that of the widest."""
    rng = np.random.default_rng(1)
    v = rng.normal(size=(2000, dim))
    sd = rng.uniform(0.1, 1.0, size=v.shape)
    w = v + sd * rng.normal(size=v.shape)
    usual = LogSplineDeconvolver().fit(w[40:], noise=sd[40:]).score_samples(v).mean()
    sd[:40] = 1e5
    w[:40] = v[:40] + 1e5 * rng.normal(size=(40, dim))
    found = LogSplineDeconvolver().fit(w, noise=sd).score_samples(v).mean()
    assert abs(found - usual) < 0.01


def test_a_bound_ends_nothing_on_the_other_side():
    rng = np.random.default_rng(3)
    w = rng.exponential(size=(500, 2)) + 0.1 * rng.normal(size=(500, 2))
    one = LogSplineDeconvolver(bounds=(0, None)).fit(w[:, :1], noise=0.1)
    assert np.isfinite(one.score_samples([[50.0]])[0])
    two = LogSplineDeconvolver(bounds=[(0, None), None]).fit(w, noise=0.1)
    assert np.isfinite(two.score_samples([[1.0, 40.0]])[0])
    # A row four errors below a bound: its truth is at the bound, not where it was measured.
    assert 0 <= two.posterior([[-0.45, 0.5]], noise=0.1).mean[0, 0] < 0.1
    assert np.isfinite(two.score_observations([[-0.45, 0.5]], noise=0.1)[0])


def test_rows_that_contradict_the_bounds_are_told():
    rng = np.random.default_rng(4)
    w = np.r_[rng.exponential(size=(300, 1)), -5 + 0.1 * rng.normal(size=(200, 1))]
    with pytest.raises(ValueError, match=r"row 300, beyond 0 \(200 such rows\). Widen the bounds"):
        LogSplineDeconvolver(bounds=(0, None)).fit(w, noise=0.05)


@pytest.mark.slow
def test_laws_of_one_form_share_bins():
    rng = np.random.default_rng(5)
    sd, v = rng.uniform(0.1, 0.5, size=(6000, 1)), rng.gamma(5.0, size=(6000, 1))
    w = v + sd * rng.standard_t(3, size=v.shape)
    model = LogSplineDeconvolver().fit(w, noise=student_t(sd, 3.0))
    assert model.n_bins_ < 4000
    assert divergence(model.score_samples(X)) < 0.01
    wrong = LogSplineDeconvolver().fit(w, noise=student_t(4 * sd, 3.0))  # the twin
    assert divergence(wrong.score_samples(X)) > 0.02


def test_bands_cover_the_truth_and_are_saved(tmp_path):
    model = LogSplineDeconvolver(bounds=(0, None)).fit(W, noise=1.0)
    assert "free parameters, from 2,000 rows in" in model.describe()
    band = model.density_.band(X[::50, 0])
    p = TRUTH.pdf(X[::50, 0])
    assert ((band.lower <= p) & (p <= band.upper)) @ p / p.sum() > 0.6  # points go together
    moved = TRUTH.pdf(X[::50, 0] - 1.5)
    assert ((band.lower <= moved) & (moved <= band.upper)) @ moved / moved.sum() < 0.4
    model.save(tmp_path / "model")
    loaded = LogSplineDeconvolver.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.density_.band(X[::50, 0]).upper, band.upper)
    np.testing.assert_array_equal(loaded.score_samples(X), model.score_samples(X))
    assert loaded.describe() == model.describe()
    assert loaded.score_samples([[-0.1]])[0] == -np.inf


def test_overstated_errors_that_drive_smoothing_to_both_its_ends():
    # Strengths of 1e-7 and 1e5 side by side: by rounding, their sum was not positive definite.
    table, rng = cell_nuclei(), np.random.default_rng(4)
    errors = rng.choice((table.sd / table.w)[:, [2]], 2000)
    v = rng.normal(-1.72, 0.097, errors.shape)
    w = v + errors * rng.normal(size=errors.shape)
    with warnings.catch_warnings(action="ignore"):  # about the noise, on some processors
        fitted = LogSplineDeconvolver().fit(w, noise=1.25 * errors)
    assert abs(fitted.sample(4000, random_state=0).mean() + 1.72) < 0.01  # three standard errors
