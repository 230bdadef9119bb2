r"""An average of all settings that were tried, each by its share, without each fold of the rows.

What is averaged is what was compared: the same fits. Shares are those of averages over folds and
starts, and to give each share a single new fit loses most of what the average gains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deconflow._types import Array
from deconflow.mixtures import GaussianMixture, mix
from deconflow.xd.cross_fits import Candidate, CrossFits, Fold, Table, held_out_of
from deconflow.xd.fit import FitSettings
from deconflow.xd.shares import log_average


@dataclass(frozen=True)
class AveragedFit:
    """An average of mixtures, each fitted without one fold.

    Attributes
    ----------
    mixtures : list of GaussianMixture
        One for each fold that was left out.
    shares : array
        The share of each in the average.
    held_out : array
        ``(N,)`` log-likelihood of each row under the mixture that left it out.
    folds : list of Fold
        The folds.
    settings : FitSettings
        Those of the largest share.
    table : dict of arrays
        See :meth:`CrossFits.table`; where a sample has chosen, also its number of rows,
        ``choosing_rows``, and that of all rows, ``fitted_rows``.
    converged : bool
        Whether EM converged in ``singles``: of hundreds of fits with small shares some never do.
    n_iter : int
        Number of passes over the rows in the longest fit.
    singles : list of GaussianMixture
        One fit by ``settings`` without each fold.
    n_choosing, n_rows : int
        How many rows have chosen, and how many are fitted.
    """

    mixtures: list[GaussianMixture]
    shares: Array
    held_out: Array
    folds: list[Fold]
    settings: FitSettings
    table: Table
    converged: bool
    n_iter: int
    singles: list[GaussianMixture]
    n_choosing: int
    n_rows: int

    @property
    def all_chose(self) -> bool:
        """Whether all rows have chosen."""
        return self.n_choosing == self.n_rows

    @property
    def mixture(self) -> GaussianMixture:
        """The average as one mixture."""
        return mix(self.mixtures, self.shares.tolist())


def average(
    cross: CrossFits,
    tried: Sequence[Candidate],
    shares: Array,
    *,
    n_choosing: int | None = None,
    n_rows: int | None = None,
) -> AveragedFit:
    """Average candidates by their shares.

    Parameters
    ----------
    cross, tried
        The fits that leave out a fold, and what was fitted so.
    shares
        ``(C,)`` share of each candidate.
    n_choosing, n_rows
        How many rows have chosen and are fitted, where these are not all rows.
    """
    n_choosing, n_rows = n_choosing or len(cross.data), n_rows or len(cross.data)
    used = [each for each, share in zip(tried, shares, strict=True) if share > 0]
    mixtures = [
        mix([each.density(f) for each in used], shares[shares > 0].tolist())
        for f in range(len(cross.folds))
    ]
    table = cross.table(tried, shares)
    if n_choosing < n_rows:
        table["choosing_rows"] = np.full(len(tried), n_choosing)
        table["fitted_rows"] = np.full(len(tried), n_rows)
    held_out = log_average(held_out_of(used), shares[shares > 0])
    largest = tried[int(shares.argmax())]
    fits = [result for each in used for fold in each.fits for result in fold]
    return AveragedFit(
        mixtures,
        np.full(len(mixtures), 1.0 / len(mixtures)),
        held_out,
        cross.folds,
        largest.settings,
        table,
        all(best.converged for best, *_ in largest.fits),
        max(result.n_iter for result in fits),
        [best.mixture for best, *_ in largest.fits],
        n_choosing,
        n_rows,
    )


def who_chose(table: Table) -> str:
    """Say in a sentence how many rows have chosen; nothing if it was all of them.

    Examples
    --------
    >>> who_chose({"choosing_rows": np.array([100_000]), "fitted_rows": np.array([1_000_000])})
    ' 100,000 of 1,000,000 rows choose the model; all of them fit it.'
    """
    if "choosing_rows" not in table:
        return ""
    some, whole = int(table["choosing_rows"][0]), int(table["fitted_rows"][0])
    return f" {some:,} of {whole:,} rows choose the model; all of them fit it."
