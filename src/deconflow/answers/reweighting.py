r"""Refits to reweighted rows: how far any number that a density has may be off.

The Bayesian bootstrap (Rubin 1981): rows get weights from an exponential law, and a mixture is
fitted to them again. It starts where the fit to all rows ends, so that fifty refits cost about as
much as a few fits.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.utils import check_random_state

from deconflow.copies import keep_copies_together
from deconflow.fits import MixtureFit, Replicates, clear_errors
from deconflow.mixtures import GaussianMixture
from deconflow.observations import Observations
from deconflow.randomness import RandomState
from deconflow.xd import (
    EMResult,
    FitSettings,
    PreparedData,
    Stopping,
    fit_exact,
    n_parameters,
    row_weights,
)

#: Mixtures of a model that are taken as they are, and components of each.
MOST_MEMBERS, MOST_COMPONENTS = 10, 32
#: Draws of a model that is no mixture, and numbers of components that are fitted to them.
DRAWS, IN_ITS_PLACE = 5000, (1, 2, 3, 4, 6, 8)
STEPS = Stopping(tol=1e-6, max_iter=200, accelerate=True)
#: Variances of refits may fall to this share of the narrowest of the model: without such a floor
#: components collapse, and the fit may have had one, which its answer does not tell.
NARROWER = 0.25
#: Variance of the noise, in units of that of the truth, that is none.
NO_NOISE = 1e-100
#: Smallest covariance of a mixture in a model's place, in units of the noise.
FLOOR = 0.02


def reweighted_fits(
    fit: Any, data: Observations, n_refits: int, random_state: RandomState
) -> tuple[Replicates, str]:
    """Fit mixtures to rows with weights by chance; their spread is that of the model's answers.

    Parameters
    ----------
    fit : Fit
        What a model has learned.
    data
        The rows that it was fitted to.
    n_refits
        How many.
    random_state
        Seed of the weights.

    Returns
    -------
    Replicates, str
        What was found, and of what in words: of the mixtures that the model averages, in turn; of
        one that averages none, or too many, a mixture in its place.
    """
    density, rng = fit.density, check_random_state(random_state)
    data = keep_copies_together(_without_background(fit, data))
    prepared = PreparedData(data)
    starts, words = _own_mixtures(fit), f"{n_refits} refits to reweighted rows"
    if starts:
        fits = [
            _settled(prepared, start, _floor(prepared, start), density.threads) for start in starts
        ]
    else:
        fits = [_in_its_place(prepared, density)]
        words = f"{n_refits} refits of a Gaussian mixture in the model's place, to reweighted rows"
    if fit.known.traits & {"atoms", "bounds"}:
        words += ", which know neither atoms nor bounds"
    own = np.ones(len(data)) if data.weights is None else data.weights
    codes, found = data.group_codes(), []
    codes = np.arange(len(data)) if codes is None else codes  # a group has one weight
    for i in range(n_refits):
        rows = data.weighed(own * rng.standard_exponential(codes.max() + 1)[codes])
        settings, start = fits[i % len(fits)]
        with clear_errors():
            refit = PreparedData(rows).fit(settings, rng, start.mixture).mixture
        found.append(MixtureFit([refit], density.names, density.threads))
    return Replicates(found, "draws"), words


def _without_background(fit: Any, data: Observations) -> Observations:
    """Weigh rows by how likely they are measurements of a truth."""
    if "background" not in fit.known.traits:
        return data
    own = row_weights(data) * (1.0 - fit.density.memberships(data)[1])
    return data.weighed(own).with_weight()


def _own_mixtures(fit: Any) -> list[GaussianMixture]:
    """Return the mixtures that the model averages, or one that fits its rows; if these are few."""
    members = getattr(fit.density, "members", None) or []
    if len(members) > MOST_MEMBERS or any(m.n_components > MOST_COMPONENTS for m in members):
        members = []
    return list(members) or ([] if fit.working is None else [fit.working])


def _in_its_place(prepared: PreparedData, density: Any) -> tuple[FitSettings, EMResult]:
    """Fit mixtures to draws of a density, go on with the rows, and take the best by BIC."""
    draws = density.sample(DRAWS, 0)
    draws = draws[np.isfinite(draws).all(1)]
    fits = [
        _settled(prepared, fit_exact(draws, k, 0), FLOOR, density.threads) for k in IN_ITS_PLACE
    ]
    size = len(prepared.data)

    def bic(fit: tuple[FitSettings, EMResult]) -> float:
        free = n_parameters(fit[0].n_components, density.dim)
        return float(free * np.log(size) - 2 * size * fit[1].log_likelihood)

    return min(fits, key=bic)


def _settled(
    prepared: PreparedData, start: GaussianMixture, floor: float, threads: int | None
) -> tuple[FitSettings, EMResult]:
    """Fit to the rows as they are; return how, and where that ends."""
    stopping = replace(STEPS, threads=threads)
    settings = FitSettings(start.n_components, floor=floor, stopping=stopping)
    with clear_errors():
        return settings, prepared.fit(settings, np.random.RandomState(0), start)


def _floor(prepared: PreparedData, start: GaussianMixture) -> float:
    """Return a floor, in units of the noise, somewhat below the narrowest component."""
    standard = prepared.rows.units.mixture_to_standard(start)
    factors = np.linalg.cholesky(standard.covariances)
    widest = 0.0
    for factor in factors:
        half = solve_triangular(factor, prepared.noise, lower=True)
        relative = solve_triangular(factor, half.T, lower=True)
        widest = max(widest, float(np.linalg.eigvalsh(relative)[-1]))
    return NARROWER / widest if widest > NO_NOISE else 0.0
