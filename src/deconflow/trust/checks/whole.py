"""Checks of the whole fit: against a plain mixture, and simulated rows against real ones."""

import numpy as np
from scipy.stats import chi2

from deconflow._types import Array
from deconflow.standardising import Standardiser
from deconflow.trust.check import (
    DEGREES,
    Case,
    Check,
    Finding,
    chosen_rows,
    of_smallest,
    predictive_ranks,
    shape,
    weight_inflation,
)
from deconflow.xd import expectation, lay_out, n_parameters, row_weights

# A plain mixture, on the same rows as the model.


def _model(case: Case) -> Finding | None:
    """Compare a mixture that AIC has chosen with the model.

    Its parameters, which were fitted to these very rows, are taken off; what is left is a ratio of
    likelihoods, of which chance makes one above ``c`` with probability ``1 / c`` at most.
    """
    if case.log_p is None:
        return None
    table = case.of_model
    rows, mixture = table.original, table.in_units
    better = lay_out(rows, Standardiser.of_mixture(mixture, rows))
    of_mixture = expectation(better.units.mixture_to_standard(mixture), better, moments=False)
    parameters = n_parameters(mixture.n_components, mixture.dim) * weight_inflation(rows)
    gain = max(float(table.weights @ (of_mixture.log_p - case.log_p(rows))) - parameters, 0.0)
    return Finding(
        p=float(np.exp(-gain)), gain=gain, numbers={"components": float(mixture.n_components)}
    )


MODEL = Check(
    "a plain mixture", "what one that AIC chooses gains in log p(w) over the model",
    _model,
    "a mixture of {components:.0f} Gaussians fits the rows better by {gain:.0f} nats: the model is "
    "too simple, or its fit did not end well. Allow it more, or use Deconvolver",
    "{gain:.1f} nats with {components:.0f} components", "fit",
)  # fmt: skip


# Values of each column, compared with simulated ones.
#
# The distribution of a count is another one for each count that might have been: simulated rows
# cannot be looked at with that of the real one. Its rank among values simulated for the same row
# can: with equal values in a random order it is uniform if the model is right. A fit follows its
# rows, which makes these ranks a little too even: the test is on the safe side.

DRAWS = 19


def _columns(case: Case) -> Finding:
    results = _of_table(case) if case.data.noise.additive else _of_ranks(case)
    p, gains = zip(*results, strict=True)
    worst = int(np.argmin(p))
    numbers = dict(zip(case.names, p, strict=True))
    return Finding("", of_smallest(p), gains[worst], (case.names[worst],), numbers)


def _of_table(case: Case) -> list[tuple[float, float]]:
    """P-value and gain of each column."""
    table, results = case.of_model, []
    for d, seen in enumerate(table.rows.seen.T):
        shapes = [np.where(seen[:, None], shape(k, table.below[..., d]), 0.0) for k in DEGREES]
        results.append(table.sums(shapes).together())
    return results


def _of_ranks(case: Case) -> list[tuple[float, float]]:
    data = case.rows[chosen_rows(case.rows, np.random.RandomState(case.seed))]
    ranks = predictive_ranks(case.sample, data, n_draws=DRAWS, seed=case.seed)
    return [_of_column(column, row_weights(data)) for column in ranks.T]


def _of_column(ranks: Array, weights: Array) -> tuple[float, float]:
    seen = ~np.isnan(ranks)
    own = weights[seen]
    sums = [own @ shape(k, ranks[seen]) for k in DEGREES]
    statistic = float(np.square(sums).sum() / max(np.square(own).sum(), 1e-300))
    return float(chi2.sf(statistic, len(DEGREES))), 0.5 * statistic


COLUMNS = Check(
    "columns", "simulated values against real ones, column by column",
    _columns,
    "simulated measurements do not look like the real ones in {where}: the errors may be wrong, or "
    "the model too simple. See `deconflow plot --kind diagnostics`",
    "worst in {where}", "fit", additive=False,
)  # fmt: skip


# Rows as a whole, by ranks of ``log p(w)``.

#: The mean of a polynomial of ranks, whose standard deviation is one, may be off by about this
#: much: mixtures round sharp edges.
SLACK = 0.006


def _joint(case: Case) -> Finding:
    table = case.of_model
    log_p = table.view.log_p
    simulated = np.sort(log_p[:, 1:], axis=None)
    rank = (np.searchsorted(simulated, log_p) + 0.5) / (simulated.size + 1)
    sums = table.sums([shape(degree, rank) for degree in DEGREES])
    p, gain = sums.together(SLACK * table.weights.sum())
    return Finding(p=p, gain=gain)


JOINT = Check(
    "rows as a whole", "simulated rows against real ones, by ranks of log p(w)",
    _joint,
    "simulated rows do not look like the real ones as a whole: there are too many or too few "
    "unusual rows. The errors may be wrong, or the model too simple",
    kind="fit",
)  # fmt: skip
