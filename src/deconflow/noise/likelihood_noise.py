r"""The law of ``location - v`` for rows of which a likelihood of the truth is known.

What was measured need not be the truth with something added, as counts are not. Each value has a
likelihood :math:`L(v)`, which is taken as a density of the truth by itself; a row's location is its
mean. So rows look as those of any noise, whose law depends on what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from deconflow.noise.base import Ends, Noise, RowIndex
from deconflow.noise.catalogue import Array, as_array
from deconflow.noise.gaussian_parts import IndependentMixture
from deconflow.noise.value_likelihoods import Index, Measuring, ValueLikelihoods, different
from deconflow.randomness import own_generator

PARTS_OF_ONE, PARTS_OF_MANY = 4, 3
"""Gaussians for the likelihood of a value, in rows of one value and of several."""
STEP = 1e-4
"""Of derivatives, in widths of the likelihood."""


@dataclass(frozen=True, repr=False)
class LikelihoodNoise(Noise):
    """Noise of rows with likelihoods; made by a :class:`Reading` such as that of ``poisson()``.

    Attributes
    ----------
    laws : ValueLikelihoods
        All different likelihoods of single values.
    which : Tensor
        ``(N, M)`` numbers of these.
    location : Tensor
        ``(N, M)``, in the units of the truth.
    unit : Tensor
        ``(M,)``: this is the law of ``(location - v) / unit``.
    signs : Tensor or None
        ``(N, M)`` of mirrored rows, whose law is that of ``signs * (location - v) / unit``. Theirs
        reaches beyond the ends of the truth: folded there it is the likelihood.
    observed : Tensor or None
        Boolean ``(N, M)``: the values that :meth:`log_prob` looks at; None for all.
    """

    laws: ValueLikelihoods
    which: Tensor
    location: Tensor
    unit: Tensor
    signs: Tensor | None = None
    observed: Tensor | None = None

    additive = False
    shared = False  # type: ignore[assignment]
    independent = True  # type: ignore[assignment]
    without_waves = "values with a likelihood, as counts"

    @classmethod
    def of(
        cls, measuring: Measuring, w: Array, parameters: Mapping[str, Array], low: Any, high: Any
    ) -> LikelihoodNoise:
        """Look at values ``(N, M)``, with parameters of that shape, and ends ``(M,)`` or one."""
        rows, columns = np.meshgrid(*(np.arange(n) for n in w.shape), indexing="ij")
        where = np.stack([rows, columns], -1)
        laws, which = different(measuring, w, parameters, low, high, where)
        location = torch.from_numpy(laws.grids.mean[which])
        unit = torch.ones(w.shape[1], dtype=torch.float64)
        return cls(laws, torch.from_numpy(which), location, unit)

    @property
    def dim(self) -> int:  # type: ignore[override]
        """Number of measured values per row."""
        return len(self.unit)

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        """Number of rows."""
        return len(self.which)

    @property
    def truth_ends(self) -> Ends | None:  # type: ignore[override]
        """Ends of the truth, ``(M,)`` each; None without any."""
        which = self.which.numpy()
        if not np.isfinite([self.laws.low, self.laws.high]).any() or not len(which):
            return None
        return self.laws.low[which].max(0), self.laws.high[which].min(0)

    def within(self, low: Array, high: Array) -> LikelihoodNoise:
        """Return the same with narrower ends ``(M,)`` of the truth."""
        ends = self.truth_ends
        if ends is not None and (low == ends[0]).all() and (high == ends[1]).all():
            return self
        which = self.which.numpy()
        own = {name: value[which] for name, value in self.laws.parameters.items()}
        w, where = self.laws.w[which], self.laws.where[which]
        laws, which = different(self.laws.measuring, w, own, low, high, where)
        return replace(self, laws=laws, which=torch.from_numpy(which))

    def log_prob(self, residual: Tensor) -> Tensor:
        """Log density of residuals ``(..., N, M)``, as ``(..., N)``.

        Exact: by the likelihood itself.
        """
        v = self._truth(residual)
        log_p = self._log_prob_beyond(v) if self.signs is not None else self._log_prob_of(v)
        log_p = log_p.to(residual) + self.unit.log().to(residual)
        if self.observed is not None:
            log_p = torch.where(self.observed.to(log_p.device), log_p, 0.0)
        return log_p.sum(-1)

    def sample(self, k: int) -> Tensor:
        """Draw ``(k, N, M)``: noise of truths with nothing else known of them."""
        shape = (k, *self.which.shape)
        share = torch.rand(shape, dtype=torch.float64, generator=own_generator())
        v = torch.from_numpy(self.laws.quantiles(self.which.numpy(), share.numpy()))
        if self.signs is not None:
            v = self._one_image(v)
        return self._residual(v)

    def from_uniform(self, share: Array) -> Array | None:
        """Make noise ``(K, N, M)`` of as many uniform numbers."""
        if self.signs is not None:
            return None
        v = self.laws.quantiles(self.which.numpy(), share)
        return as_array(self._residual(torch.from_numpy(v)))

    def measure(self, clean: Tensor, w: Tensor) -> tuple[Tensor, LikelihoodNoise]:
        """Measure clean values anew, as their rows were, which now have the values ``w``."""
        which = self.which.numpy()
        seed = int(torch.randint(2**62, (), generator=own_generator()))
        v = as_array(self._truth(w - clean))
        new = self.laws.simulate(which, v, np.random.default_rng(seed))
        laws = self.laws
        own = {name: value[which] for name, value in laws.parameters.items()}
        ends = laws.low[which], laws.high[which]
        made = LikelihoodNoise.of(laws.measuring, new, own, *ends)
        noise = replace(made, unit=self.unit, signs=self.signs, observed=self.observed)
        moved = self._signed(made.location - self.location) / self.unit.double().cpu()
        return w + moved.to(w), noise

    def mean(self) -> Tensor:
        """Means ``(N, M)`` of the noise."""
        mean = torch.from_numpy(self.laws.grids.mean[self.which.numpy()])
        return self._residual(mean)

    def variance(self) -> Tensor:
        """Variances ``(N, M)``."""
        variance = torch.from_numpy(self.laws.grids.variance[self.which.numpy()])
        return (variance / self.unit.double().cpu().square()).to(self.unit)

    def features(self) -> Tensor:
        """Standard deviations, then means."""
        return torch.cat([self.variance().sqrt(), self.mean()], -1)

    def as_mixture(self) -> IndependentMixture:
        """Write the law as a mixture of Gaussians, folded at the ends of the truth.

        An approximation: at the mean over a likelihood of counts, the mixture's logarithm is less
        by at most 0.005 nats in rows of one value, and 0.01 in others.
        """
        which = self.which.numpy()
        shapes, shape_of = self._gaussians()
        grids, unit = self.laws.grids, as_array(self.unit)
        mode = torch.from_numpy(grids.mode[which])
        location = as_array(self._residual(mode))
        scale = -as_array(self._signed(torch.from_numpy(grids.width[which]))) / unit
        return IndependentMixture(shapes, shape_of[which], location, scale)

    def restrict(self, observed: Tensor) -> LikelihoodNoise:
        """Return the law of the observed values."""
        return replace(self, observed=observed)

    def mirrored(self, signs: Tensor) -> LikelihoodNoise:
        """Return the law of rows mirrored where ``signs``, ``(N, M)``, are negative."""
        return replace(self, signs=signs.double())

    def divide(self, scale: Tensor) -> Self:
        """Return the law of ``n / scale``."""
        return replace(self, unit=self.unit * scale.to(self.unit))

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Self:
        """Move to another precision or device.

        Likelihoods are computed in double precision by the processor all the same; what they
        answer follows ``unit``.
        """
        return replace(self, unit=self.unit.to(dtype=dtype, device=device))

    def _take(self, rows: RowIndex, n_rows: int) -> Self:
        return replace(
            self,
            which=self.which[rows],
            location=self.location[rows],
            signs=None if self.signs is None else self.signs[rows],
            observed=None if self.observed is None else self.observed[rows],
        )

    # -- truths and residuals -------------------------------------------------------------------

    def _signed(self, values: Tensor) -> Tensor:
        return values if self.signs is None else self.signs * values

    def _residual(self, v: Tensor) -> Tensor:
        return (self._signed(self.location - v) / self.unit.double().cpu()).to(self.unit)

    def _truth(self, residual: Tensor) -> Tensor:
        """Return truths of residuals; one that rounding has moved across an end is at the end."""
        unit = self.unit.double().cpu()
        v = self.location - self._signed(residual.cpu().double() * unit)
        rounding = 50 * torch.finfo(residual.dtype).eps * (unit + self.location.abs())
        low, high = self._ends()
        near = (v >= low - rounding) & (v <= high + rounding)
        return torch.where(near, v.clamp(low, high), v)

    def _ends(self) -> tuple[Tensor, Tensor]:
        which = self.which.numpy()
        return torch.from_numpy(self.laws.low[which]), torch.from_numpy(self.laws.high[which])

    def _log_prob_of(self, v: Tensor) -> Tensor:
        low, high = self._ends()
        inside = (v >= low) & (v <= high)
        middle = torch.from_numpy(self.laws.grids.mean[self.which.numpy()])
        log_p: Tensor = _LogProb.apply(torch.where(inside, v, middle), self.laws, self.which)
        return torch.where(inside, log_p, -torch.inf)

    # -- beyond the ends ------------------------------------------------------------------------

    def _log_prob_beyond(self, v: Tensor) -> Tensor:
        r"""Log density of truths ``v`` on both sides of the ends, whose folded form is exact.

        :math:`L(x) \, m(v) / \sum_s m(R_s x)` with ``v`` folded to ``x`` and the mixture ``m``.
        """
        low, high = self._ends()
        x = torch.where(v < low, 2 * low - v, torch.where(v > high, 2 * high - v, v))
        inside = (x >= low) & (x <= high)  # not so from one mirror image on
        shares = torch.logsumexp(torch.stack([self._log_mixture(u) for u in self._images(x)]), 0)
        log_p = self._log_prob_of(x) + self._log_mixture(v) - shares
        return torch.where(inside, log_p, -torch.inf)

    def _one_image(self, x: Tensor) -> Tensor:
        """Move truths to one of their images each, by the mixture's shares."""
        images = torch.stack(self._images(x))
        log_shares = torch.stack([self._log_mixture(u) for u in images])
        below = torch.softmax(log_shares, 0).cumsum(0)
        u = torch.rand(x.shape, dtype=torch.float64, generator=own_generator())
        chosen = (below < u).sum(0).clamp(max=len(images) - 1)
        return images.gather(0, chosen.unsqueeze(0))[0]

    def _images(self, x: Tensor) -> list[Tensor]:
        return [x, *(2 * end - x for end in self._ends() if end.isfinite().any())]

    def _gaussians(self) -> tuple[Any, Index]:
        return self.laws.gaussians(PARTS_OF_ONE if self.dim == 1 else PARTS_OF_MANY)

    def _log_mixture(self, v: Tensor) -> Tensor:
        """Log of the mixture in the units of its likelihood; minus infinity at infinity."""
        which = self.which.numpy()
        (weights, means, variances), shape_of = self._gaussians()
        grids = self.laws.grids
        mode, width = (torch.from_numpy(x[which]) for x in (grids.mode, grids.width))
        z = ((v - mode) / width).unsqueeze(-1)
        finite = z.isfinite()
        c, b, S = (torch.from_numpy(x[shape_of[which]]) for x in (weights, means, variances))
        log_p = c.log() - 0.5 * (S.log() + (torch.where(finite, z, 0.0) - b).square() / S)
        log_p = torch.logsumexp(log_p, -1)
        return torch.where(finite.squeeze(-1), log_p, -torch.inf)


class _LogProb(torch.autograd.Function):
    """A likelihood of numpy's, with its slope by differences."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, laws: ValueLikelihoods, which: Tensor) -> Tensor:
        numbers = np.broadcast_to(which.numpy(), v.shape)
        ctx.laws, ctx.numbers = laws, numbers
        ctx.save_for_backward(v)
        return torch.from_numpy(laws.log_prob(numbers, v.detach().numpy()))

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None, None]:
        (v,), laws, numbers = ctx.saved_tensors, ctx.laws, ctx.numbers
        step = STEP * laws.grids.width[numbers]
        at = [np.clip(v.numpy() + s, laws.low[numbers], laws.high[numbers]) for s in (-step, step)]
        below, above = (laws.log_prob(numbers, x) for x in at)
        with np.errstate(invalid="ignore"):
            slope = (above - below) / (at[1] - at[0])
        return grad[0] * torch.from_numpy(np.where(np.isfinite(slope), slope, 0.0)), None, None
