import pytest
import torch

from deconflow.densities.layers import Dropout, MaskedNetwork


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
