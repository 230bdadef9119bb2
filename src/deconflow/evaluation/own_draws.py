"""Looking at a fitted density by its own draws, on real rows and on rows simulated like them."""

from dataclasses import replace

import torch
from torch import Tensor

from deconflow._types import Array
from deconflow.certificate import LARGEST_K, Certificate
from deconflow.densities import Density, simulate
from deconflow.evaluation.pareto import pareto_k
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.posteriors import RowsWithProposals, WeightedDraws


@torch.no_grad()
def certify(
    density: Density,
    mixture: GaussianMixture,
    data: Observations,
    held_out: Certificate,
    *,
    draws: int,
    refresh_rate: Array | None,
) -> Certificate:
    """Look at a density in standardised units, on ``data`` and on rows simulated like them.

    The result is ``held_out``, a certificate of rows not seen, with the figures of draws added.
    """
    like = next(density.parameters()).dtype
    rows = RowsWithProposals.of(data, mixture, like)
    seen = rows.weigh(density, rows.sample(draws))
    gaps = _gap(density, mixture, data.to(dtype=like), draws)
    gaps = gaps.double()
    efficiency = seen.effective_sample_size() / draws
    k = pareto_k(seen.log_weights)
    return replace(
        held_out,
        efficiency=_low_and_median(efficiency),
        refresh_rate=(1.0, 1.0)
        if refresh_rate is None
        else _low_and_median(torch.as_tensor(refresh_rate)),
        pareto_k=(float(k.median()), float((k > LARGEST_K).double().mean())),
        gap=float(gaps.mean()),
        gap_error=float(gaps.std(correction=0)) / len(gaps) ** 0.5,
    )


def _gap(density: Density, mixture: GaussianMixture, data: Observations, draws: int) -> Tensor:
    """Return upper less lower bound of ``log p(w)`` for each simulated row, ``(N,)``.

    Both are importance-weighted averages. The upper one has the true value of the row, which is an
    exact draw from its posterior, among its draws (Sobolev and Vetrov 2019,
    https://arxiv.org/abs/1905.03290).
    """
    pairs = simulate(density, data)
    rows = RowsWithProposals.of(pairs.observations.to(dtype=torch.float64), mixture, data.w.dtype)
    weighed = rows.weigh(density, torch.cat([pairs.v[None], rows.sample(draws)]))
    lower = WeightedDraws(weighed.v[1:], weighed.log_weights[1:]).log_marginal()
    upper = WeightedDraws(weighed.v[:-1], weighed.log_weights[:-1]).log_marginal()
    return upper - lower


def _low_and_median(values: Tensor) -> tuple[float, float]:
    values = values.double()
    return float(values.quantile(0.05)), float(values.median())
