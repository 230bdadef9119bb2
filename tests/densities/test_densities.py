import math

import numpy as np
import pytest
import torch

from deconflow.densities import (
    ARCHITECTURES,
    Architecture,
    ConditionalMixture,
    Ensemble,
    MixtureDensity,
    StandardNormal,
    compose,
)

SMALL = Architecture(layers=2, hidden=16, blocks=2)


def shake(module, size=0.3):
    """Move all parameters away from their special start."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(size * torch.randn_like(parameter))
    return module


def gaussian_mixture(dim):
    return MixtureDensity.spread(dim, 3)


def conditional_mixture(dim):
    return ConditionalMixture(
        dim, 4, hidden=16, blocks=1, residual=False, order=torch.randperm(dim)
    )


FLOWS = {name: lambda dim, make=make: make(dim, SMALL) for name, make in ARCHITECTURES.items()}
FLOWS["mixture base"] = lambda dim: ARCHITECTURES["maf"](
    dim, Architecture(layers=2, hidden=16, base_components=3)
)
DENSITIES = {
    **FLOWS,
    "standard normal": StandardNormal,
    "Gaussian mixture": gaussian_mixture,
    "conditional mixture": conditional_mixture,
    "ensemble": lambda dim: Ensemble([shake(gaussian_mixture(dim)), StandardNormal(dim)]),
}
every_density = pytest.mark.parametrize("make", DENSITIES.values(), ids=DENSITIES)
every_flow = pytest.mark.parametrize("make", FLOWS.values(), ids=FLOWS)


@every_density
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_shapes_and_precision(make, dim, dtype):
    density = shake(make(dim)).to(dtype)
    v = density.sample(7)
    log_p = density.log_prob(v.expand(3, 7, dim))
    assert (v.shape, v.dtype) == ((7, dim), dtype)
    assert (log_p.shape, log_p.dtype) == ((3, 7), dtype)
    tolerance = 1e-3 if dtype == torch.float32 else 1e-9
    assert torch.allclose(log_p[0], density.log_prob(v), atol=tolerance)
    assert torch.allclose(density.log_prob(v[1]), log_p[0, 1], atol=tolerance)  # a point alone
    assert log_p.isfinite().all()


@every_density
def test_integrates_to_one_in_one_dimension(make):
    density = shake(make(1)).double()
    grid = torch.linspace(-60, 60, 60_001, dtype=torch.float64)
    mass = torch.trapezoid(density.log_prob(grid.unsqueeze(-1)).exp(), grid)
    assert float(mass.detach()) == pytest.approx(1, abs=2e-3)


@every_density
def test_samples_follow_the_density(make):
    # E_p[p_0(v) / p(v)] = 1 for any normalised p_0 inside the support of p: a check of density and
    # samples together. The negative twin takes samples of a wider law.
    density = shake(make(2), 0.1).double()
    with torch.no_grad():
        v = density.sample(40_000)
        inner = torch.distributions.MultivariateNormal(
            v.mean(0), covariance_matrix=torch.diag(0.3 * v.var(0))
        )
        ratio = torch.exp(inner.log_prob(v) - density.log_prob(v))
        wide = v.mean(0) + 1.6 * (v - v.mean(0))
        wrong = torch.exp(inner.log_prob(wide) - density.log_prob(wide))
    error = float(ratio.std()) / math.sqrt(len(v))
    assert float(ratio.mean()) == pytest.approx(1, abs=5 * error)
    assert abs(float(wrong.mean()) - 1) > 5 * error


@every_flow
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-3), (torch.float64, 1e-9)])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_inverse(make, dim, dtype, tolerance):
    flow = shake(make(dim), 0.1).to(dtype)
    v = torch.randn(50, dim, dtype=dtype)
    with torch.no_grad():
        u, _ = compose(flow.layers).call_and_ladj(v)
        assert torch.allclose(compose(flow.layers).inv(u), v, atol=tolerance)


@every_flow
@pytest.mark.parametrize("dim", [1, 3])
def test_log_determinant_against_autograd(make, dim):
    flow = shake(make(dim)).double()
    v = torch.randn(dim, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(
        lambda x: compose(flow.layers).call_and_ladj(x)[0], v
    )
    expected = torch.linalg.slogdet(jacobian).logabsdet
    assert torch.allclose(compose(flow.layers).call_and_ladj(v)[1], expected, atol=1e-8)


@every_density
def test_every_parameter_gets_a_gradient(make):
    density = shake(make(3)).double()
    v = torch.randn(200, 3, dtype=torch.float64, requires_grad=True)
    density.log_prob(v).sum().backward()
    for name, parameter in density.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).any(), name


def test_gaussian_mixture_against_scipy():
    from scipy.stats import multivariate_normal

    weights = torch.tensor([0.2, 0.8], dtype=torch.float64)
    means = torch.randn(2, 3, dtype=torch.float64)
    roots = torch.randn(2, 3, 3, dtype=torch.float64)
    covariances = roots @ roots.mT + torch.eye(3, dtype=torch.float64)
    v = torch.randn(10, 3, dtype=torch.float64)
    expected = sum(
        float(a) * multivariate_normal(m, C).pdf(v)
        for a, m, C in zip(weights, means.numpy(), covariances.numpy(), strict=True)
    )
    found = MixtureDensity(weights, means, covariances).log_prob(v).detach()
    np.testing.assert_allclose(found, np.log(expected), rtol=1e-10)


def test_ensemble_is_the_average_of_densities():
    members = [shake(gaussian_mixture(2)).double() for _ in range(3)]
    v = torch.randn(20, 2, dtype=torch.float64)
    expected = sum(m.log_prob(v).exp() for m in members) / 3
    assert torch.allclose(Ensemble(members).log_prob(v).exp(), expected)


def test_ensemble_rows_are_not_sorted_by_member_and_a_member_may_get_none():
    one = torch.ones(1)
    far = [MixtureDensity(one, torch.full((1, 1), mean), one[None, None]) for mean in (0.0, 100.0)]
    assert Ensemble(far).sample(1).shape == (1, 1)
    from_second = (Ensemble(far).sample(200)[:, 0] > 50).float()
    assert 60 < from_second.sum() < 140
    assert (from_second[1:] != from_second[:-1]).sum() > 50


def test_state_carries_permutations_and_orders():
    for name, make in ARCHITECTURES.items():
        first = shake(make(5, SMALL)).double()
        second = make(5, SMALL).double()
        second.load_state_dict(first.state_dict())
        v = torch.randn(4, 5, dtype=torch.float64)
        assert torch.equal(first.log_prob(v), second.log_prob(v)), name
