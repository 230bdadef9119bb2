"""Edges of a sample that was cut off."""

import numpy as np

from deconflow.trust.check import CONSTANT, Case, Check, Finding, of_smallest

#: A lower edge within this share of the values' reach above zero may be that of positive values.
NEAR_ZERO = 0.1
#: Squared relative error of the number that is expected beyond an edge: about a quarter.
UNSURE = 0.08


def _test(case: Case) -> Finding:
    """Count simulated values beyond the outermost real one.

    If the model is right, the expected number beyond the outermost of as many is an exponential
    number of mean one, but for the error of the model, which rounds what ends sharply.
    """
    table = case.of_noise if case.log_p else case.of_model  # that ends as rows do
    if table.data.weights is not None:
        return Finding(reason="rows have weights")
    rows, beyond = table.rows, []
    draws = rows.w.shape[1] - 1
    for d, seen in enumerate(rows.seen.T):
        real, simulated = rows.w[seen, 0, d], rows.w[seen, 1:, d]
        if len(real) and np.ptp(real) > 0:
            low, high = float(real.min()), float(real.max())
            beyond.append(((simulated < low).sum() / draws, d, 0.0, low, high - low))
            beyond.append(((simulated > high).sum() / draws, d, 1.0, high, high - low))
    if not beyond:
        return Finding(reason=CONSTANT)
    gain, d, upper, edge, reach = max(beyond, key=lambda each: each[0])
    shift = table.units.location[d] if table.data.projection is None else 0.0  # else it differs
    numbers = {"upper": upper, "expected": float(gain)}
    scale = table.units.measured_scale[d]  # as users know it
    numbers["edge"] = float(shift + edge * scale)
    numbers["positive"] = float(not upper and 0 <= numbers["edge"] <= NEAR_ZERO * reach * scale)
    p = of_smallest((1 + UNSURE * gain) ** (-1 / UNSURE), len(beyond))
    return Finding("", p, float(gain), (table.names[d],), numbers)


def _caution(finding: Finding) -> str:
    numbers = finding.numbers
    advice = (
        "the sample looks cut off, and the answer is that of the remaining rows. Describe the cut "
        "with selection= and fit again; or, if the true values end there by nature, say where by "
        "bounds="
    )
    if numbers["positive"]:
        advice = (
            "if the true values are positive, say so by bounds= and fit again; if the sample was "
            "cut off, describe the cut with selection="
        )
    return (
        f"the values of {finding.where} end at {numbers['edge']:.4g}, where the model expects "
        f"{numbers['expected']:.0f} more rows {'above' if numbers['upper'] else 'below'}: {advice}"
    )


CHECK = Check(
    "edges", "simulated rows beyond the outermost real one; about one is usual", _test, _caution,
    "{expected:.1f} beyond, in {where}",
)  # fmt: skip
