"""No order of the layers, and no seed, spoils the fit of a flow."""

import pytest
import torch

from benchmarks.flow_orders import SHORT, excess, unlucky
from deconflow.densities import ARCHITECTURES
from deconflow.randomness import isolated_rng

pytestmark = pytest.mark.usefixtures("one_thread")


FULL = [
    pytest.param(name, seed, marks=[] if (name, seed) == ("made", 0) else pytest.mark.slow)
    for name in ("maf", "made")
    for seed in (0, 1, 2)
]


@pytest.mark.parametrize(("name", "seed"), FULL)
def test_an_unlucky_order_spoils_no_fit(name, seed):
    """Within .25 nat of the truth after 400 steps.

    Measured: .04 to .09, at most .23 in ten seeds of ``made``; before .51 to .53, but for one seed.
    """
    assert excess(name, SHORT, seed, unlucky) < 0.25


def test_layers_between_plain_networks_mix_the_dimensions_in_any_number_of_them():
    for dim in (2, 50):
        with isolated_rng(0):
            first = ARCHITECTURES["made"](dim).layers[0]
        matrix = first.transform().L @ first.transform().U
        mixed = (matrix - torch.eye(dim)).square().sum(1).sqrt()
        assert 0.05 < mixed.mean() < 1.5
