r"""An estimator is fitted again to tables whose truth is known.

Tables are simulated from the fitted model, :math:`w_i = R_i v_i + n_i` with :math:`v_i \sim p(v)`
and the noise, the missing values, the projections and the weights of the real rows. The model is
the truth of these, so that one can count how often the refits' answers hold it.
"""

import time
import warnings
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state
from tqdm.auto import tqdm

from deconflow._types import Array, BoolArray, IntArray
from deconflow.answers.self_test import BAND_LEVEL, BINS, Refit, SelfTest
from deconflow.observations import Observations
from deconflow.randomness import RandomState, isolated_rng

#: Rows whose posteriors are looked at, draws of the truth, and places of bands in each column.
ROWS, FRESH, PLACES = 1000, 2000, 25
#: Of each posterior: ranks from 0 to 399 fill the bins evenly.
DRAWS = 399
#: Of each table, so that no step depends on another.
N_SEEDS = 5
#: A value with less noise than this share of the truth's spread has nothing to be tested.
KNOWN = 0.01
#: Parameters that a refit has otherwise.
OTHERWISE = {"checkpoint": None, "verbose": False}


def run_self_test(
    model: Any,
    data: Observations,
    n_tables: int,
    random_state: RandomState,
    *,
    shown: bool = False,
) -> SelfTest:
    """Fit again to simulated tables; see :meth:`DensityEstimator.self_test`.

    Parameters
    ----------
    model
        A fitted estimator.
    data
        The rows to simulate others like.
    n_tables
        How many tables to simulate. An interrupt ends with those that are done, if any.
    random_state
        Seed of tables and refits; the first tables are the same for any number of them.
    shown
        Whether to show progress.
    """
    drawn = check_random_state(random_state).randint(2**31 - 1, size=(n_tables, N_SEEDS))
    done: list[Refit] = []
    with tqdm(total=n_tables, desc="self-test", unit="refit", disable=not shown) as bar:
        try:
            for seeds in drawn.tolist():
                done.append(_one_table(model, data, *seeds))
                bar.update()
        except KeyboardInterrupt:
            if not done:
                raise
    return SelfTest(tuple(model.density_.names), n_tables, tuple(done))


def _one_table(
    model: Any,
    data: Observations,
    of_truth: int,
    of_noise: int,
    of_fit: int,
    of_posterior: int,
    of_fresh: int,
) -> Refit:
    """Simulate a table, fit it, and compare with the truth; each step has a seed of its own."""
    truth = model.density_.sample(len(data), of_truth)
    with isolated_rng(of_noise):
        table = data.remeasure(truth)
    start = time.perf_counter()
    refit = _fitted_again(model, table, of_fit)
    seconds = time.perf_counter() - start
    fresh = model.density_.sample(FRESH, of_fresh)
    excess, error, missed = _excess(model, refit, fresh)
    held, places = _bands(model, refit, fresh)
    ranks = _ranks(refit, table, truth, fresh.std(0), of_posterior)
    counts = tuple(tuple(np.bincount(each, minlength=BINS).tolist()) for each in ranks)
    return Refit(len(data), counts, excess, error, missed, held, places, round(seconds, 3))


def _fitted_again(model: Any, table: Observations, seed: int) -> Any:
    """Fit an estimator with the same settings; its warnings are about a table nobody has."""
    refit = clone(model).set_params(**model.parameters_)
    names = refit.get_params()
    changes = {**OTHERWISE, "random_state": seed}
    refit.set_params(**{name: value for name, value in changes.items() if name in names})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return refit.fit(table)


def _ranks(
    refit: Any, table: Observations, truth: Array, spread: Array, seed: int
) -> list[IntArray]:
    """In which twentieth of its posterior each true value lies, for some rows; by column."""
    rng = np.random.RandomState(seed)
    rows = np.sort(rng.permutation(len(table))[:ROWS])
    some = table[rows]
    posterior = refit.posterior(some, n_samples=DRAWS, random_state=seed)
    below = (posterior.sample(DRAWS, rng) < truth[rows][:, None]).sum(1)
    tested = _uncertain(some, spread)
    return [below[keep, d] * BINS // (DRAWS + 1) for d, keep in enumerate(tested.T)]


def _uncertain(table: Observations, spread: Array) -> BoolArray:
    """Which true values ``(N, D)`` are not as good as known by their measurement."""
    if table.projection is not None:
        return np.ones((len(table), len(spread)), dtype=bool)
    sd = np.sqrt(table.noise.variance())
    noisy = np.broadcast_to(sd > KNOWN * spread, (len(table), len(spread)))
    return noisy if table.observed is None else noisy | ~table.observed


def _excess(model: Any, refit: Any, fresh: Array) -> tuple[float | None, float | None, float]:
    """Mean of ``log p_model - log p_refit`` where both are finite, its error, and where not."""
    apart = model.density_.log_prob(fresh) - refit.density_.log_prob(fresh)
    known = apart[np.isfinite(apart)]
    missed = 1 - len(known) / len(apart)
    if not len(known):
        return None, None, missed
    return float(known.mean()), float(known.std() / np.sqrt(len(known))), missed


def _bands(model: Any, refit: Any, fresh: Array) -> tuple[int | None, int | None]:
    """At how many places bands hold the density of a column, and of how many; None without."""
    if refit.density_.replicates is None:
        return None, None
    held, shares = 0, (np.arange(PLACES) + 0.5) / PLACES
    for d in range(fresh.shape[1]):
        points = np.quantile(fresh[:, d], shares)  # as many where there is as much of the truth
        band = refit.density_.band(points, column=d, level=BAND_LEVEL)
        density = np.exp(model.density_.marginal(d).log_prob(points[:, None]))
        held += int(((band.lower <= density) & (density <= band.upper)).sum())
    return held, PLACES * fresh.shape[1]
