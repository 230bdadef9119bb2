"""Dependence of the true values on the size of their error."""

import numpy as np
from scipy.stats import rankdata

from deconflow.trust.check import (
    ALIKE,
    Alternative,
    Case,
    Check,
    Finding,
    Table,
    of_smallest,
    shape,
    two_sided,
)
from deconflow.truth import LocationScale


def _test(case: Case) -> Finding:
    table = case.of_noise
    if not table.differing.any():
        return Finding(reason=ALIKE)
    sd = np.broadcast_to(table.rows.sd, table.rows.seen.shape)
    functions, of = [], []
    for d in np.flatnonzero(table.differing).tolist():
        seen = table.rows.seen[:, d]
        order = np.zeros(len(sd))
        order[seen] = rankdata(sd[seen, d]) / (seen.sum() + 1) - 0.5
        for degree in (1, 2):
            functions.append(order[:, None] * shape(degree, table.below[..., d]))
            of.append((d, degree))
    z = np.nan_to_num(table.sums(functions).z)
    worst = int(np.abs(z).argmax())
    column, degree = of[worst]
    numbers = {"z": float(z[worst]), "spread": float(degree == 2)}
    gain = 0.5 * float(z[worst]) ** 2
    return Finding("", of_smallest(two_sided(z)), gain, (table.names[column],), numbers)


def _alternative(table: Table, finding: Finding, _: float) -> Alternative:
    """Take curves of location and spread out of the rows, as ``given="noise"`` does."""
    rows, logs = table.data, np.log(np.broadcast_to(table.rows.sd, table.rows.seen.shape))
    logs = logs[:, table.differing]
    if not np.isfinite(logs).all() or rows.observed is not None:
        raise ValueError("Expected errors of every value above 0; got others.")
    x = (logs - logs.mean(0)) / logs.std(0)
    curves = LocationScale.fit(rows, x, np.ones(x.shape[1], bool))
    volume = float(table.weights @ curves.log_volume(rows, x))
    return {"taken out": 1.0}, curves.standardised(rows, x), volume


def _caution(finding: Finding) -> str:
    what = "the spread of " if finding.numbers["spread"] else ""
    more = "increases" if finding.numbers["z"] > 0 else "decreases"
    return (
        f"{what}{finding.where} {more} with its error, but the fit assumes that they are "
        'independent. Fit again with given="noise", which lets location and spread depend on the '
        "error, or fit rows of similar errors by themselves"
    )


CHECK = Check(
    "values and errors", "whether location or spread depend on the size of the error", _test,
    _caution, "most in {where}", alternative=_alternative,
)  # fmt: skip
