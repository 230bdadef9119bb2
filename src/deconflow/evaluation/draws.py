r"""How exact weighted draws are, and ``log p(w)`` by importance sampling.

The points of the latter are quasi-random, with a control variate. They come from the proposing
mixture's posterior of each row and its widened copy. That posterior is a density, so its own
importance weights have a mean of one: their error is known, and is taken off that of the weights in
question as far as the two go together.
"""

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from deconflow._types import Array
from deconflow.certificate import LARGEST_K, Certificate
from deconflow.densities import Density, simulate
from deconflow.evaluation.estimate import FEWEST_POINTS, REPEATS, Estimate
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.posteriors import STRETCH, RowMixtures, RowsWithProposals, WeightedDraws
from deconflow.randomness import own_generator

NARROW = 0.85
POINTS_AT_ONCE = 2**15


@torch.no_grad()
def estimate_log_likelihood(density: Density, rows: RowsWithProposals, draws: int) -> Estimate:
    """Estimate ``log p(w)`` of each row from about ``draws`` points each."""
    points = max(FEWEST_POINTS, draws) // REPEATS
    size = max(1, POINTS_AT_ONCE // (points * REPEATS))
    starts = range(0, len(rows), size)
    return Estimate.joined([_estimate(density, rows[lo : lo + size], points) for lo in starts])


def _estimate(density: Density, rows: RowsWithProposals, points: int) -> Estimate:
    mixtures, data = rows.mixtures, rows.observations
    v = _quasi_random_draws(mixtures, points)  # (R P, n, D)
    narrow, wide = mixtures.stretched_log_prob(v, 1.0, STRETCH)
    log_q = torch.logaddexp(narrow + math.log(NARROW), wide + math.log(1 - NARROW))
    device = next(density.parameters()).device
    log_w = (density.log_prob(v.to(device)).cpu() + data.log_likelihood(v) - log_q).double()
    top, shape = log_w.amax(0), (REPEATS, points)
    control = (narrow - log_q).double().exp().unflatten(0, shape)
    repeats = _controlled((log_w - top).exp().unflatten(0, shape), control).mean(1)  # (R, n)
    mean = repeats.mean(0)
    relative = (repeats.var(0) / REPEATS).sqrt() / mean.clamp_min(1e-300)
    bias = 0.5 * relative.square().clamp_max(1.0)  # of the logarithm; none is left
    log_p = mean.clamp_min(1e-300).log() + top + bias
    return Estimate(log_p.numpy(), relative.numpy(), np.zeros(len(log_p)))


def _controlled(weights: Tensor, control: Tensor) -> Tensor:
    """Take off what goes together with ``control``, whose expectation is one.

    The slope is each row's own, from all its points; where it would make a mean negative the
    weights stay as they are.
    """
    both = control.flatten(0, 1) - 1
    centred = weights.flatten(0, 1) - weights.mean((0, 1))
    slope = (both * centred).mean(0) / both.var(0, unbiased=False).clamp_min(1e-300)
    better = weights - slope * (control - 1)
    return torch.where((better.mean(1) > 0).all(0), better, weights)


def _quasi_random_draws(mixtures: RowMixtures, points: int) -> Tensor:
    """Draw ``(R P, n, D)``: one scrambled Sobol set, shifted anew for each row and repeat."""
    n, count, dim = mixtures.means.shape
    seed = int(torch.randint(2**31 - 1, (), generator=own_generator()))
    sobol = SobolEngine(dim + 1, scramble=True, seed=seed).draw(points, dtype=torch.float32)
    shifts = torch.rand(REPEATS, 1, n, dim + 1, generator=own_generator())
    u = ((sobol[:, None] + shifts) % 1).flatten(0, 1).to(mixtures.means.dtype)  # (R P, n, D + 1)
    shares = torch.tensor([NARROW, 1 - NARROW], dtype=u.dtype)
    edges = (shares[:, None] * mixtures.log_weights.exp()[:, None]).flatten(1).cumsum(1)
    edges = edges / edges[:, -1:]
    part = torch.searchsorted(edges, u[..., 0].mT.contiguous()).mT.clamp(max=2 * count - 1)
    stretch = torch.where(part < count, 1.0, STRETCH).to(u.dtype).unsqueeze(-1)
    tiny = torch.finfo(u.dtype).eps
    white = stretch * torch.special.ndtri(u[..., 1:].clamp(tiny, 1 - tiny))
    place = torch.arange(n).expand_as(part), part % count
    return mixtures.means[place] + (mixtures.factors[place] @ white.unsqueeze(-1)).squeeze(-1)


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
    gaps = _gap(density, mixture, data.to(dtype=like), draws).double()
    k = pareto_k(seen.log_weights)
    return replace(
        held_out,
        efficiency=_low_and_median(seen.effective_sample_size() / draws),
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


def pareto_k(log_weights: Tensor) -> Tensor:
    r"""Fit a generalised Pareto law to each column's largest weights; return its shape ``k``.

    ``log_weights`` is ``(K, N)``. Below 0.7 means of these weights can be trusted; above, a few
    draws decide. The tail is the largest fifth, at most :math:`3 \sqrt K` draws.

    References
    ----------
    Vehtari et al. (2024), "Pareto smoothed importance sampling", https://arxiv.org/abs/1507.02646;
    Zhang and Stephens (2009), "A new and efficient estimation method for the generalized Pareto
    distribution".
    """
    count = len(log_weights)
    tail = min(count // 5, int(3 * math.sqrt(count)))
    if tail < 5:
        raise ValueError(f"Expected at least 25 draws for the tail of the weights; got {count}.")
    top = torch.topk(log_weights.double(), tail + 1, dim=0).values
    weights = (top - top[0]).exp()
    excess = (weights[:-1] - weights[-1:]).flip(0)  # ascending, (T, N)
    return _shape_of(excess.clamp_min(1e-300))


def _shape_of(x: Tensor) -> Tensor:
    """Estimate the shape by the profile-likelihood average of Zhang and Stephens."""
    n = len(x)
    grid = 30 + int(math.sqrt(n))
    steps = torch.arange(1, grid + 1, dtype=x.dtype).unsqueeze(-1) - 0.5
    quartile = x[max(0, int(n / 4 + 0.5) - 1)]
    theta = 1 / x[-1] + (1 - (grid / steps).sqrt()) / (3 * quartile)  # (G, N)
    ks = torch.stack([torch.log1p(-each * x).mean(0) for each in theta])
    log_l = n * ((-theta / ks).log() - ks - 1)
    log_l = torch.where(log_l.isfinite(), log_l, -torch.inf)
    best = (torch.softmax(log_l, 0) * theta).sum(0)
    k = torch.log1p(-best * x).mean(0)
    return (k * n + 5.0) / (n + 10.0)  # drawn towards one half, where there is little tail
