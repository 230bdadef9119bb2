r"""What is trained: plain likelihoods, the paper's bounds, and gradients without bias.

Gradients of ``log p(w)`` are without bias by Russian roulette, or by coupled chains.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from deconflow.densities import Density, simulate, without_dropout
from deconflow.observations import Observations, Pairs
from deconflow.posteriors import PosteriorModel, couple, weigh
from deconflow.randomness import drawn_again, own_generator

#: Latent points whose activations are kept at a time; those beyond are computed again.
POINTS_AT_ONCE = 10_000


class NumberedRows(Pairs):
    """Observations with their numbers in the data set, by which a chain finds its state."""

    @property
    def row(self) -> Tensor:
        """The numbers, which stand in the place of true values."""
        return self.v


#: Data of the fit loop: rows, by index, with optional weights.
RowData = Observations | Pairs


class Objective(nn.Module, ABC):
    """A per-row objective; its parameters are those of the models it holds.

    Attributes
    ----------
    draws : int
        Points of the latent space per row; the loop sizes its chunks by it.
    """

    draws: int = 1

    @abstractmethod
    def forward(self, data) -> Tensor:  # noqa: ANN001
        """Return ``(N,)`` numbers whose weighted mean is to be maximised."""


class MaximumLikelihood(Objective):
    r"""The log density :math:`\log p(w)` of the measurements taken as they are.

    On clean rows this is an ordinary density fit; on noisy rows it is the fit without
    deconvolution that the paper compares with.
    """

    def __init__(self, density: Density) -> None:
        super().__init__()
        self.density = density

    def forward(self, data: Observations) -> Tensor:
        """Return the log density of each row."""
        if data.observed is not None or data.projection is not None:
            raise ValueError(
                "Expected complete rows for plain maximum likelihood; "
                "got missing values or a projection."
            )
        return self.density.log_prob(data.w)


class PosteriorLikelihood(Objective):
    r"""The log density :math:`\log q(v | w)` of given pairs, as for simulated or exact ones."""

    def __init__(self, posterior: PosteriorModel) -> None:
        super().__init__()
        self.posterior = posterior

    def forward(self, data: Pairs) -> Tensor:
        """Return the log density of each pair."""
        return self.posterior.log_prob(data.observations, data.v.unsqueeze(0)).squeeze(0)


class Amortised(Objective):
    """An objective of a density and a posterior, from ``n_draws`` weighted draws per row."""

    def __init__(self, density: Density, posterior: PosteriorModel, n_draws: int) -> None:
        super().__init__()
        self.density, self.posterior, self.n_draws = density, posterior, n_draws
        self.draws = n_draws


class ELBO(Amortised):
    r"""The evidence lower bound with ``K`` draws.

    .. math:: L(K) = \frac{1}{K} \sum_k \log \frac{p_n(w - v_k) \, p(v_k)}{q(v_k)}

    References
    ----------
    Dockhorn et al. (2020), https://arxiv.org/abs/2006.09396
    """

    def forward(self, data: Observations) -> Tensor:
        """Average the log weights."""
        return weigh(self.density, self.posterior, data, self.n_draws).log_weights.mean(0)


class ImportanceWeighted(Amortised):
    r"""The importance-weighted bound with ``K`` draws.

    .. math:: L_{IW}(K) = \log \frac{1}{K} \sum_k \frac{p_n(w - v_k) \, p(v_k)}{q(v_k)}

    References
    ----------
    Burda et al. (2016), https://arxiv.org/abs/1509.00519
    """

    def forward(self, data: Observations) -> Tensor:
        """Average the weights."""
        return weigh(self.density, self.posterior, data, self.n_draws).log_marginal()


class Roulette(Amortised):
    r"""An unbiased estimate of :math:`\log p(w)`, with a level drawn for each row.

    The importance-weighted bounds :math:`L_{IW}(K)` rise to :math:`\log p(w)`. Their differences
    are summed up to a random level, each divided by the chance of getting that far, which leaves
    the expectation at the limit of the sum. SUMO adds one draw at a time:
    :math:`\Delta_K = L_{IW}(K + 1) - L_{IW}(K)` has a second moment of order :math:`1 / K^2`, so
    with :math:`c_K = P(\text{level} \ge K)` the variance is of order :math:`\sum_K 1 / (K^2 c_K)`
    and the expected number of draws :math:`\sum_K c_K`. By Cauchy and Schwarz their product is at
    least :math:`(\sum_K 1 / K)^2`: no choice of chances makes both finite.

    So the draws are doubled at each level, and both halves are subtracted from the whole:

    .. math:: \Delta_l = L_{IW}(m 2^{l+1}) -
              \frac{1}{2} (L_{IW}^{left}(m 2^l) + L_{IW}^{right}(m 2^l)).

    The halves' first-order errors cancel, which leaves a second moment of order
    :math:`2^{-2 l}` for :math:`2^l` times the draws. With :math:`P(\text{level} \ge l) =
    2^{-r l}` the variance is of order :math:`\sum_l 2^{(r - 2) l}`, the expected number of draws
    :math:`\sum_l 2^{(1 - r) l}`: both are finite for every :math:`1 < r < 2`, if the weights
    have a finite fourth moment, and with :math:`r = 3/2`, in the middle, a row costs 2.2
    :math:`m` draws in the mean. The number of draws has no finite variance: rows of a high level
    are worked through in parts, and their activations are computed again when they are needed.
    No level is cut off.

    The estimate's gradient for the density is that of :math:`\log p(w)`, without bias. Its
    gradient for the posterior would be zero in the mean; the posterior ascends a bound, or
    descends the forward KL, instead (:func:`proposal_step`). Dropout in the density makes it
    another, random one: leave it off.

    Parameters
    ----------
    density, posterior
        What is trained.
    draws
        ``m``, the draws of the lowest level.
    decay
        ``r``, between 1 and 2.

    References
    ----------
    Luo et al. (2020), "SUMO", https://arxiv.org/abs/2004.00353;
    Blanchet and Glynn (2015), "Unbiased Monte Carlo for optimization and functions of expectations
    via multi-level randomization";
    Shi and Cornish (2021), https://proceedings.mlr.press/v130/shi21d.html
    """

    def __init__(
        self, density: Density, posterior: PosteriorModel, draws: int, *, decay: float = 1.5
    ) -> None:
        super().__init__(density, posterior, draws)
        self.decay = decay
        self.draws = math.ceil(draws * (1 - 2**-decay) / (1 - 2 ** (1 - decay)))

    def forward(self, data: Observations) -> Tensor:
        """Return the estimate of each row."""
        value = self.estimate(data, self.draw_levels(len(data)))
        if not torch.is_grad_enabled():
            return value
        step = proposal_step(self.density, self.posterior, data, self.n_draws)
        return value + (step - step.detach())

    def draw_levels(self, n: int) -> Tensor:
        """Draw a level for each of ``n`` rows, with ``P(level >= l) = 2^(-decay l)``."""
        u = 1 - torch.rand(n, dtype=torch.float64, generator=own_generator())  # in (0, 1]
        return torch.floor(-torch.log2(u) / self.decay).long()

    def estimate(self, data: Observations, levels: Tensor) -> Tensor:
        """Return the estimates of rows whose levels are given, ``(N,)``."""
        counts = 2**levels
        owners = torch.arange(len(data)).repeat_interleave(counts)
        log_weights = [
            self._part(data[part], keep=i == 0)
            for i, part in enumerate(owners.split(max(1, POINTS_AT_ONCE // self.n_draws)))
        ]
        blocks = torch.cat(log_weights, 1).logsumexp(0) - math.log(self.n_draws)
        starts = counts.cumsum(0) - counts
        values = torch.zeros_like(blocks[: len(data)])
        for level in levels.unique().tolist():
            mine = torch.nonzero(levels == level).squeeze(1)
            places = starts[mine] + torch.arange(2**level).unsqueeze(1)
            values[mine] = telescope(blocks[places], self.decay)
        return values

    def _part(self, data: Observations, keep: bool) -> Tensor:
        """Weigh draws, with the density's gradient; its activations are kept or made again."""
        with without_dropout(self.posterior):
            v, log_q = self.posterior.sample(data, self.n_draws)
            rest = data.log_likelihood(v) - log_q
        if keep or not torch.is_grad_enabled():
            return self.density.log_prob(v) + rest
        again = checkpoint(
            self.density.log_prob,
            v,
            use_reentrant=False,
            preserve_rng_state=own_generator() is None,
            context_fn=drawn_again,
        )
        return again + rest


def telescope(blocks: Tensor, decay: float) -> Tensor:
    """Sum the differences of all levels, each by its chance, to ``(N,)``.

    ``blocks`` are the bounds of ``2^l`` blocks of draws, ``(2^l, N)``. Every level is the mean over
    all that can be made of them.
    """
    total, chance = blocks.mean(0), 1.0
    while len(blocks) > 1:
        halves = blocks.unflatten(0, (-1, 2))
        blocks = halves.logsumexp(1) - math.log(2)
        chance *= 2**-decay
        total = total + (blocks - halves.mean(1)).mean(0) / chance
    return total


class CoupledChains(Amortised):
    r"""Ascent on :math:`\log p(w)` by coupled chains.

    .. math:: \nabla \log p(w) = E_{p(v | w)}[\nabla \log p(v)],

    with the expectation estimated without bias by :func:`~deconflow.posteriors.couple`. The
    posterior proposes; it learns by a step of its own (:func:`proposal_step`), and the better it
    is, the sooner the chains meet. The number of each row is the importance-weighted bound of
    ``draws`` draws.

    Parameters
    ----------
    density, posterior
        What is trained.
    draws
        Points that a chain weighs at each step, at least two.
    burn_in, steps
        The chains' averages run from ``burn_in`` to ``steps``.

    References
    ----------
    Ruiz et al. (2021), "Unbiased gradient estimation for variational auto-encoders using coupled
    Markov chains", https://arxiv.org/abs/2010.01845
    """

    def __init__(
        self,
        density: Density,
        posterior: PosteriorModel,
        draws: int,
        *,
        burn_in: int = 2,
        steps: int = 6,
    ) -> None:
        super().__init__(density, posterior, draws)
        self.options = {"burn_in": burn_in, "steps": steps}
        self.draws = 2 * draws + (draws - 1) * max(1, steps)

    def forward(self, data: Observations) -> Tensor:
        """Return the bound of each row, with the gradients of both steps."""
        density, posterior = self.density, self.posterior
        if not torch.is_grad_enabled():
            with without_dropout(density, posterior):
                return weigh(density, posterior, data, self.n_draws).log_marginal()
        try:
            with without_dropout(density, posterior):
                found = couple(density, posterior, data, self.n_draws, **self.options)
        except FloatingPointError:  # no number, which the fit loop counts and skips
            return math.nan * density.log_prob(data.w.new_zeros(len(data), data.latent_dim))
        step = found.expectation(density.log_prob(found.v))
        step = step + proposal_step(density, posterior, data, self.n_draws)
        return found.log_marginal.detach() + (step - step.detach())


def proposal_step(
    density: Density, posterior: PosteriorModel, data: Observations, k: int
) -> Tensor:
    r"""Return ``(N,)`` numbers whose gradient reaches the posterior only.

    An unbiased estimate of ``log p(w)`` has the same expectation whatever the posterior, so its
    gradient teaches the posterior nothing but noise: the posterior gets this step of its own.
    The importance-weighted bound of ``k`` draws where draws are differentiable, forward KL on
    simulated pairs where they are not; zeros for a posterior with nothing to learn.
    """
    if not any(parameter.requires_grad for parameter in posterior.parameters()):
        return data.w.new_zeros(len(data))
    if not posterior.differentiable:
        return PosteriorLikelihood(posterior)(simulate(density, data))
    learning = [parameter for parameter in density.parameters() if parameter.requires_grad]
    try:
        for parameter in learning:
            parameter.requires_grad_(False)
        return weigh(density, posterior, data, k).log_marginal()
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)
