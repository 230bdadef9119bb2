r"""Noise of any law: a function from per-row parameters to a torch distribution.

Distributions that the library has itself become its own noise. Only those it does not have stay
distributions of torch, and need it.
"""

import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.mixture import GaussianMixture
from torch import Tensor, distributions
from torch.distributions import (
    Distribution,
    Independent,
    biject_to,
    constraints,
)

from deconflow._types import Array, Complex
from deconflow.checks import (
    SMALLEST,
    as_array,
    as_parameter,
    is_torch_array,
    like,
    refuse_if,
    refuse_where,
    take,
)
from deconflow.guests import as_guest
from deconflow.noise.base import (
    JointMixture,
    Noise,
    NoiseMixture,
    OtherNoise,
    as_index,
    total,
)
from deconflow.noise.distributions import (
    CENTRAL,
    PARTS_BEYOND,
    PARTS_FOR_DIMENSION,
    table_noise,
)
from deconflow.noise.mixture_fits import fit_tables
from deconflow.noise.mixture_noise import (
    IndependentMixture,
    MixtureNoise,
    ValueMixtures,
)
from deconflow.randomness import isolated_rng
from deconflow.torch_modes import lend_generator

Law = Callable[..., Any]
MOST_SHAPES = 200
VALUES_FOR_SHAPES = 5_000
QUANTILES = (np.arange(200) + 0.5) / 200
DRAWS = 20_000
#: Points that cover a law.
NODES = 2001
#: They reach to sinh(10) on the line, about 11,000 standard deviations.
REACH = 10.0
#: The same for half lines and intervals, in the coordinate of torch's map onto them.
BOUNDED_REACH = 36.0
ROWS_AT_ONCE = 4_000_000 // NODES


@dataclass(frozen=True, repr=False)
class LawNoise(OtherNoise):
    """Noise whose law is a torch distribution; make one with :func:`from_law`.

    Attributes
    ----------
    law : callable
        Takes the parameters by keyword and returns a distribution over ``(N, D)``: batch
        shape ``(N, D)`` for independent values, or batch ``(N,)`` and event ``(D,)``.
    parameters : dict of array
        One row per observation, or one row in all if shared.
    unit : array
        ``(D,)``: this is the law of the distribution's variable divided by ``unit``.
    """

    law: Law
    parameters: Mapping[str, Any]
    unit: Any
    #: What has been made of law and parameters, for all noises that share them.
    _made: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def dim(self) -> int:  # type: ignore[override]
        """Number of measured values per row."""
        return len(self.unit)

    @property
    def distribution(self) -> Distribution:
        """The torch distribution of these rows, made at the first use."""
        if "distribution" not in self._made:
            self._made["distribution"] = _made(self.law, self.parameters)
        return self._made["distribution"]

    @property
    def independent(self) -> bool:  # type: ignore[override]
        """Whether the values of a row have independent noise."""
        return len(self.distribution.event_shape) == 0

    def log_prob(self, residual: Any) -> Any:
        """Log density of residuals ``(..., N, D)``, as ``(..., N)``; in double precision."""
        given = torch.as_tensor(residual)
        unit = torch.as_tensor(as_array(self.unit))
        rounding = 50 * torch.finfo(given.dtype).eps * unit
        x = given.to("cpu", torch.float64) * unit
        log_p = _log_prob_inside(self.distribution, x, rounding)
        if self.independent:
            return like(total(log_p + unit.log(), self.observed), residual)
        return like(log_p + unit.log().sum(), residual)

    def sample(self, k: int) -> Any:
        """Draw ``(k, N, D)``."""
        shape = torch.Size((k, len(self)) if self.shared else (k,))
        with lend_generator():
            drawn = self.distribution.sample(shape)
        return like(drawn.squeeze(2) if self.shared else drawn, self.unit) / self.unit

    def mean(self) -> Any:
        """Means ``(N or 1, D)``, zero where the law has none."""
        return like(_finite_mean(self.distribution), self.unit) / self.unit

    def variance(self) -> Any:
        """Variances ``(N or 1, D)``; finite also for laws without one."""
        return like(
            as_array(_finite_variance(self.distribution)) / as_array(self.unit) ** 2, self.unit
        )

    def as_mixture(self) -> NoiseMixture:
        """Write the law as a mixture of Gaussians."""
        if "mixture" not in self._made:
            make = _mixture_of_values if self.independent else _mixture_of_rows
            self._made["mixture"] = make(self)
        return self._made["mixture"].divide(as_array(self.unit))

    def value_characteristics(self, t: Array) -> Complex:
        """Refuse: there is no closed form."""
        raise ValueError(
            "Expected noise whose characteristic function has a closed form, such as Gaussian, "
            f"Laplace or Student-t; got a {type(self.distribution).__name__}. Use XDGMM or "
            "FlowDeconvolver."
        )

    def values(self) -> Self:
        """Return the law of all single values as rows."""
        refuse_if(
            any(x.shape[1:] != (self.dim,) for x in self.parameters.values()),
            f"Expected a law with parameters for each value; got {self!r} with others.",
        )
        own = {name: x.reshape(-1, 1) for name, x in self.parameters.items()}
        rows = len(next(iter(own.values()), self.unit))
        return replace(self, parameters=own, unit=np.ones(1), shared=False, n_rows=rows, _made={})

    def support_map(self) -> tuple[Any, Any, Any] | None:
        """Return how to reach the support: the map, the unit, and where it is of the noise's size.

        A half line is reached by an exponential, which is shifted to the scale of the noise.
        """
        ends = copy.copy(_support_of(self.distribution))
        if ends is None:
            return None
        unit = torch.as_tensor(self.unit)
        start = 0 * unit
        if not isinstance(ends, constraints.interval):
            start = like(_finite_variance(self.distribution).log() / 2, unit)
        of_ends = vars(ends).items()
        vars(ends).update({name: like(x, unit) for name, x in of_ends if is_torch_array(x)})
        return biject_to(ends), unit, start

    def divide(self, scale: Any) -> Self:
        """Return the law of ``n / scale``."""
        return replace(self, unit=self.unit * scale, kept=None)

    def __getitem__(self, rows: Any) -> Self:
        rows = as_index(rows, self.n_rows)
        taken = super().__getitem__(rows)
        if self.shared:
            return taken
        own = {name: take(value, rows) for name, value in self.parameters.items()}
        return replace(taken, parameters=own, _made={})


@as_guest()
def from_law(law: Law, *, shared: bool = False, **parameters: ArrayLike) -> Noise:
    """Make noise of any law that torch has, or users write for it.

    Parameters
    ----------
    law
        A function that takes the parameters by keyword, as tensors with one row per
        observation, and returns a ``torch.distributions.Distribution`` with batch shape
        ``(N, D)``, or batch shape ``(N,)`` and event shape ``(D,)``. To be pickled or sent to
        another process it must be a named function, not a lambda.
    shared
        Whether the parameters have one row that holds for all observations.
    **parameters
        Arrays with one row per observation (one row in all if shared).

    Examples
    --------
    >>> from torch.distributions import Gumbel
    >>> def gumbel(scale):
    ...     return Gumbel(0.0 * scale, scale)
    >>> from_law(gumbel, scale=[[0.1, 0.2]] * 7)
    LawNoise(rows=7, dim=2, shared=False)
    """
    arrays = {name: as_parameter(value, name).copy() for name, value in parameters.items()}
    _check_rows(arrays, shared)
    try:
        distribution = _made(law, arrays)
    except Exception as error:
        raise ValueError(
            f"Expected a law that takes {list(arrays)}; got the error: {error}"
        ) from error
    refuse_if(
        not isinstance(distribution, Distribution),
        f"Expected a law that returns a torch distribution; got {type(distribution).__name__}.",
        TypeError,
    )
    try:
        biject_to(_support_of(distribution) or constraints.real)
    except NotImplementedError as error:
        raise ValueError(
            "Expected as noise a law of real numbers, on the line, a half line or an interval; "
            f"got {type(distribution).__name__}."
        ) from error
    shape = distribution.batch_shape + distribution.event_shape
    refuse_if(
        len(shape) != 2 or len(distribution.event_shape) > 1 or (shared and shape[0] != 1),
        f"Expected a law over shape {'(1, D)' if shared else '(N, D)'}; "
        f"got batch shape {tuple(distribution.batch_shape)} "
        f"and event shape {tuple(distribution.event_shape)}.",
    )
    n_rows = None if shared else shape[0]
    own = _our_own(distribution, shared, n_rows)
    if own is not None:
        return own
    _refuse_narrow(distribution, [*arrays], shared)
    return LawNoise(law, arrays, np.ones(shape[-1]), shared=shared, n_rows=n_rows)


def _made(law: Law, parameters: Mapping[str, Any]) -> Any:
    """Make a distribution whose values are looked at one by one, if they are independent."""
    made = law(**{name: torch.as_tensor(x) for name, x in parameters.items()})
    while isinstance(made, Independent):
        made = made.base_dist
    # Residuals outside the support are no error: their log density is minus infinity.
    if isinstance(made, Distribution):
        made._validate_args = False
    return made


def _our_own(d: Any, shared: bool, n_rows: int | None) -> Noise | None:
    """Return a distribution of torch as noise of this library, if there is such a one."""
    forms: dict[type, Callable[[], tuple[Any, ...]]] = {
        distributions.Normal: lambda: ("normal", d.scale, 0 * d.scale, d.loc),
        distributions.Laplace: lambda: ("laplace", d.scale, 0 * d.scale, d.loc),
        distributions.Cauchy: lambda: ("student_t", d.scale, 1 + 0 * d.scale, d.loc),
        distributions.StudentT: lambda: ("student_t", d.scale, d.df, d.loc),
        distributions.Uniform: lambda: (
            "uniform",
            (d.high - d.low) / 2,
            0 * d.low,
            (d.high + d.low) / 2,
        ),
    }
    if type(d) in forms:
        kind, *tensors = forms[type(d)]()
        scale, q, location = (np.array(as_array(x), dtype=float) for x in tensors)
        return table_noise(kind, scale, q, shared, location if location.any() else None)
    if isinstance(d, distributions.MultivariateNormal | distributions.LowRankMultivariateNormal):
        means, factors = (as_array(x)[:, None] for x in (d.loc, d.scale_tril))
        return MixtureNoise(np.ones(means.shape[:2]), means, factors, shared=shared, n_rows=n_rows)
    if not isinstance(d, distributions.MixtureSameFamily):
        return None
    parts = d.component_distribution
    if isinstance(parts, Independent) and isinstance(parts.base_dist, distributions.Normal):
        base = parts.base_dist
        parts = distributions.MultivariateNormal(base.loc, scale_tril=base.scale.diag_embed())
    if isinstance(parts, distributions.MultivariateNormal):
        kind, widths = MixtureNoise, parts.scale_tril
    elif isinstance(parts, distributions.Normal):
        kind, widths = ValueMixtures, parts.scale
    else:
        return None
    arrays = (as_array(x) for x in (d.mixture_distribution.probs, parts.loc, widths))
    return kind(*arrays, shared=shared, n_rows=n_rows)


def same_for_all(distribution: Any) -> Noise:
    """Make noise of one torch distribution over ``D`` values that holds for all rows."""
    if not isinstance(distribution, Distribution):
        raise TypeError(f"Expected distribution as one of torch; got {distribution!r}.")
    shape = distribution.batch_shape + distribution.event_shape
    refuse_if(
        len(shape) != 1,
        f"Expected a noise distribution over shape (D,); got {tuple(shape)}. "
        "For a law that differs by row use deconflow.noise.from_law.",
    )
    one_row = distribution.expand((1, *distribution.batch_shape))
    return from_law(partial(_same, one_row), shared=True)


def _same(distribution: Distribution) -> Distribution:
    return distribution


def _refuse_narrow(distribution: Distribution, names: list[str], shared: bool) -> None:
    """Refuse laws so narrow that their squares vanish, by which torch makes NaN of densities."""
    try:
        variance = _finite_variance(distribution)
    except ValueError:  # a law that does not know it may still be drawn from
        return
    refuse_where(
        ~(variance > 0),
        f"noise with a law ({', '.join(names)}) wider than {SMALLEST:g}",
        variance,
        "the variance {:g}",
        advice="Change the units.",
        shared=shared,
    )


def _check_rows(arrays: Mapping[str, Array], shared: bool) -> None:
    """Refuse parameters without rows, of different lengths, or not finite."""
    rows = 1 if shared else max((len(v) if v.ndim else 0 for v in arrays.values()), default=1)
    for name, value in arrays.items():
        refuse_if(
            value.ndim == 0 or len(value) != rows or rows == 0,
            f"Expected {name} with {rows or 'one or more'} rows, one for each observation; "
            f"got shape {value.shape}.",
        )
        refuse_where(
            ~np.isfinite(value).reshape(rows, -1).all(-1),
            f"finite values of {name} as noise",
            got="NaN or inf",
            shared=shared,
        )


# -- supports ------------------------------------------------------------------------------------


def _support_of(distribution: Distribution) -> Any:
    """Return where single values lie; None for the line, or for a law that does not say."""
    try:
        support: Any = distribution.support
    except NotImplementedError:
        return None
    while hasattr(support, "base_constraint"):  # of independent values, or of a mixture
        support = support.base_constraint
    return None if support is constraints.real else support


def _log_prob_inside(distribution: Distribution, x: Tensor, rounding: Tensor) -> Tensor:
    """Log density, minus infinity outside the support, with gradients that stay finite.

    A value that ``rounding`` may have moved across the end of an interval counts as inside.
    """
    support = _support_of(distribution)
    if support is None:
        return distribution.log_prob(x)
    if isinstance(support, constraints.interval):
        low, high = (torch.as_tensor(e).to(x) for e in (support.lower_bound, support.upper_bound))
        slack = (1e-5 * (high - low) + rounding).minimum((high - low) / 4)
        near = (x >= low - rounding) & (x <= high + rounding)
        x = torch.where(near, torch.minimum(torch.maximum(x, low + slack), high - slack), x)
    onto = biject_to(distribution.support)  # of zero: the middle of an interval, or a point inside
    shape = onto.inverse_shape(distribution.batch_shape + distribution.event_shape)
    inside = distribution.support.check(x)  # type: ignore[union-attr]
    mask = inside if inside.dim() == x.dim() else inside.unsqueeze(-1)
    safe = torch.where(mask, x, onto(torch.zeros(shape, dtype=x.dtype)).to(x))
    return torch.where(inside, distribution.log_prob(safe), -torch.inf)


# -- moments -------------------------------------------------------------------------------------


def _finite_mean(distribution: Distribution) -> Tensor:
    """Mean of each value, zero where the law has none."""
    return distribution.mean.nan_to_num(0.0, 0.0, 0.0)


def _finite_variance(distribution: Distribution) -> Tensor:
    """Variance of each value, or the squared half width of its central 68 % if it has none."""
    try:
        variance = distribution.variance
    except NotImplementedError as error:
        raise ValueError(
            "Expected noise whose law knows its mean and variance; got a "
            f"{type(distribution).__name__}, which does not. Give it both, in a class of its own."
        ) from error
    finite = variance.isfinite()
    if finite.all():
        return variance
    try:
        ends = [distribution.icdf(torch.tensor(share)) for share in (1 - CENTRAL, CENTRAL)]
    except NotImplementedError as error:
        raise ValueError(
            "Expected noise with a finite variance or with quantiles (icdf); "
            f"got {type(distribution).__name__}, which has neither."
        ) from error
    return torch.where(finite, variance, ((ends[1] - ends[0]) / 2).square())


# -- mixtures ------------------------------------------------------------------------------------


def _mixture_of_rows(noise: LawNoise) -> JointMixture:
    """Mixture of a law over whole rows, which all share: fitted to draws."""
    refuse_if(
        not noise.shared,
        "Expected noise that XD can write as a mixture of Gaussians: Gaussian, a mixture, "
        "independent values, or one law for all rows; "
        f"got a {type(noise.distribution).__name__} over whole rows that differs by row.",
    )
    with isolated_rng(0), lend_generator():
        draws = as_array(noise.distribution.sample(torch.Size((DRAWS,)))[:, 0])
    fit = GaussianMixture(8, tol=1e-5, max_iter=1000, random_state=0)
    # A fit that might still gain a little is good enough.
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        fit.fit(draws)
    return JointMixture(fit.weights_[None], fit.means_[None], fit.covariances_[None])


def _mixture_of_values(noise: LawNoise) -> IndependentMixture:
    """Mixture of a law of independent values, by the shapes that its values have in common.

    A shape is a law's quantiles in units of its mean and standard deviation. The shapes of some
    rows are fitted, or the centres of 200 clusters of them; every law takes the nearest.
    """
    rows, dim = noise.distribution.batch_shape
    some = noise[:: max(1, rows // VALUES_FOR_SHAPES)] if rows > 1 else noise
    shapes = _unit_quantiles(some.distribution)[0]
    distinct = np.unique(shapes.round(3), axis=0)
    if len(distinct) > MOST_SHAPES:
        distinct = KMeans(MOST_SHAPES, n_init=1, random_state=0).fit(shapes).cluster_centers_
    found = []
    for start in range(0, rows, ROWS_AT_ONCE):
        part = noise[start : start + ROWS_AT_ONCE] if rows > 1 else noise
        quantiles, *moments = _unit_quantiles(part.distribution)
        found.append((pairwise_distances_argmin(quantiles, distinct), *moments))
    which, location, scale = map(np.concatenate, zip(*found, strict=True))
    parts = PARTS_FOR_DIMENSION.get(dim, PARTS_BEYOND)
    table = fit_tables(distinct, np.full_like(distinct, 1 / len(QUANTILES)), parts)
    return IndependentMixture(
        table, which.reshape(rows, dim), location if location.any() else None, scale
    )


def _unit_quantiles(law: Distribution) -> tuple[Array, Array, Array]:
    """Quantiles of each value in units of its mean and width, with these; ``(N D, Q)``."""
    location = as_array(_finite_mean(law))
    scale = as_array(_finite_variance(law).sqrt())
    x, mass = _nodes(law)
    x = ((x - location) / scale).reshape(len(x), -1).T
    rows = zip(np.cumsum(mass, 0).reshape(len(mass), -1).T, x, strict=True)
    return np.stack([np.interp(QUANTILES, *row) for row in rows]), location, scale


def _nodes(law: Distribution) -> tuple[Array, Array]:
    r"""Points ``(X, N or 1, D)`` that cover a law, and its mass at each of them.

    The line is reached by :math:`x = m + s \sinh z`, half lines and intervals by torch's map onto
    them: in ``z`` the density is smooth and falls off fast, where sums are close to integrals.
    """
    support = _support_of(law)
    column = (slice(None), None, None)
    if support is None:
        scale = _finite_variance(law).sqrt()
        z = torch.linspace(-REACH, REACH, NODES, dtype=torch.float64)[column]
        x, log_slope = _finite_mean(law) + scale * z.sinh(), z.cosh().log() + scale.log()
    else:
        z = torch.linspace(-BOUNDED_REACH, BOUNDED_REACH, NODES, dtype=torch.float64)[column]
        z = z.expand(-1, *law.batch_shape)
        onto = biject_to(support)
        x = onto(z)
        log_slope = onto.log_abs_det_jacobian(z, x)
    log_p = law.log_prob(x)
    # Not defined at rounded ends of a support: no mass there. NaN compares as false.
    log_mass = torch.where(log_p < torch.inf, log_p, -torch.inf) + log_slope
    mass = (log_mass - log_mass.amax(0)).exp()
    return as_array(x), as_array(mass / mass.sum(0))
