r"""The density of true values that a fit has learned: the methods that all densities have.

Exact answers, and those on a grid, are in :mod:`~deconflow.fits.mixture_fit`, answers by weighted
draws in :mod:`~deconflow.fits.weighted_fit`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, wraps
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from deconflow._types import Array, IntArray
from deconflow.checks import (
    as_floats,
    check_integer,
    check_number,
    check_seed,
    refuse_extremes,
)
from deconflow.evaluation import Estimate, row_p_values
from deconflow.fits.bands import (
    Band,
    ColumnWithAtoms,
    Replicates,
    ScipyColumn,
    SmoothColumn,
    TabulatedColumn,
    band_of_densities,
    band_of_quantiles,
    checked_points,
    fine_grid,
)
from deconflow.fits.posterior import Posterior, column_numbers
from deconflow.frames import (
    Units,
    column_units,
    refuse_other_units,
)
from deconflow.guests import computing
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.xd import fit_exact

#: Draws of a density without a closed form, and Gaussians fitted to them, that stand in for it.
DRAWS_FOR_MIXTURE, COMPONENTS = 5_000, 12
QUESTIONS = ("_log_prob", "_sample", "log_marginal", "posterior", "memberships")


def _as_guest(question: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(question)
    def asked(self: "FittedDensity", *args: Any, **options: Any) -> Any:
        with computing(self.threads):
            return question(self, *args, **options)

    return asked


class FittedDensity(ABC):
    """The density of the truth that a fit has learned, in the user's units.

    Attributes
    ----------
    names : list of str
        Names of the dimensions.
    threads : int or None
        How many to use at most; None for as many as the process was allowed.
    units : list or None
        Units of the dimensions.
    replicates : Replicates or None
        Other answers that the same data might have given: what bands are made of.
    """

    names: list[str]
    threads: int | None = None
    replicates: Replicates | None = None
    units: Units | None = None

    def __init_subclass__(cls) -> None:
        """Answer every question as a guest, with no more threads than allowed."""
        for name in QUESTIONS:
            if name in vars(cls):
                setattr(cls, name, _as_guest(vars(cls)[name]))

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.names)

    @cached_property
    def ends(self) -> tuple[Array, Array]:
        """Lower and upper ends of the truth, ``(D,)`` each, infinite where there is none."""
        free = np.full(self.dim, np.inf)
        return -free, free

    def log_prob(self, v: ArrayLike) -> Array:
        """Log density ``(N,)`` of true values ``(N, D)``."""
        values = checked_points(v, self.names, "v")
        refuse_extremes("v", values)
        return self._log_prob(values)

    def sample(self, n: int, random_state: RandomState = None) -> Array:
        """Draw ``(n, D)``."""
        check_integer("n", n, 1)
        check_seed(random_state)
        return self._sample(n, random_state)

    def given(self, x: Any) -> "FittedDensity":
        """Return the density for one value of the covariates of the fit.

        Parameters
        ----------
        x
            The covariates: a number, a sequence in the order of the fit, a mapping from names to
            values, or a table of one row. For ``given="noise"`` these are the logarithms of the
            errors.
        """
        raise ValueError(
            "Expected a model that was fitted with covariates; got one without. Fit with given=."
        )

    @_as_guest
    def p_values(
        self, data: Observations, n_draws: int = 199, random_state: RandomState = 0
    ) -> Array:
        """How unusual each row is, ``(N,)``; see :func:`deconflow.evaluation.row_p_values`."""
        check_integer("n_draws", n_draws, 1)
        check_seed(random_state)
        return row_p_values(
            self.sample, self.statistic, data,
            n_draws=n_draws, random_state=random_state, threads=self.threads,
        )  # fmt: skip

    @cached_property
    def statistic(self) -> GaussianMixture:
        """A mixture of few Gaussians near this density, whose ``log p(w)`` p-values rank by."""
        return mixture_of_draws(self.sample(DRAWS_FOR_MIXTURE, 0))

    def marginal(self, columns: Any) -> "FittedDensity":
        """Return the density of some dimensions, by name or number, in the order given."""
        numbers = column_numbers(columns, self.names)
        part = self._marginal(numbers)
        if self.replicates is not None:
            part.replicates = self.replicates.marginal(numbers)
        return part

    def band(
        self,
        points: Any = None,
        *,
        column: Any = None,
        level: float = 0.9,
        quantiles: ArrayLike | None = None,
    ) -> Band:
        """Return densities with their pointwise intervals; or quantiles of the truth with theirs.

        Parameters
        ----------
        points
            ``(N, D)`` points of the joint density, or ``(N,)`` of a ``column``; or the name or
            number of a column.
        column
            The column whose marginal density is wanted; without points, on a grid of 200.
        level
            The share of intervals that should hold the truth.
        quantiles
            Shares, as ``[0.1, 0.5, 0.9]``, for the quantiles of the column instead of its density.
        """
        check_number("level", level, 0, 1, open_low=True)
        if isinstance(points, str | int | np.integer):  # as in band("x")
            if column is not None:
                raise TypeError(
                    f"Expected points as numbers beside column={column!r}; got {points!r}."
                )
            points, column = None, points
        if self.replicates is None:
            raise ValueError(
                "Expected a model with replicates, to see how far its answers may be off; got one "
                "without. Use Deconvolver (with n_members of at least 5, if any), BayesianXDGMM, "
                "LogSplineDeconvolver or XDGMM('auto')."
            )
        if points is None and column is None:
            if self.dim > 1:
                raise ValueError(
                    f"Expected points (N, {self.dim}) or one of the columns "
                    f"{', '.join(self.names)}; got neither. Ask for band({self.names[0]!r})."
                )
            column = 0
        columns = range(self.dim) if column is None else column_numbers(column, self.names)
        if self.units is not None and points is not None:
            own = [self.units[d] for d in columns]
            refuse_other_units(column_units(points), own, [self.names[d] for d in columns])
        if column is not None and len(columns) > 1:
            raise ValueError(
                f"Expected one column; got {column!r}. For the joint density of several, "
                "ask marginal(columns).band(points)."
            )
        density = self if column is None else self.marginal(columns)
        if quantiles is not None:
            return band_of_quantiles(density, quantiles, points, level)
        return band_of_densities(density, points, level)

    def cdf(self, x: ArrayLike) -> Array:
        """Probability of a truth up to ``x``, of the shape of ``x``, if there is one column.

        Closed forms for mixtures of Gaussians. Other densities are tabulated, at 2,000 points
        that reach a little farther than 20,000 draws: errors are below 1e-4.
        """
        points = as_floats(x, "x")
        if np.isnan(points).any():
            raise ValueError("Expected numbers as x; got NaN. It is below none.")
        return self._column.cdf(points)

    def quantile(self, q: ArrayLike) -> Array:
        """Quantiles at shares ``q``, of their shape, if there is one column; see :meth:`cdf`."""
        shares = as_floats(q, "q")
        if not ((shares > 0) & (shares < 1)).all():
            raise ValueError(f"Expected q between 0 and 1; got {q!r}.")
        return self._column.quantile(shares)

    def to_scipy(self) -> Any:
        """Return a frozen distribution of ``scipy.stats``, if there is one column.

        Its ``pdf``, ``cdf``, ``ppf``, ``rvs``, ``mean`` and ``std`` are closed forms for mixtures
        of Gaussians. Other densities are tabulated as for :meth:`cdf`, and end where the table
        does. A truth with atoms has no density, and is refused.

        Examples
        --------
        >>> from deconflow import XDGMM
        >>> w = np.random.default_rng(0).normal(size=(500, 2))
        >>> law = XDGMM(1).fit(w, noise=[0.5, 0.5]).density_.marginal("v0").to_scipy()
        >>> bool(abs(law.cdf(law.ppf(0.9)) - 0.9) < 1e-9)
        True
        """
        column, name = self._column, self.names[0]
        if isinstance(column, ColumnWithAtoms):
            places = ", ".join(f"{atom:g}" for atom in column.atoms)
            raise ValueError(
                "Expected a truth without atoms for scipy, whose distributions have a density; got "
                f"{name} with atoms at {places}. Use cdf, quantile and sample; or "
                "density_.inner.marginal(...).to_scipy() for the part without atoms."
            )
        return ScipyColumn(column, name=name)()

    @cached_property
    def _column(self) -> SmoothColumn | ColumnWithAtoms:
        """The only column."""
        if self.dim > 1:
            raise ValueError(
                f"Expected a density of one column; got one of {', '.join(self.names)}. Take one "
                f"first, as by marginal({self.names[0]!r})."
            )
        return self._one_column()

    def _one_column(self) -> SmoothColumn | ColumnWithAtoms:
        """Tabulate a density of one column; closed forms need no table."""
        return TabulatedColumn(self, fine_grid(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.names)})"

    @abstractmethod
    def _log_prob(self, v: Array) -> Array:
        """Log density of checked values."""

    @abstractmethod
    def _marginal(self, columns: IntArray) -> "FittedDensity":
        """Return the density of some dimensions, by their numbers."""

    @abstractmethod
    def _sample(self, n: int, random_state: RandomState) -> Array:
        """Draw ``(n, D)``, with checked arguments."""

    @abstractmethod
    def log_marginal(
        self, data: Observations, n_draws: int | None = None, random_state: RandomState = 0
    ) -> Estimate:
        """Log density ``log p(w)`` of each row, with its error; ``n_draws`` None for the usual."""

    @abstractmethod
    def posterior(
        self,
        data: Observations,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
    ) -> Posterior:
        """Posterior of each row's true value; exact answers need none of the numbers."""

    def exact(self, *, gaussian_noise: bool) -> bool:
        """Whether answers about rows with such noise are closed forms."""
        return False

    def averaged(self) -> "list[FittedDensity]":
        """Return the densities that this is an average of; none for a single fit."""
        return []

    def as_mixture(self) -> GaussianMixture | None:
        """Return the density as one mixture of Gaussians, if it is one."""
        return None

    @_as_guest
    def condition(
        self, data: Observations, given: IntArray, n_samples: int, random_state: RandomState
    ) -> Posterior:
        """Posterior of the other dimensions, from rows that measure only those given."""
        rows = seen_through(data, given, self.dim)
        whole = self.measuring(rows).posterior(rows, n_samples, random_state=random_state)
        return whole.marginal(np.setdiff1d(np.arange(self.dim), given))

    def measuring(self, rows: Observations) -> "FittedDensity":
        """Return the same density, for rows that measure something else than those fitted."""
        return self


def seen_through(data: Observations, given: IntArray, dim: int) -> Observations:
    """Say of rows that measure only some dimensions what they see of the whole truth."""
    own = data.projections() @ np.eye(dim)[given]
    return replace(data, projection=np.broadcast_to(own, (len(data), *own.shape[1:])))


def mixture_of_draws(drawn: Array) -> GaussianMixture:
    """Fit a few Gaussians to the finite of some draws."""
    return fit_exact(drawn[np.isfinite(drawn).all(1)], COMPONENTS, seed=0)


def as_seed(random_state: RandomState) -> int:
    """Return a seed that is a number: the one given, or one that is drawn."""
    check_seed(random_state)
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(2**31 - 1))
    return int(random_state)
