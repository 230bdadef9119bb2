r"""Unbiased posterior expectations from pairs of coupled chains."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from deconflow.densities import Density
from deconflow.observations import Observations
from deconflow.posteriors.mixtures import PosteriorModel, WeightedDraws, weigh
from deconflow.randomness import own_generator

MOST_STEPS = 10_000
#: Steps whose proposals are drawn by one call, for rows whose chains have not met in time.
STEPS_AT_ONCE = 4


@dataclass(frozen=True)
class SignedDraws:
    r"""Points whose signed weights add up to unbiased posterior expectations.

    .. math:: E \Bigl[ \sum_{p : i_p = i} a_p h(v_p) \Bigr] = E_{p(v | w_i)}[h(v)]

    Attributes
    ----------
    v, weights, rows : Tensor
        Points ``(P, D)``, their weights ``a`` of either sign, ``(P,)``, and their rows, ``(P,)``.
    meeting : Tensor
        The step at which the chains of each row met, ``(N,)``.
    log_marginal : Tensor
        The importance-weighted bound of each row, ``(N,)``, from the draws that start a chain.
    """

    v: Tensor
    weights: Tensor
    rows: Tensor
    meeting: Tensor
    log_marginal: Tensor

    def expectation(self, h: Tensor) -> Tensor:
        """Return the expectation of each row, ``(N, ...)``, of the values ``h`` at the points."""
        weighted = h * self.weights.view(-1, *[1] * (h.dim() - 1))
        return h.new_zeros(len(self.meeting), *h.shape[1:]).index_add(0, self.rows, weighted)


@torch.no_grad()
def couple(
    density: Density,
    posterior: PosteriorModel,
    data: Observations,
    k: int,
    *,
    burn_in: int = 2,
    steps: int = 6,
) -> SignedDraws:
    r"""Run two chains per row until they have met, and weigh their points.

    A chain keeps one point; at each step it weighs that and ``k - 1`` fresh draws of the
    posterior, and keeps one by weight (iterated sampling importance resampling), which leaves the
    exact posterior invariant. A second chain ``Y`` runs one step behind ``X``, sees the same
    draws, and takes the same one as often as its weights allow; from the step :math:`\tau` at which
    both took the same draw they are one. With :math:`b` for ``burn_in`` and :math:`m` for
    ``steps``,

    .. math:: H_{b:m} = \frac{1}{m - b + 1} \sum_{t=b}^m h(X_t) + \sum_{t=b+1}^{\tau-1}
              \min \Bigl( 1, \frac{t - b}{m - b + 1} \Bigr) (h(X_t) - h(Y_{t-1}))

    has exactly the posterior's expectation: the second sum takes the bias of the first away.
    Proposals of the first ``steps`` are drawn at once, later ones a few steps ahead for the rows
    whose chains are still apart; the others cost nothing more.

    References
    ----------
    Glynn and Rhee (2014), https://arxiv.org/abs/1409.4302;
    Jacob, O'Leary, Atchadé (2020), https://arxiv.org/abs/1708.03625;
    Ruiz et al. (2021), https://arxiv.org/abs/2010.01845
    """
    at_once = max(1, steps)
    drawn = weigh(density, posterior, data, 2 * k + (k - 1) * at_once)
    first, second, *queue = drawn.split([k, k, *[k - 1] * at_once])
    for draws in (first, second, drawn):
        _refuse_broken(draws.log_weights)
    rows = torch.arange(len(data), device=data.w.device)
    ahead, behind = (_taken(each, _pick(each.normalised.mT)) for each in (first, second))
    pairs = _Pairs(rows, ahead, behind, torch.zeros_like(rows, dtype=torch.bool))
    meeting = torch.zeros_like(rows)
    points = list(_points(0, pairs, burn_in, steps))
    ahead = _joined(ahead, queue.pop(0))
    pairs.ahead = _taken(ahead, _pick(_chances(ahead)))
    for t in range(1, MOST_STEPS + 1):
        points += _points(t, pairs, burn_in, steps)
        if t >= steps and bool(pairs.met.all()):
            v, weights, rows = (torch.cat(column) for column in zip(*points, strict=True))
            return SignedDraws(v, weights, rows, meeting, first.log_marginal())
        if not queue:
            pairs = pairs.take(~pairs.met)
            drawn = weigh(density, posterior, data[pairs.rows], (k - 1) * STEPS_AT_ONCE)
            _refuse_broken(torch.cat([drawn.log_weights, pairs.ahead.log_weights]))
            queue = drawn.split([k - 1] * STEPS_AT_ONCE)
        now = pairs.advance(queue.pop(0))
        meeting[now.rows[now.met & ~pairs.met]] = t + 1
        pairs = now
    raise RuntimeError(
        f"Expected coupled chains to meet within {MOST_STEPS} steps; got {int((~pairs.met).sum())} "
        "rows whose chains did not. Draw more proposals per step, or use a posterior that is "
        "nearer to the exact one."
    )


def _refuse_broken(log_weights: Tensor) -> None:
    """Raise where a weight is not a number, or where no point of a row has any weight."""
    bad = ~log_weights.amax(0).isfinite()
    if bad.any():
        raise FloatingPointError(
            f"Expected draws with finite weights for the chains; got {int(bad.sum())} rows without."
        )


def couple_choices(p: Tensor, q: Tensor, same_state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Draw one index from each row of ``p`` and ``q``, equal as often as can be.

    Parameters
    ----------
    p, q
        Probabilities ``(N, K)``.
    same_state
        Boolean ``(N, K)``: where the same index means the same state.

    Returns
    -------
    tuple
        Both indices, and whether they are one state, each ``(N,)``.
    """
    common = torch.minimum(p, q) * same_state
    together = p.new_empty(len(p)).uniform_(generator=own_generator(p.device)) < common.sum(-1)
    shared = _pick(common, otherwise=p)
    i = torch.where(together, shared, _pick(p - common, otherwise=p))
    j = torch.where(together, shared, _pick(q - common, otherwise=q))
    return i, j, together


@dataclass
class _Pairs:
    """Two chains for each of some rows, each with a kept point: ``X`` is a step ahead of ``Y``."""

    rows: Tensor
    ahead: WeightedDraws
    behind: WeightedDraws
    met: Tensor

    def advance(self, fresh: WeightedDraws) -> "_Pairs":
        """Take a coupled step: index 0, the own point, is one state only after the meeting."""
        x, y = _joined(self.ahead, fresh), _joined(self.behind, fresh)
        same_state = torch.ones_like(x.log_weights.mT, dtype=torch.bool)
        same_state[:, 0] = self.met
        i, j, together = couple_choices(_chances(x), _chances(y), same_state)
        return _Pairs(
            self.rows,
            ahead=_taken(x, i),
            behind=_taken(y, torch.where(self.met, i, j)),
            met=self.met | together,
        )

    def take(self, which: Tensor) -> "_Pairs":
        """Keep some rows."""
        ahead, behind = (
            WeightedDraws(chain.v[:, which], chain.log_weights[:, which])
            for chain in (self.ahead, self.behind)
        )
        return _Pairs(self.rows[which], ahead, behind, self.met[which])


def _joined(kept: WeightedDraws, fresh: WeightedDraws) -> WeightedDraws:
    log_weights = torch.cat([kept.log_weights, fresh.log_weights])
    return WeightedDraws(torch.cat([kept.v, fresh.v]), log_weights)


def _chances(draws: WeightedDraws) -> Tensor:
    """Probabilities ``(N, K)`` of the draws."""
    return torch.softmax(draws.log_weights.mT, -1)


def _taken(draws: WeightedDraws, index: Tensor) -> WeightedDraws:
    """Keep one draw for each row: that with the number ``index``."""
    rows = torch.arange(len(index), device=index.device)
    return WeightedDraws(draws.v[index, rows][None], draws.log_weights[index, rows][None])


def _points(
    t: int, pairs: _Pairs, burn_in: int, steps: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Points of a step, with their weights and rows: first those of the time average."""
    share = 1 / (steps - burn_in + 1)
    x, y, rows = pairs.ahead.v[0], pairs.behind.v[0], pairs.rows
    if burn_in <= t <= steps:
        yield x, x.new_full((len(x),), share), rows
    apart = ~pairs.met
    if t > burn_in and apart.any():
        weights = x.new_full((int(apart.sum()),), min(1.0, (t - burn_in) * share))
        yield x[apart], weights, rows[apart]
        yield y[apart], -weights, rows[apart]


def _pick(masses: Tensor, otherwise: Tensor | None = None) -> Tensor:
    """Draw an index by the masses of each row, or by ``otherwise`` in rows without any."""
    if otherwise is not None:
        masses = torch.where(masses.sum(-1, keepdim=True) > 0, masses, otherwise)
    return torch.multinomial(masses, 1, generator=own_generator(masses.device)).squeeze(1)
