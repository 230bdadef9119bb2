r"""``log p(w)`` by importance sampling with quasi-random points and a control variate.

Points come from the proposing mixture's posterior of each row and its widened copy. That posterior
is a density, so its own importance weights have a mean of one: their error is known, and is taken
off that of the weights in question as far as the two go together.
"""

import math

import numpy as np
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from deconflow.densities import Density
from deconflow.evaluation.estimate import FEWEST_POINTS, REPEATS, Estimate
from deconflow.posteriors import STRETCH, RowMixtures, RowsWithProposals
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
    log_w = (_log_prob(density, v) + data.log_likelihood(v) - log_q).double()
    top = log_w.amax(0)
    weights = (log_w - top).exp().unflatten(0, (REPEATS, points))  # (R, P, n)
    weights = _controlled(weights, (narrow - log_q).double().exp().unflatten(0, (REPEATS, points)))
    repeats = weights.mean(1)
    mean = repeats.mean(0)
    relative = (repeats.var(0) / REPEATS).sqrt() / mean.clamp_min(1e-300)
    bias = 0.5 * relative.square().clamp_max(1.0)  # of the logarithm; none is left
    log_p = mean.clamp_min(1e-300).log() + top + bias
    return Estimate(log_p.numpy(), relative.numpy(), np.zeros(len(log_p)))


def _log_prob(density: Density, v: Tensor) -> Tensor:
    """Ask a density on its own device, of points in main memory."""
    device = next(density.parameters()).device
    return density.log_prob(v.to(device)).cpu()


def _controlled(weights: Tensor, control: Tensor) -> Tensor:
    """Take off what goes together with ``control``, whose expectation is one.

    The slope is each row's own, from all its points; where it would make a mean negative the
    weights stay as they are.
    """
    both = control.flatten(0, 1) - 1
    centred = weights.flatten(0, 1) - weights.mean((0, 1))
    slope = (both * centred).mean(0) / both.var(0, unbiased=False).clamp_min(1e-300)
    better = weights - slope * (control - 1)
    positive = (better.mean(1) > 0).all(0)
    return torch.where(positive, better, weights)


def _quasi_random_draws(mixtures: RowMixtures, points: int) -> Tensor:
    """Draw ``(R P, n, D)``: one scrambled Sobol set, shifted anew for each row and repeat."""
    n, count, dim = mixtures.means.shape
    seed = int(torch.randint(2**31 - 1, (), generator=own_generator()))
    engine = SobolEngine(dim + 1, scramble=True, seed=seed)
    sobol = engine.draw(points, dtype=torch.float32)  # (P, D + 1)
    shifts = torch.rand(REPEATS, 1, n, dim + 1, generator=own_generator())
    u = ((sobol[:, None] + shifts) % 1).flatten(0, 1).to(mixtures.means.dtype)  # (R P, n, D + 1)
    shares = torch.tensor([NARROW, 1 - NARROW], dtype=u.dtype)
    edges = (shares[:, None] * mixtures.log_weights.exp()[:, None]).flatten(1).cumsum(1)
    edges = edges / edges[:, -1:]
    part = torch.searchsorted(edges, u[..., 0].mT.contiguous()).mT.clamp(max=2 * count - 1)
    stretch = torch.where(part < count, 1.0, STRETCH).to(u.dtype).unsqueeze(-1)
    tiny = torch.finfo(u.dtype).eps
    white = stretch * torch.special.ndtri(u[..., 1:].clamp(tiny, 1 - tiny))
    row = torch.arange(n).expand_as(part)
    turned = (mixtures.factors[row, part % count] @ white.unsqueeze(-1)).squeeze(-1)
    return mixtures.means[row, part % count] + turned
