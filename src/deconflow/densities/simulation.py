r"""Measurements as a density would have them."""

from __future__ import annotations

from deconflow.densities.base import Density
from deconflow.densities.dropout import without_dropout
from deconflow.observations import Observations, Pairs


def simulate(density: Density, data: Observations) -> Pairs:
    r"""Draw :math:`v \sim p(v)` for each row, and measure it with the row's own noise."""
    with without_dropout(density):
        v = density.sample(len(data)).to(data.w)
    return Pairs(data.remeasure(v), v)
