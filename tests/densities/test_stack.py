import pytest
import torch

from deconflow.densities import ARCHITECTURES, Architecture, Stack

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
