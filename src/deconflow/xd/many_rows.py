"""Starts for rows beyond memory: fits to samples that grow, and the curvature of the last one."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.xd.curvature import QuasiNewton, inverse_curvature
from deconflow.xd.em import Stopping
from deconflow.xd.fit import FitSettings, PreparedData, n_parameters
from deconflow.xd.layout import lay_out
from deconflow.xd.maximisation import Constraints

#: Rows of the first sample, and how much larger the next one is.
FIRST_SAMPLE, GROWTH = 20_000, 10
#: Fits to samples are this much more exact than those to all rows: they are cheap, and what they
#: leave undone costs passes over everything.
SAMPLE_TOL = 0.01
#: Rows whose curvature is looked at, at most.
CURVATURE_ROWS = 100_000
#: Passes over everything that finding the curvature may cost in arithmetic; none of it reads.
CURVATURE_COST = 5.0


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
    first, *larger = growing_sizes(len(sample))
    begin(first)
    start = PreparedData(sample[:first]).fit_best(settings, n_init, rng).mixture
    for size in larger:
        begin(size)
        exact = replace(settings, stopping=tight)
        start = PreparedData(sample[:size]).fit(exact, rng, start).mixture
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


def quasi_newton(
    mixture: GaussianMixture,
    sample: PreparedData,
    n_rows: int,
    constraints: Constraints,
    stopping: Stopping,
) -> QuasiNewton | None:
    """Look at the curvature of a sample, where it is that of what is maximised; None for EM."""
    fixed = (constraints.fixed_weights, constraints.fixed_means, constraints.fixed_covariances)
    bound = any(flags.any() for flags in fixed) or constraints.prior is not None
    parameters = n_parameters(mixture.n_components, mixture.dim)
    size = int(min(CURVATURE_ROWS, len(sample.data), CURVATURE_COST * n_rows / parameters))
    if bound or not stopping.accelerate or size < 2 * parameters:
        return None
    rows = lay_out(sample.data[:size], sample.rows.units)
    return QuasiNewton(constraints, inverse_curvature(mixture, rows, constraints, stopping.threads))
