import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import deconflow
from deconflow.densities import (
    ARCHITECTURES,
    Architecture,
    ConditionalMixture,
    Ensemble,
    MixtureDensity,
    Stack,
    StandardNormal,
    compose,
)
from deconflow.densities.layers import Dropout, MaskedNetwork

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


# -- networks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("context_dim", [0, 3])
@pytest.mark.parametrize("dim", [1, 2, 6])
def test_outputs_see_only_what_comes_before(dim, context_dim, residual):
    order = torch.randperm(dim)
    network = MaskedNetwork(
        dim, 2, hidden=48, blocks=2, residual=residual, context_dim=context_dim, order=order
    ).double()
    torch.nn.init.normal_(network.output.weight)
    seen = torch.zeros(dim, dim + context_dim, dtype=torch.bool)
    for x in torch.randn(30, dim, dtype=torch.float64):  # at one point a ReLU may hide a path
        context = torch.randn(context_dim, dtype=torch.float64)
        slopes = torch.autograd.functional.jacobian(
            lambda x, c: network(x, c if context_dim else None)[:, 0], (x, context), strict=False
        )
        seen |= torch.cat(slopes, 1) != 0
    assert torch.equal(seen[:, :dim], order < order.unsqueeze(-1))
    assert seen[:, dim:].all()


def test_dropout_keeps_the_mean_and_stops_in_evaluation():
    layer = Dropout(0.2)
    x = torch.ones(500, 401)
    dropped = layer(x)
    share = float((dropped == 0).float().mean())
    assert share == pytest.approx(51 / 256, abs=0.005)  # 4.5 standard errors of 200,500 draws
    assert float(dropped.mean()) == pytest.approx(1, abs=0.005)
    assert torch.equal(layer.eval()(x), x)


# -- stack ----------------------------------------------------------------------------------------


SIZE = Architecture(layers=2, hidden=16, blocks=1)


def trained_flows(count, dim=3):
    flows = [ARCHITECTURES["mixture"](dim, SIZE) for _ in range(count)]
    for flow in flows:  # outputs start small: let every weight matter
        for weight in flow.parameters():
            weight.data.add_(0.1 * torch.randn_like(weight))
    return flows


def alone(flows, v):
    return torch.stack([flow.log_prob(part) for flow, part in zip(flows, v, strict=True)])


def test_a_stack_is_its_members():
    flows = trained_flows(4)
    v = torch.randn(4, 5, 7, 3)
    together = Stack(flows).log_prob(v)
    torch.testing.assert_close(together, alone(flows, v))
    torch.testing.assert_close(Stack(flows).log_prob(v[:, 0, 0]), together[:, 0, 0])


def test_members_come_back_with_what_they_learned():
    stack = Stack(trained_flows(3))
    v = torch.randn(3, 50, 3)
    optimiser = torch.optim.Adam(stack.parameters(), 1e-2)
    for _ in range(3):
        optimiser.zero_grad()
        (-stack.log_prob(v).mean()).backward()
        optimiser.step()
    torch.testing.assert_close(stack.log_prob(v), alone(stack.flows(), v))


def test_other_weights_are_refused():
    with pytest.raises(TypeError, match="masked linear layers only"):
        Stack([ARCHITECTURES["maf"](2, SIZE)])


# -- what an import of zuko changes in torch is undone, and zuko works for others all the same ----


STATE = """
import torch
import torch.distributions as d

def state():
    modules = [d, *(x for x in vars(d).values() if type(x) is type(d))]
    classes = {x for m in modules for x in vars(m).values() if isinstance(x, type)}
    own = [x for x in classes if x.__module__.startswith("torch.distributions")]
    entries = {(x.__qualname__, name): v for x in own for name, v in vars(x).items()}
    entries |= {(x.__qualname__, "called"): x.__name__ for x in own}
    return entries | {(m.__name__, name): v for m in modules for name, v in vars(m).items()}

def changes(before):
    after = state()
    missing = object()
    return {
        key for key in before.keys() | after.keys()
        if before.get(key, missing) is not after.get(key, missing)
    }

before = state()
assert len(before) > 1000
"""

#: The only traces: a method that zuko's transforms call on torch's, and a name in a repr.
ADDED = {("Transform", "call_and_ladj"), ("_InverseTransform", "called")}

VALIDATED = """
for wrong in (lambda: d.Normal(0.0, -1.0), lambda: d.Uniform(0.0, 1.0).log_prob(torch.tensor(2.0))):
    try:
        wrong()
    except ValueError:
        continue
    raise AssertionError("torch does not validate")
"""

ZUKO_FLOWS = """
import zuko
for flow in (zuko.flows.NSF(2), zuko.flows.MAF(2), zuko.flows.NICE(2), zuko.flows.GMM(2)):
    x = flow().sample((5,))
    assert x.shape == (5, 2)
    assert flow().log_prob(x).isfinite().all()
    repr(flow())
x, log_p = zuko.flows.NSF(2)().rsample_and_log_prob((5,))
assert log_p.shape == (5,)
normal = zuko.distributions.GeneralizedNormal(torch.tensor(2.0))
assert normal.log_prob(normal.sample((3,))).shape == (3,)
assert zuko.distributions.Sort(d.Normal(0.0, 1.0), 3).sample((4,)).shape == (4, 3)
"""


def run(*parts):
    """Run a program in a process of its own, in which a warning is an error."""
    code = "\n".join(parts)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_torch_is_as_it_was():
    run(
        STATE,
        "import deconflow.estimators",
        f"assert changes(before) == {ADDED!r}, changes(before)",
        VALIDATED,
    )


@pytest.mark.slow
def test_zuko_works_for_others():
    run("import torch, torch.distributions as d", "import deconflow.densities", ZUKO_FLOWS)


def test_one_module_imports_zuko():
    root = Path(deconflow.__file__).parent
    statement = re.compile(r"^\s*(import|from) zuko\b", re.MULTILINE)
    found = [x.relative_to(root).as_posix() for x in root.rglob("*.py")
             if statement.search(x.read_text())]  # fmt: skip
    assert found == ["densities/layers.py"]
