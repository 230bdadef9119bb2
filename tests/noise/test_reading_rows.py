"""Rows of what is read with the measured values: by index, in scikit-learn's folds, from tables."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score

from deconflow import XDGMM, Observations, noise, observe

N = 60
RNG = np.random.default_rng(0)
TIMES = RNG.uniform(0.5, 3.0, N)
COUNTS = RNG.poisson(4 * TIMES)[:, None].astype(float) + 1
FLAGS = np.where(COUNTS > 9, 1.0, 0.0)
SOME = np.array([7, 3, 20])

BY_ROW = {
    "poisson": noise.poisson(TIMES),
    "binomial": noise.binomial(np.full((N, 1), 99)),
    "multiplicative, array": noise.multiplicative(0.1 * TIMES[:, None]),
    "multiplicative, law": noise.multiplicative(noise.gaussian(sd=0.1 * TIMES[:, None])),
    "limits": noise.limited(0.1 * TIMES[:, None], FLAGS),
    "limits, law": noise.limited(noise.gaussian(sd=0.1 * TIMES[:, None]), FLAGS),
    "limits, one error": noise.limited([0.3], FLAGS),
}


@pytest.mark.parametrize("kind", BY_ROW)
def test_rows_of_a_reading_are_those_of_the_values(kind):
    """The law of some rows is that of the whole table at these rows; at others it is not."""
    reading = BY_ROW[kind]
    whole = Observations.from_arrays(COUNTS, reading)
    v = whole.w + 0.1
    expected = whole.noise.log_prob(whole.residual(v))
    some = Observations.from_arrays(COUNTS[SOME], reading[SOME])
    found = some.noise.log_prob(some.residual(v[SOME]))
    np.testing.assert_allclose(found, expected[SOME], rtol=1e-6)
    assert not np.allclose(found, expected[SOME + 1], rtol=1e-3)
    assert reading.shape == (N,)
    with pytest.raises(IndexError, match="Expected rows between 0 and 59; got 60"):
        reading[[60]]


@pytest.mark.parametrize("reading", [noise.poisson(2.0), noise.multiplicative([0.1])])
def test_what_holds_for_every_row_stays(reading):
    assert reading[SOME] is reading


def test_folds_take_their_rows_of_a_reading():
    """Each fold has its own exposures: the same as folds made by hand."""
    rows = observe(COUNTS, BY_ROW["poisson"])
    found = cross_val_score(XDGMM(1), rows, cv=2, error_score="raise")
    first, second = slice(None, N // 2), slice(N // 2, None)
    model = XDGMM(1).fit(COUNTS[second], noise=noise.poisson(TIMES[second]))
    by_hand = model.score(COUNTS[first], noise=noise.poisson(TIMES[first]))
    assert found[0] == pytest.approx(by_hand, rel=1e-6)


TABLE = pd.DataFrame({"y": TIMES, "x": TIMES})


@pytest.mark.parametrize(
    "make",
    [
        lambda: noise.poisson(TABLE),
        lambda: noise.binomial(TABLE),
        lambda: noise.likelihood(max, max, gain=TABLE),
        lambda: noise.multiplicative(TABLE),
        lambda: noise.limited(0.1, TABLE),
        lambda: noise.limited(TABLE, np.zeros((N, 2))),
    ],
)
def test_tables_whose_names_would_be_lost_are_refused(make):
    with pytest.raises(TypeError, match="got a table of y, x, whose names a law does not keep"):
        make()
