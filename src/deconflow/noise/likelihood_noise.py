r"""The law of ``location - v`` for rows of which a likelihood of the truth is known.

What was measured need not be the truth with something added, as counts are not. Each value has a
likelihood :math:`L(v)`, which is taken as a density of the truth by itself; a row's location is its
mean. So rows look as those of any noise, whose law depends on what was measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.special import logsumexp

from deconflow._types import Array, IntArray
from deconflow.checks import as_array, is_torch_array, like, moved
from deconflow.noise.base import Ends, Noise
from deconflow.noise.gaussian_parts import IndependentMixture
from deconflow.noise.table_noise import total
from deconflow.noise.value_likelihoods import Measuring, ValueLikelihoods, different
from deconflow.randomness import own_rng

#: Gaussians for the likelihood of a value, in rows of one value and of several.
PARTS_OF_ONE, PARTS_OF_MANY = 4, 3
EPS = float(np.finfo(float).eps)
#: Of derivatives, in widths of the likelihood.
STEP = 1e-4


@dataclass(frozen=True, repr=False)
class LikelihoodNoise(Noise):
    """Noise of rows with likelihoods; made by a :class:`Reading` such as that of ``poisson()``.

    Attributes
    ----------
    laws : ValueLikelihoods
        All different likelihoods of single values.
    which : array
        ``(N, M)`` numbers of these.
    location : array
        ``(N, M)``, in the units of the truth.
    unit : array
        ``(M,)``: this is the law of ``(location - v) / unit``.
    signs : array or None
        ``(N, M)`` of mirrored rows, whose law is that of ``signs * (location - v) / unit``. Theirs
        reaches beyond the ends of the truth: folded there it is the likelihood.
    observed : array or None
        Boolean ``(N, M)``: the values that :meth:`log_prob` looks at; None for all.
    """

    laws: ValueLikelihoods
    which: IntArray
    location: Array
    unit: Any
    signs: Array | None = None
    observed: Any = None
    by_row = ("which", "location", "signs")

    additive = False
    shared = False  # type: ignore[assignment]
    independent = True  # type: ignore[assignment]
    without_waves = "values with a likelihood, as counts"

    @classmethod
    def of(
        cls, measuring: Measuring, w: Array, parameters: Mapping[str, Array], low: Any, high: Any
    ) -> "LikelihoodNoise":
        """Look at values ``(N, M)``, with parameters of that shape, and ends ``(M,)`` or one."""
        rows, columns = np.meshgrid(*(np.arange(n) for n in w.shape), indexing="ij")
        where = np.stack([rows, columns], -1)
        laws, which = different(measuring, w, parameters, low, high, where)
        return cls(laws, which, laws.grids.mean[which], np.ones(w.shape[1]))

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
        if not np.isfinite([self.laws.low, self.laws.high]).any() or not len(self.which):
            return None
        return self.laws.low[self.which].max(0), self.laws.high[self.which].min(0)

    def within(self, low: Array, high: Array) -> "LikelihoodNoise":
        """Return the same with narrower ends ``(M,)`` of the truth."""
        ends = self.truth_ends
        if ends is not None and (low == ends[0]).all() and (high == ends[1]).all():
            return self
        own = {name: value[self.which] for name, value in self.laws.parameters.items()}
        w, where = self.laws.w[self.which], self.laws.where[self.which]
        laws, which = different(self.laws.measuring, w, own, low, high, where)
        return replace(self, laws=laws, which=which)

    def log_prob(self, residual: Any) -> Any:
        """Log density of residuals ``(..., N, M)``, as ``(..., N)``.

        Exact: by the likelihood itself, with slopes by differences.
        """
        if not is_torch_array(residual):
            return total(self._per_value(residual), self.observed)
        from deconflow.torch_modes import ByDifferences

        step = STEP * self.laws.grids.width[self.which] / as_array(self.unit)
        eps = float(np.finfo(str(residual.dtype).removeprefix("torch.")).eps)
        return total(
            ByDifferences.apply(residual, lambda r: self._per_value(r, eps), step), self.observed
        )

    def _per_value(self, residual: Array, eps: float = EPS) -> Array:
        """Log density of every value; residuals were rounded by ``eps``."""
        v = self._truth(residual, eps)
        log_p = self._log_prob_of(v) if self.signs is None else self._log_prob_beyond(v)
        return log_p + np.log(as_array(self.unit))

    def sample(self, k: int) -> Any:
        """Draw ``(k, N, M)``: noise of truths with nothing else known of them."""
        v = self.laws.quantiles(self.which, own_rng().random((k, *self.which.shape)))
        return self._residual(v if self.signs is None else self._one_image(v))

    def from_uniform(self, share: Array) -> Array | None:
        """Make noise ``(K, N, M)`` of as many uniform numbers."""
        if self.signs is not None:
            return None
        return self._residual(self.laws.quantiles(self.which, share))

    def measure(self, clean: Any, w: Any) -> "tuple[Any, LikelihoodNoise]":
        """Measure clean values anew, as their rows were, which now have the values ``w``."""
        rng = np.random.default_rng(int(own_rng().integers(2**62)))
        v = self._truth(as_array(w - clean))
        laws, which = self.laws, self.which
        new = laws.simulate(which, v, rng)
        own = {name: value[which] for name, value in laws.parameters.items()}
        made = LikelihoodNoise.of(laws.measuring, new, own, laws.low[which], laws.high[which])
        noise = replace(made, unit=self.unit, signs=self.signs, observed=self.observed)
        shift = self._signed(made.location - self.location) / as_array(self.unit)
        return w + like(shift, w), noise

    def mean(self) -> Any:
        """Means ``(N, M)`` of the noise."""
        return self._residual(self.laws.grids.mean[self.which])

    def variance(self) -> Any:
        """Variances ``(N, M)``."""
        return like(self.laws.grids.variance[self.which], self.unit) / self.unit**2

    def features(self) -> Any:
        """Standard deviations, then means."""
        both = (as_array(self.variance()) ** 0.5, as_array(self.mean()))
        return like(np.concatenate(both, -1), self.unit)

    def as_mixture(self) -> IndependentMixture:
        """Write the law as a mixture of Gaussians, folded at the ends of the truth.

        An approximation: at the mean over a likelihood of counts, the mixture's logarithm is less
        by at most 0.005 nats in rows of one value, and 0.01 in others.
        """
        shapes, shape_of = self._gaussians()
        grids, unit = self.laws.grids, as_array(self.unit)
        location = as_array(self._residual(grids.mode[self.which]))
        scale = -self._signed(grids.width[self.which]) / unit
        return IndependentMixture(shapes, shape_of[self.which], location, scale)

    def mirrored(self, signs: Array) -> "LikelihoodNoise":
        """Return the law of rows mirrored where ``signs``, ``(N, M)``, are negative."""
        return replace(self, signs=signs)

    def divide(self, scale: Any) -> Self:
        """Return the law of ``n / scale``."""
        return replace(self, unit=self.unit * scale)

    def to(self, *, dtype: Any = None, device: Any = None) -> Self:
        """Move to another precision or device.

        Likelihoods are computed in double precision by the processor all the same; what they
        answer follows ``unit``.
        """
        return replace(self, unit=moved(self.unit, dtype, device))

    def _take(self, rows: Any, n_rows: int) -> Self:
        return super()._take(as_array(rows) if is_torch_array(rows) else rows, n_rows)

    # -- truths and residuals -------------------------------------------------------------------

    def _signed(self, values: Array) -> Array:
        return values if self.signs is None else self.signs * values

    def _residual(self, v: Array) -> Any:
        return like(self._signed(self.location - v) / as_array(self.unit), self.unit)

    def _truth(self, residual: Array, eps: float = EPS) -> Array:
        """Return truths of residuals; one that rounding has moved across an end is at the end."""
        unit = as_array(self.unit)
        v = self.location - self._signed(residual * unit)
        rounding = 50 * eps * (unit + np.abs(self.location))
        low, high = self._ends()
        near = (v >= low - rounding) & (v <= high + rounding)
        return np.where(near, np.clip(v, low, high), v)

    def _ends(self) -> Ends:
        return self.laws.low[self.which], self.laws.high[self.which]

    def _log_prob_of(self, v: Array) -> Array:
        low, high = self._ends()
        inside = (v >= low) & (v <= high)
        which = np.broadcast_to(self.which, v.shape)
        log_p = self.laws.log_prob(which, np.where(inside, v, self.laws.grids.mean[which]))
        return np.where(inside, log_p, -np.inf)

    # -- beyond the ends ------------------------------------------------------------------------

    def _log_prob_beyond(self, v: Array) -> Array:
        r"""Log density of truths ``v`` on both sides of the ends, whose folded form is exact.

        :math:`L(x) \, m(v) / \sum_s m(R_s x)` with ``v`` folded to ``x`` and the mixture ``m``.
        """
        low, high = self._ends()
        x = np.where(v < low, 2 * low - v, np.where(v > high, 2 * high - v, v))
        inside = (x >= low) & (x <= high)  # not so from one mirror image on
        shares = logsumexp([self._log_mixture(u) for u in self._images(x)], axis=0)
        with np.errstate(invalid="ignore"):
            log_p = self._log_prob_of(x) + self._log_mixture(v) - shares
        return np.where(inside, log_p, -np.inf)

    def _one_image(self, x: Array) -> Array:
        """Move truths to one of their images each, by the mixture's shares."""
        images = np.stack(self._images(x))
        log_shares = np.stack([self._log_mixture(u) for u in images])
        shares = np.exp(log_shares - logsumexp(log_shares, axis=0))
        chosen = (np.cumsum(shares, 0) < own_rng().random(x.shape)).sum(0)
        return np.take_along_axis(images, np.minimum(chosen, len(images) - 1)[None], 0)[0]

    def _images(self, x: Array) -> list[Array]:
        return [x, *(2 * end - x for end in self._ends() if np.isfinite(end).any())]

    def _gaussians(self) -> tuple[Any, IntArray]:
        return self.laws.gaussians(PARTS_OF_ONE if self.dim == 1 else PARTS_OF_MANY)

    def _log_mixture(self, v: Array) -> Array:
        """Log of the mixture in the units of its likelihood; minus infinity at infinity."""
        table, shape_of = self._gaussians()
        grids = self.laws.grids
        z = ((v - grids.mode[self.which]) / grids.width[self.which])[..., None]
        finite = np.isfinite(z)
        c, b, S = (x[shape_of[self.which]] for x in table)
        with np.errstate(divide="ignore"):
            log_p = np.log(c) - 0.5 * (np.log(S) + np.square(np.where(finite, z, 0.0) - b) / S)
        return np.where(finite[..., 0], logsumexp(log_p, axis=-1), -np.inf)
