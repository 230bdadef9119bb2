import pytest
import torch

from deconflow.evaluation import pareto_k


@pytest.mark.parametrize("k", [0.3, 0.7, 1.2])
def test_the_shape_of_pareto_weights_is_found(k):
    """Weights u^-k have a Pareto tail of shape k; medians over 200 columns of 2,000 draws."""
    u = torch.rand(2000, 200, dtype=torch.float64)
    found = pareto_k(-k * u.log())
    # The estimate is drawn towards one half by ten draws' worth of prior, of 134 in the tail.
    wanted = (134 * k + 5) / 144
    assert float(found.median()) == pytest.approx(wanted, abs=0.05)


def test_bounded_weights_have_a_light_tail():
    assert float(pareto_k(torch.rand(2000, 50, dtype=torch.float64)).max()) < 0.5


def test_few_draws_are_refused():
    with pytest.raises(ValueError, match="at least 25 draws"):
        pareto_k(torch.zeros(20, 3))
