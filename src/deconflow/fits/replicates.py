r"""Other answers that the same data might have given, and how uncertain they make an answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from deconflow._types import Array, IntArray
from deconflow.checks import check_choice
from deconflow.mixtures import GaussianMixture

KINDS = ("folds", "draws")


class Answer(Protocol):
    """A density that a band needs to know of: values, and marginals of some columns."""

    def log_prob(self, v: ArrayLike) -> Array:
        """Log density ``(N,)`` of true values ``(N, D)``."""

    def marginal(self, columns: Any) -> "Answer":
        """Return the density of some columns, by name or number."""

    def as_mixture(self) -> GaussianMixture | None:
        """Return the density as one mixture of Gaussians, if it is one."""


@dataclass(frozen=True)
class Replicates:
    r"""Other answers of the same kind, and how they vary about the answer that is given.

    For any number :math:`\theta` that a density has, the half width of its interval of level
    :math:`1 - 2 \alpha` is

    .. math:: h = t_{F - 1, \alpha} \sqrt{s^2 + \sum_c a_c (\theta_c - \theta)^2}

    where :math:`s^2 = \frac{F - 1}{F} \sum_f (\theta_f - \bar\theta)^2` for ``"folds"``, the
    delete-a-group jackknife, and :math:`\frac{1}{F - 1} \sum_f (\theta_f - \bar\theta)^2` for
    ``"draws"`` of a posterior; :math:`t` is a quantile of Student's t distribution with
    :math:`F - 1` degrees of freedom, and :math:`a_c` are the shares of alternatives.

    Attributes
    ----------
    densities : sequence of Answer
        Each fitted without one of as many folds of the rows; or draws of a posterior.
    kind : {"folds", "draws"}
        Which of these.
    alternatives : sequence of (float, Answer)
        Candidates that the answer is an average of, and the share of each. What separates them no
        resampling of the rows can see: much of it is bias.

    References
    ----------
    Kott (2001), "The delete-a-group jackknife", Journal of Official Statistics 17, 521-526
    """

    densities: Sequence[Answer]
    kind: str = "folds"
    alternatives: Sequence[tuple[float, Answer]] = ()
    #: What marginals keep. These are taken when a band is asked for: replicates may be many, and
    #: may have replicates of their own, which no band looks at.
    _columns: tuple[int, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        if len(self.densities) < 2:
            raise ValueError(
                f"Expected at least 2 replicates, to see how they vary; got {len(self.densities)}."
            )
        shares = [share for share, _ in self.alternatives]
        if shares and (min(shares) < 0 or abs(sum(shares) - 1) > 1e-6):
            raise ValueError(
                f"Expected {len(shares)} shares of at least 0, with sum one; got {shares!r}."
            )

    def marginal(self, columns: Sequence[int] | IntArray) -> "Replicates":
        """Return the replicates of the density of some columns, by their numbers."""
        kept = columns if self._columns is None else [self._columns[d] for d in columns]
        return replace(self, _columns=tuple(int(d) for d in kept))

    def changed(self, change: Callable[[Any], Answer]) -> "Replicates":
        """Return replicates of which each is changed as the answer was."""
        return replace(
            self,
            densities=[change(density) for density in self.densities],
            alternatives=[(share, change(density)) for share, density in self.alternatives],
        )

    def in_words(self) -> str:
        """Say what they are."""
        fits = "fits without a fold each" if self.kind == "folds" else "draws of the density"
        return f"{len(self.densities)} {fits}"

    def answers(self) -> list[Answer]:
        """Return the replicates, of the columns that are left."""
        return [self._part(density) for density in self.densities]

    def half_width(self, value: Array, of: Callable[[Answer], Array], level: float) -> Array:
        """Half the width of the interval of each of some numbers that a density has.

        Parameters
        ----------
        value
            These numbers for the answer that is given.
        of
            Gives the same numbers for another density.
        level
            Share of such intervals that should hold the truth.
        """
        return self.t(level) * self.error(value, of)

    def t(self, level: float) -> float:
        """How many standard errors the interval of a level reaches to each side."""
        return float(stdtrit(len(self.densities) - 1, 0.5 + 0.5 * level))

    def error(self, value: Array, of: Callable[[Answer], Array]) -> Array:
        """Return standard errors; parameters are those of :meth:`half_width`."""
        each = np.stack([of(density) for density in self.answers()])
        count = len(each)
        squares = np.square(each - each.mean(0)).sum(0)
        variance = squares * ((count - 1) / count if self.kind == "folds" else 1 / (count - 1))
        for share, density in self.alternatives:
            variance = variance + share * np.square(of(self._part(density)) - value)
        return np.sqrt(variance)

    def _part(self, density: Answer) -> Answer:
        return density if self._columns is None else density.marginal(list(self._columns))
