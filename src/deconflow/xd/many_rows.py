"""From rows beyond memory to a mixture: fits to samples that grow, then passes over everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.standardising import Standardiser
from deconflow.xd.curvature import QuasiNewton, inverse_curvature
from deconflow.xd.em import EMResult, em
from deconflow.xd.em_statistics import DistantRows
from deconflow.xd.fit import FitSettings, PreparedData, n_parameters
from deconflow.xd.layout import lay_out
from deconflow.xd.maximisation import Constraints

FIRST_SAMPLE, GROWTH = 20_000, 10
"""Rows of the first sample, and how much larger the next one is."""
SAMPLE_TOL = 0.01
"""Fits to samples are this much more exact than those to all rows: they are cheap, and what they
leave undone costs passes over everything."""
CURVATURE_ROWS = 100_000
"""Rows whose curvature is looked at, at most."""
CURVATURE_COST = 5.0
"""Passes over everything that finding the curvature may cost in arithmetic; none of it reads."""


def fit_samples(
    sample: Observations,
    settings: FitSettings,
    n_init: int,
    rng: np.random.RandomState,
    begin: Callable[[int], None] = lambda n_rows: None,
) -> GaussianMixture:
    """Fit samples that grow, each from the last one's result; the first from several starts.

    ``begin`` is called with the number of rows of each sample before it is fitted.
    """
    tight = replace(settings.stopping, tol=SAMPLE_TOL * settings.stopping.tol)
    start = None
    for size in growing_sizes(len(sample)):
        begin(size)
        prepared = PreparedData(sample[:size])
        if start is None:
            start = prepared.fit_best(settings, n_init, rng).mixture
        else:
            exact = replace(settings, stopping=tight)
            start = prepared.fit(exact, rng, start).mixture
    assert start is not None
    return start


def growing_sizes(n: int) -> list[int]:
    """Return the sizes of the samples, of which the last has all rows in memory.

    Examples
    --------
    >>> growing_sizes(1_000_000)
    [20000, 200000, 1000000]
    """
    sizes = [FIRST_SAMPLE]
    while sizes[-1] * GROWTH < n:
        sizes.append(sizes[-1] * GROWTH)
    return [*(size for size in sizes if size < n), n]


def fit_everything(
    start: GaussianMixture,
    sample: Observations,
    rows_in: Callable[[Standardiser], DistantRows],
    settings: FitSettings,
    passed: Callable[[], None] = lambda: None,
) -> EMResult:
    """Pass over everything until the likelihood stands still; the answer is in the user's units.

    Parameters
    ----------
    start
        Where to begin: the answer of the largest sample.
    sample
        The rows in memory.
    rows_in
        Gives all rows in some units.
    settings
        How to fit.
    passed
        Called after every pass.
    """
    prepared = PreparedData(sample)
    constraints, units = settings.constraints(prepared), prepared.rows.units
    begin, everything = prepared.begin(start, constraints), rows_in(units)
    steps = _quasi_newton(begin, sample, units, everything.n_rows, constraints, settings)
    del prepared
    result = em(begin, everything, constraints, settings.stopping, steps, lambda _: passed())
    return replace(result, mixture=units.mixture_from_standard(result.mixture))


def _quasi_newton(
    mixture: GaussianMixture,
    sample: Observations,
    units: Standardiser,
    n_rows: int,
    constraints: Constraints,
    settings: FitSettings,
) -> QuasiNewton | None:
    """Look at the curvature of a sample, where it is that of what is maximised; None for EM."""
    fixed = (constraints.fixed_weights, constraints.fixed_means, constraints.fixed_covariances)
    bound = any(flags.any() for flags in fixed) or constraints.prior is not None
    parameters = n_parameters(mixture.n_components, mixture.dim)
    size = int(min(CURVATURE_ROWS, len(sample), CURVATURE_COST * n_rows / parameters))
    if bound or not settings.stopping.accelerate or size < 2 * parameters:
        return None
    rows = lay_out(sample[:size], units)
    inverse = inverse_curvature(mixture, rows, constraints, settings.stopping.threads)
    return QuasiNewton(constraints, inverse)
