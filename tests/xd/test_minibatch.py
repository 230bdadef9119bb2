import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from deconflow import XDGMM
from deconflow.xd.minibatch import has_settled


@pytest.fixture
def rows(rng):
    v = rng.normal(size=(3000, 1)) + rng.choice([-3.0, 3.0], size=(3000, 1))
    return v + 0.5 * rng.normal(size=v.shape)


def test_a_fit_that_still_gains_says_so(rows):
    start = {"means_init": [[-0.1], [0.1]], "random_state": 0}
    settings = {"method": "minibatch", "batch_size": 100, **start}
    with pytest.warns(ConvergenceWarning, match="Raise epochs"):
        short = XDGMM(2, epochs=2, **settings).fit(rows, noise=[0.5])
    long = XDGMM(2, epochs=40, **settings).fit(rows, noise=[0.5])
    best = XDGMM(2, random_state=0).fit(rows, noise=[0.5]).lower_bound_
    assert long.converged_
    assert not short.converged_
    assert long.score(rows, noise=[0.5]) > best - 0.002
    assert short.score(rows, noise=[0.5]) < best - 0.02


def test_one_bound_per_epoch_whatever_the_last_batch(rows):
    model = XDGMM(2, method="minibatch", epochs=30, batch_size=2999, learning_rate=0.0)
    model.set_params(random_state=0).fit(rows, noise=[0.5])
    assert len(model.lower_bounds_) == 30
    np.testing.assert_allclose(model.lower_bounds_, model.score(rows, noise=[0.5]), rtol=1e-12)


def test_a_partial_fit_never_claims_to_have_converged(rows):
    model = XDGMM(2, random_state=0).fit(rows, noise=[0.5])
    assert model.converged_
    assert not model.partial_fit(rows, noise=[0.5]).converged_


@pytest.mark.parametrize(
    ("history", "settled"),
    [
        ([], False),
        ([0.0], False),  # nothing to compare with
        ([0.0, 0.0], True),
        ([0.0, 1.0], False),
        ([0.0, 1.0, 1.3, 1.2, 1.3, 1.2, 1.3, 1.2], True),  # noise around a level
        ([0.0, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6], False),
    ],
)
def test_settled_means_that_quarters_no_longer_rise(history, settled):
    assert has_settled(history, 1e-3) is settled
