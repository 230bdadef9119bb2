"""A plain mixture, on the same rows as the model."""

import numpy as np

from deconflow.standardising import Standardiser
from deconflow.trust.check import Case, Check, Finding, weight_inflation
from deconflow.xd import expectation, lay_out, n_parameters

#: One of so many rows, those that gain most, are left out: no single one decides.
ROWS_PER_INFLUENTIAL = 1000


def _test(case: Case) -> Finding | None:
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
    gains = np.sort(table.weights * (of_mixture.log_p - case.log_p(rows)))
    few = 1 + len(gains) // ROWS_PER_INFLUENTIAL
    gain = max(float(gains[:-few].sum()) - parameters, 0.0)
    numbers = {"components": float(mixture.n_components), "of few": float(gains[-few:].sum())}
    return Finding(p=float(np.exp(-gain)), gain=gain, numbers=numbers)


CHECK = Check(
    "a plain mixture",
    "what one that AIC chooses gains in log p(w) over the model, less what its parameters gain by "
    "chance, and without one row in a thousand", _test,
    "a mixture of {components:.0f} Gaussians fits the rows better by {gain:.0f} nats: the model is "
    "too simple, or its fit did not end well. Allow it more, or use Deconvolver",
    "{gain:.1f} nats with {components:.0f} components, and {of few:.1f} in few rows", "fit",
)  # fmt: skip
