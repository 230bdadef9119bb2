"""Whether the model foretells what was measured, and whether the truth depends on its error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import eval_legendre
from scipy.stats import rankdata

from deconflow._types import Array
from deconflow.findings import Finding
from deconflow.observations import Observations
from deconflow.standardising import Standardiser
from deconflow.trust.comparison import of_smallest, two_sided
from deconflow.trust.table import Table, weight_inflation
from deconflow.xd import expectation, lay_out, n_parameters

LogLikelihood = Callable[[Observations], Array]
"""Gives ``log p(w)`` of each row."""
DEGREES = (1, 2, 3, 4, 5)
"""Polynomials of a probability: shift, spread, lean and finer shape (Neyman's smooth test)."""
SLACK = 0.006
"""The mean of such a polynomial of ranks, whose standard deviation is one, may be off by about this
much: mixtures round the sharp edges of a truth."""


def too_simple(table: Table, log_p: LogLikelihood) -> Finding:
    """Hold a mixture that AIC has chosen against the model, on the same rows.

    Its parameters, which were fitted to these very rows, are taken off; what is left is a ratio of
    likelihoods, of which chance makes one above ``c`` with probability ``1 / c`` at most.
    """
    rows = table.original
    mixture = table.in_units
    better = lay_out(rows, Standardiser.of_mixture(mixture, rows))
    of_mixture = expectation(better.units.mixture_to_standard(mixture), better, moments=False)
    parameters = n_parameters(mixture.n_components, mixture.dim) * weight_inflation(rows)
    gain = float(table.weights @ (of_mixture.log_p - log_p(rows))) - parameters
    numbers = {"components": float(mixture.n_components)}
    return Finding("model", float(np.exp(-max(gain, 0.0))), max(gain, 0.0), numbers=numbers)


def columns(table: Table) -> Finding:
    """Compare the values of each column with simulated ones."""
    results = []
    for d in range(len(table.names)):
        shapes = [_shape(degree, table.below[..., d]) for degree in DEGREES]
        seen = table.rows.seen[:, d, None]
        results.append(table.sums([np.where(seen, each, 0.0) for each in shapes]).together())
    p = [result[0] for result in results]
    worst = int(np.argmin(p))
    numbers = dict(zip(table.names, p, strict=True))
    return Finding("columns", of_smallest(p), results[worst][1], (table.names[worst],), numbers)


def joint(table: Table) -> Finding:
    """Compare ranks of ``log p(w)``: whether unusual rows are as frequent as they should be."""
    log_p = table.view.log_p
    simulated = np.sort(log_p[:, 1:], axis=None)
    rank = (np.searchsorted(simulated, log_p) + 0.5) / (simulated.size + 1)
    sums = table.sums([_shape(degree, rank) for degree in DEGREES])
    p, gain = sums.together(SLACK * table.weights.sum())
    return Finding("joint", p, gain)


def dependence(table: Table) -> Finding:
    """Look whether place and spread of the truth go with the size of the error."""
    if not table.by_row:
        return Finding("dependence", reason="alike")
    sd = np.broadcast_to(table.rows.sd, table.rows.seen.shape)
    functions, of = [], []
    for d in np.flatnonzero(table.differing):
        seen = table.rows.seen[:, d]
        order = np.zeros(len(sd))
        order[seen] = rankdata(sd[seen, d]) / (seen.sum() + 1) - 0.5
        for degree in (1, 2):
            functions.append(order[:, None] * _shape(degree, table.below[..., d]))
            of.append((int(d), degree))
    z = table.sums(functions).z
    z = np.where(np.isnan(z), 0.0, z)
    worst = int(np.abs(z).argmax())
    column, degree = of[worst]
    p = of_smallest([two_sided(each) for each in z])
    numbers = {"z": float(z[worst]), "spread": float(degree == 2)}
    return Finding("dependence", p, 0.5 * float(z[worst]) ** 2, (table.names[column],), numbers)


def _shape(degree: int, probability: Array) -> Array:
    """Legendre polynomial of a probability, with variance one where that is uniform."""
    return np.sqrt(2 * degree + 1) * eval_legendre(degree, 2 * probability - 1)


FIT_TESTS: tuple[Callable[[Table], Finding], ...] = (columns, joint)
"""What the model itself is asked."""
