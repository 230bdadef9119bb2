import pytest
import torch

from deconflow.densities.networks import Dropout, MaskedNetwork, _ResidualBlock


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


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("dropped", [False, True])
def test_residual_block_gradients(per_row, dropped):
    h = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    W1, W2 = (torch.randn(5, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    b1 = torch.randn((4, 5) if per_row else (5,), dtype=torch.float64, requires_grad=True)
    b2 = torch.randn(5, dtype=torch.float64, requires_grad=True)
    keep = (torch.rand(3, 4, 5) > 0.3).double() / 0.7 if dropped else None

    def naive(h, W1, b1, W2, b2):
        inner = torch.relu(torch.relu(h) @ W1.mT + b1)
        return h + (inner if keep is None else inner * keep) @ W2.mT + b2

    arguments = (h, W1, b1, W2, b2)
    assert torch.allclose(_ResidualBlock.apply(*arguments, keep), naive(*arguments))
    weights = torch.randn(3, 4, 5, dtype=torch.float64)
    ours = torch.autograd.grad((weights * _ResidualBlock.apply(*arguments, keep)).sum(), arguments)
    theirs = torch.autograd.grad((weights * naive(*arguments)).sum(), arguments)
    torch.testing.assert_close(ours, theirs)


def test_dropout_keeps_the_mean_and_stops_in_evaluation():
    layer = Dropout(0.2)
    x = torch.ones(500, 401)
    dropped = layer(x)
    share = float((dropped == 0).float().mean())
    assert share == pytest.approx(51 / 256, abs=0.005)  # 4.5 standard errors of 200,500 draws
    assert float(dropped.mean()) == pytest.approx(1, abs=0.005)
    assert torch.equal(layer.eval()(x), x)
