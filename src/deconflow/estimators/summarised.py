"""A fit in a few numbers, beside those of what was measured."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from deconflow._limits import threads_at_most
from deconflow._types import Array
from deconflow.answers import Statistics, statistics_of
from deconflow.carried_errors import parted
from deconflow.estimators.observing import ObservesRows
from deconflow.frames import (
    Units,
    column_units,
    limit_flags,
    plain_table,
    refuse_other_names,
    refuse_other_units,
)
from deconflow.guests import as_guest
from deconflow.observations import check_measured, check_weights


class Summarised(ObservesRows):
    """What every estimator says of its answer in numbers."""

    n_latent_: int
    n_features_in_: int
    _units: Units | None

    def statistics(
        self, w: Any = None, *, limits: Any = None, sample_weight: ArrayLike | None = None
    ) -> Statistics:
        """Put the answer in a few numbers: mean, spread, quantiles and correlations of the truth.

        With standard errors where the model has replicates (see :meth:`band`), and beside those of
        the measurements, if these are given. ``print`` shows a table. With covariates the numbers
        are those of the mix of these that the fitted rows have; with atoms, of all truths.

        Parameters
        ----------
        w
            ``(N, D)`` measurements, NaN where a value is missing.
        limits
            As for :meth:`fit`: which values are limits. What was measured there is not known, and
            is left out.
        sample_weight
            ``(N,)``, as for :meth:`fit`: how much each row counts in the measured figures.
        """
        check_is_fitted(self)
        if w is None and (limits is not None or sample_weight is not None):
            what = "sample_weight" if limits is None else "limits"
            raise ValueError(f"Expected w beside {what}; got none.")
        weights = None
        if sample_weight is not None:
            weights = check_weights(w, sample_weight, "sample_weight").double().numpy()
        measured = None if w is None else self._measured_values(w, limits)
        with as_guest(), threads_at_most(getattr(self, "n_jobs", None)):
            return statistics_of(self.density_, measured, weights)

    def _measured_values(self, w: Any, limits: Any) -> Array:
        """Check measurements that need no noise, and take the limits out."""
        if self.n_latent_ != self.n_features_in_:
            raise ValueError(
                "Expected a model without a projection to put measurements beside the truth; got "
                f"one of {self.n_latent_} columns from {self.n_features_in_}. Leave out w."
            )
        refuse_other_units(column_units(w), self._units, self._names)
        w = plain_table(parted(w, None)[0], "w")
        refuse_other_names(w, self._names)
        values = check_measured(w, "w").double().numpy()
        if values.shape[1] != self.n_latent_:
            raise ValueError(
                f"Expected w with {self.n_latent_} columns, as in the fit; got {values.shape[1]}."
            )
        if limits is None:
            return values
        flags = limit_flags(w, limits)
        if flags.shape != values.shape or not np.isin(flags, (-1, 0, 1)).all():
            raise ValueError(
                f"Expected limits of -1, 0 and 1 with shape {values.shape}, as w has; "
                f"got shape {flags.shape}."
            )
        return np.where(flags == 0, values, np.nan)
