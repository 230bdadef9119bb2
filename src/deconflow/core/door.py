"""The one door: arrays, frames and tables become Observations."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array

from deconflow.carried_errors import parted
from deconflow.checks import warn_caller
from deconflow.core.combinations import refuse
from deconflow.core.given import Given
from deconflow.frames import limit_flags, plain_tables, refuse_other_rows
from deconflow.guests import as_guest
from deconflow.labels import Labels
from deconflow.measuring import Selection, as_rule
from deconflow.noise import FreeErrors
from deconflow.observations import (
    Observations,
    check_groups,
    check_rows_and_columns,
    check_weights,
)
from deconflow.streams import RowStream

#: Traits that rows with a selection may have as far as the door is concerned.
NOT_SELECTED = frozenset({"errors to learn", "covariates"})


def observe(
    w: ArrayLike | Observations,
    noise: Any = None,
    *,
    projection: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    groups: Any = None,
    given: Any = None,
    limits: Any = None,
    selection: Any = None,
    selection_of: str = "measured",
    names: Sequence[str] | None = None,
) -> Observations:
    """Make observations of arrays, frames or tables: the one argument of every method.

    Parameters
    ----------
    w
        ``(N, M)`` measurements; NaN or a masked cell marks a missing value. Or, without ``noise``,
        values that carry their errors: numbers of uncertainties, distributions of astropy
        (:doc:`/other_tools`). Observations are returned as they are.
    noise
        Standard deviations ``(M,)`` or ``(N, M)``, covariances ``(M, M)`` or ``(N, M, M)``,
        0.0 for exact rows, a :class:`~deconflow.noise.Noise`, or a torch distribution over
        ``M`` values; or a likelihood, as ``noise.poisson()`` for counts. Errors in a table find
        the columns of a table ``w`` by their names, as ``x_err``, and are converted to their
        units. Gaussian errors that are not quite known are learned:
        ``noise.gaussian(sd=..., scale="fit")``.
    projection
        ``(N, M, D)`` or ``(M, D)``, if what is measured is ``R v + n``.
    sample_weight
        ``(N,)`` row weights.
    groups
        ``(N,)`` labels, of numbers or text, the same for rows that belong together, such as those
        of one object: rows of a group are never split between a fit and the rows it is judged
        by. They count as rows all the same. Without groups, exact copies of rows are kept
        together, unless rounding explains them; ``numpy.arange(N)`` keeps none together.
    given
        ``(N, C)`` covariates that are known exactly, numbers or categories: the location and
        the spread of the true values are curves of these. ``"noise"`` for the logarithms of the
        rows' own errors; ``("noise", table)`` for both.
    limits
        ``(N, M)`` flags of values of which only a limit is known: -1 where what would have
        been measured lies below the number in ``w``, 1 where it lies above, 0 for a measured
        value; or a table, whose columns ``x`` or ``x_limit`` find those of a table ``w``. The
        noise of a limit is the error that its measurement would have had.
    selection
        The probability of a row to be seen, if not all are: a function of points ``(N, M)``,
        text such as ``"g < 18"``, an :class:`~deconflow.Efficiency`, or a
        :class:`~deconflow.Selection`. What is fitted is the density of all true values, seen or
        not, as far as the noise reaches beyond what is seen: :doc:`/measured`.
    selection_of
        What decides: ``"measured"`` for the measured values, ``"truth"`` for the true ones.
    names
        Names of the columns of an array.

    Examples
    --------
    >>> rows = observe([[1.0, 2.0], [3.0, float("nan")]], noise=[0.1, 0.2], names=["x", "y"])
    >>> rows.shape, sorted(rows.traits)
    ((2, 2), ['missing'])
    """
    if isinstance(w, Observations):
        _refuse_more(noise, projection, sample_weight, groups, given, limits, selection, names)
        return w
    if isinstance(w, RowStream):
        raise ValueError(
            "Expected rows in memory; got a RowStream. Use posterior_in_chunks, or a sample: "
            "stream.overview(100_000).sample."
        )
    table: Any = w
    with as_guest():
        plain, noise = plain_tables(table, noise)
        if sample_weight is not None:
            sample_weight = check_weights(plain, sample_weight, "sample_weight")
        codes = None if groups is None else check_groups(plain, groups)
        flags = None if limits is None else limit_flags(plain, limits)
        check_rows_and_columns(plain.shape, "w")
        labels = Labels.of(
            table, plain, names, noise_given=noise is not None, limits_given=limits is not None
        )
        values = check_array(plain, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=0)
        free = noise if isinstance(noise, FreeErrors) else None
        data = Observations.from_arrays(
            values,
            _stated(noise if free is None else free.said, limits),
            projection=projection,
            weights=sample_weight,
            groups=codes,
            limits=flags,
        )
        data = replace(data, labels=labels, uncertain=free)
        if given is not None:
            data = replace(data, covariates=Given.of(given, table, len(data)))
        return _selected(data, table, selection, selection_of)


def _refuse_more(*facts: Any) -> None:
    """Raise for facts that stand outside of the observations they are about."""
    if any(fact is not None for fact in facts):
        raise TypeError(
            "Expected Observations alone, which hold all facts of their rows; got more. Give these "
            "to deconflow.observe."
        )


def _stated(noise: Any, limits: Any) -> Any:
    """Return the noise as it was given, or none with a warning."""
    if noise is not None:
        return noise
    if limits is not None:
        raise ValueError(
            "Expected noise with limits, the error that the measurement of a limit would have "
            "had; got none. Pass noise=..., or noise=0.0 if there is none."
        )
    warn_caller(
        "noise was not given, so w is taken as exact. Pass noise=..., or noise=0.0 to say so."
    )
    return 0.0


def _selected(data: Observations, table: Any, selection: Any, of: str) -> Observations:
    """Check the rule by which rows were seen."""
    if selection is None:
        if of != "measured":
            raise ValueError(f"Expected a selection with selection_of={of!r}; got none.")
        return data
    refuse("a selection", NOT_SELECTED, data.traits)
    if isinstance(selection, Selection) and hasattr(selection.columns, "iloc"):
        refuse_other_rows(table, selection.columns, "columns")
    return replace(data, selection=as_rule(selection, of, data.measured_names, data))


def has_noise(w: Any, noise: Any) -> bool:
    """Whether noise is given: as an argument, by Observations, or by values that carry errors."""
    if isinstance(w, Observations):
        return w.labels.noise_given
    return noise is not None or parted(w, None)[1] is not None
