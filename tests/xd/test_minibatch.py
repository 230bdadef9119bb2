import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from deconflow import XDGMM
from deconflow.xd.many_rows import has_settled


@pytest.fixture
def rows(rng):
    v = rng.normal(size=(3000, 1)) + rng.choice([-3.0, 3.0], size=(3000, 1))
    return v + 0.5 * rng.normal(size=v.shape)


def fitted(rows, **options):
    start = {"means": [[-0.1], [0.1]]}
    model = XDGMM(2, method={"minibatch": options}, init=start, random_state=0)
    return model.fit(rows, noise=[0.5])


def test_a_fit_that_still_gains_says_so(rows):
    with pytest.warns(ConvergenceWarning, match="Raise epochs"):
        short = fitted(rows, batch_size=100, epochs=2)
    long = fitted(rows, batch_size=100, epochs=40)
    best = XDGMM(2, random_state=0).fit(rows, noise=[0.5]).lower_bound_
    assert long.converged_
    assert not short.converged_
    assert long.score(rows, noise=[0.5]) > best - 0.002
    assert short.score(rows, noise=[0.5]) < best - 0.02


def test_one_bound_per_epoch_whatever_the_last_batch(rows):
    model = fitted(rows, epochs=30, batch_size=2999, learning_rate=0.0)
    assert len(model.lower_bounds_) == 30
    np.testing.assert_allclose(model.lower_bounds_, model.score(rows, noise=[0.5]), rtol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_name_has_the_usual_options(rows):
    fits = [XDGMM(2, method=m, random_state=0) for m in ("minibatch", {"minibatch": {}})]
    one, other = (model.fit(rows[:500], noise=[0.5]) for model in fits)
    np.testing.assert_array_equal(one.means_, other.means_)
    assert one.n_iter_ == 20


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
