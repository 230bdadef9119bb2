"""Parts of the log spline against brute force: hats, penalties, derivatives, bins, passes."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from deconflow import Observations
from deconflow.noise import gaussian
from deconflow.splines import newton
from deconflow.splines.basis import Basis, line_penalties, plane_penalty, polynomials
from deconflow.splines.line import LineFrame, Nodes
from deconflow.splines.planes import PlaneFrame, bins_on_a_plane
from deconflow.splines.rows import as_rows, bins_on_a_line, domain_of

FREE = np.array([-np.inf]), np.array([np.inf])
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
        parts, null = line_penalties(basis, order, 4), polynomials((basis,), order)
        np.testing.assert_allclose(parts.sum(0), basis.gram(order), rtol=1e-10, atol=1e-9)
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
    bounds = np.full(dim, -np.inf), np.full(dim, np.inf)
    frame = (LineFrame if dim == 1 else PlaneFrame)(domain_of(rows, *bounds), 8)
    return frame, rows


@pytest.mark.parametrize("dim", [1, 2])
def test_derivatives_are_those_of_the_likelihood(dim):
    frame, rows = frame_and_rows(dim)
    likelihood, penalty = frame.likelihood(rows), frame.penalty(3)
    theta = penalty.parameters(frame.start) + 0.05 * RNG.normal(size=penalty.basis.shape[1])
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
    q = newton.masses(likelihood, frame.start)
    found = likelihood.expect(q)
    lattice = frame.lattice
    v = np.stack(np.meshgrid(*(lattice.axis(d) for d in (0, 1)), indexing="ij"), -1).reshape(-1, 2)
    wide = np.linalg.inv(S + np.diag(lattice.step**2) / 6)
    offset = w[:, None] - v
    A = np.exp(-0.5 * np.einsum("igx,xy,igy->ig", offset, wide, offset))
    Q = A * q / (A @ q)[:, None]
    assert found.log_p == pytest.approx(np.log(A @ q).sum(), abs=1e-4)  # beyond 5.5 errors: 1e-7
    np.testing.assert_allclose(found.counts, Q.sum(0), atol=1e-5)
    E = Q @ np.kron(*frame._designs)
    np.testing.assert_allclose(found.between, E.T @ E, atol=1e-4)


@pytest.mark.parametrize("dim", [1, 2])
def test_bins_keep_the_moments(dim):
    n = 5000
    sd = 0.3 if dim == 2 else RNG.uniform(0.2, 0.5, size=(n, 1))
    w = RNG.normal(size=(n, dim))
    weights = RNG.uniform(0.5, 1.5, size=n)
    data = Observations.from_arrays(w, gaussian(sd=np.broadcast_to(sd, w.shape)), weights=weights)
    rows = as_rows(data)
    binned = bins_on_a_line(rows, 0.001) if dim == 1 else bins_on_a_plane(rows, np.full(2, 0.001))
    assert len(binned) < 0.7 * n
    assert binned.count.sum() == pytest.approx(n)
    shares = [part.count / n for part in (rows, binned)]
    means = [s @ part.location for s, part in zip(shares, (rows, binned), strict=True)]
    np.testing.assert_allclose(*means, atol=1e-10)
    # The noise taken off is what being divided adds, but for what is not even within a bin.
    spread = [
        s @ (np.square(part.location) + part.covariances[:, 0].diagonal(axis1=1, axis2=2))
        for s, part in zip(shares, (rows, binned), strict=True)
    ]
    np.testing.assert_allclose(*spread, rtol=2e-3)
