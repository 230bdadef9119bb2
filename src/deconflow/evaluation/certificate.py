"""The certificate: what a fit can say of itself, in figures and in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor

from deconflow.densities import Density, simulate
from deconflow.evaluation.pareto import pareto_k
from deconflow.observations import Observations
from deconflow.posteriors.defensive import Defensive, PreparedRows
from deconflow.posteriors.resampling import WeightedDraws
from deconflow.xd.mixture import Mixture

LOWEST_EFFICIENCY, LOW_EFFICIENCY = 0.02, 0.1
LARGEST_K, MOST_ABOVE = 0.7, 0.1
LARGEST_GAP = 0.1
LOWEST_REFRESH = 0.05
DRAWS_AT_ONCE = 32


@dataclass(frozen=True)
class Certificate:
    """How far a fitted density can be trusted.

    Attributes
    ----------
    held_out, held_out_error : float
        Mean ``log p(w)`` of rows by fits that have not seen them, and its standard error.
    gain, gain_error : float
        How much of that is the flows' gain over the mixture, row by row; zero without flows.
    efficiency : tuple of float
        Effective sample size of the proposals, as a share of the draws: the 5 % quantile of the
        rows, and the median.
    refresh_rate : tuple of float
        How often the rows' chains moved: 5 % quantile and median; ones without chains.
    pareto_k : tuple of float
        Tail of the importance weights: the median, and the share of rows above 0.7.
    gap, gap_error : float
        Upper less lower bound of ``log p(w)`` on simulated rows.
    """

    held_out: float
    held_out_error: float
    gain: float
    gain_error: float
    efficiency: tuple[float, float]
    refresh_rate: tuple[float, float]
    pareto_k: tuple[float, float]
    gap: float
    gap_error: float

    @property
    def warnings(self) -> list[str]:
        """What is wrong, in words; empty if nothing is."""
        found = []
        if self.efficiency[1] < LOWEST_EFFICIENCY:
            found.append(
                f"half of the rows have an effective sample size under {self.efficiency[1]:.1%} "
                "of their draws: posteriors and log p(w) are rough"
            )
        if self.pareto_k[1] > MOST_ABOVE and self.efficiency[0] < LOW_EFFICIENCY:
            found.append(
                f"the importance weights of {self.pareto_k[1]:.0%} of the rows have a heavy tail "
                "(Pareto k above 0.7): ask for more draws there, or look at those rows"
            )
        if self.gap > LARGEST_GAP:
            found.append(
                f"lower and upper bound of log p(w) differ by {self.gap:.2f} on simulated rows: "
                "the posterior is not resolved"
            )
        if self.refresh_rate[0] < LOWEST_REFRESH:
            found.append(
                f"the chains of one row in twenty moved at under {self.refresh_rate[0]:.1%} of "
                "their visits: the fit may still carry its start"
            )
        return found

    @property
    def trusted(self) -> bool:
        """Whether nothing is wrong."""
        return not self.warnings

    def in_words(self) -> str:
        """Say it in a few lines."""
        lines = [
            f"held-out log p(w)       {self.held_out:.4f} +- {self.held_out_error:.4f} a row",
            f"effective sample size   {self.efficiency[1]:.0%} of the draws (median), "
            f"{self.efficiency[0]:.0%} (worst twentieth)",
            f"Pareto k                {self.pareto_k[0]:.2f} (median), above 0.7 in "
            f"{self.pareto_k[1]:.1%} of rows",
            f"bounds of log p(w)      {self.gap:.4f} +- {self.gap_error:.4f} apart, simulated rows",
        ]
        if self.gain_error > 0:
            lines += [
                f"flows' gain over XD     {self.gain:+.4f} +- {self.gain_error:.4f} a row",
                f"chains moved            {self.refresh_rate[1]:.0%} of visits (median), "
                f"{self.refresh_rate[0]:.0%} (worst twentieth)",
            ]
        verdict = [f"CAUTION: {warning}." for warning in self.warnings]
        return "\n".join(lines + (verdict or ["No reason for doubt was found."]))

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Certificate:
        """Take what :meth:`as_dict` gave."""
        known: dict[str, Any] = {}
        for name in (field.name for field in fields(cls)):
            value = values[name]
            known[name] = tuple(value) if isinstance(value, list) else value
        return cls(**known)


@dataclass(frozen=True)
class HeldOut:
    """Rows by fits that have not seen them.

    Attributes
    ----------
    log_p, weights : Tensor
        ``(N,)`` log-likelihood and weight of each row.
    gain : Tensor or None
        How much of its log-likelihood is the flows' gain over the mixture.
    """

    log_p: Tensor
    weights: Tensor
    gain: Tensor | None = None


@torch.no_grad()
def certify(
    density: Density,
    mixture: Mixture,
    data: Observations,
    held_out: HeldOut,
    *,
    draws: int,
    refresh_rate: Tensor | None,
) -> Certificate:
    """Look at a density in standardised units, on ``data`` and on rows simulated like them."""
    like = next(density.parameters()).dtype
    proposal = Defensive()
    rows = PreparedRows.of(data, mixture, like).to(dtype=like)
    seen = _weigh(density, proposal, rows, proposal.sample(rows, draws))
    gaps = _gap(density, proposal, mixture, data.to(dtype=like), draws)
    gap = _mean_and_error(gaps, torch.ones_like(gaps))
    efficiency = seen.effective_sample_size() / draws
    k = pareto_k(seen.log_weights)
    gain = torch.zeros_like(held_out.log_p) if held_out.gain is None else held_out.gain
    return Certificate(
        *_mean_and_error(held_out.log_p, held_out.weights),
        *_mean_and_error(gain, held_out.weights),
        efficiency=_low_and_median(efficiency),
        refresh_rate=(1.0, 1.0) if refresh_rate is None else _low_and_median(refresh_rate),
        pareto_k=(float(k.median()), float((k > LARGEST_K).double().mean())),
        gap=gap[0],
        gap_error=gap[1],
    )


def _weigh(density: Density, proposal: Defensive, rows: PreparedRows, v: Tensor) -> WeightedDraws:
    log_p = torch.cat([density.log_prob(part) for part in v.split(DRAWS_AT_ONCE)])
    return WeightedDraws(v, log_p + proposal.log_ratio(rows, v))


def _gap(
    density: Density, proposal: Defensive, mixture: Mixture, data: Observations, draws: int
) -> Tensor:
    """Return upper less lower bound of ``log p(w)`` for each simulated row, ``(N,)``.

    Both are importance-weighted averages. The upper one has the true value of the row, which is an
    exact draw from its posterior, among its draws (Sobolev and Vetrov 2019,
    https://arxiv.org/abs/1905.03290).
    """
    pairs = simulate(density, data)
    rows = PreparedRows.of(pairs.observations.to(dtype=torch.float64), mixture, data.w.dtype)
    rows = rows.to(dtype=data.w.dtype)
    weighed = _weigh(
        density, proposal, rows, torch.cat([pairs.v[None], proposal.sample(rows, draws)])
    )
    lower = WeightedDraws(weighed.v[1:], weighed.log_weights[1:]).log_marginal()
    upper = WeightedDraws(weighed.v[:-1], weighed.log_weights[:-1]).log_marginal()
    return upper - lower


def _mean_and_error(values: Tensor, weights: Tensor) -> tuple[float, float]:
    values, shares = values.double(), weights.double() / weights.double().sum()
    mean = (shares * values).sum()
    return float(mean), float((shares * (values - mean)).square().sum().sqrt())


def _low_and_median(values: Tensor) -> tuple[float, float]:
    values = values.double()
    return float(values.quantile(0.05)), float(values.median())
