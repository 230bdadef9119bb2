"""No order of the layers, and no seed, spoils the fit of a flow."""

import pytest

from benchmarks.flow_orders import as_before, excess, unlucky
from deconflow.fitting import Training

pytestmark = pytest.mark.usefixtures("one_thread")

SHORT = {"rows": 5000, "hidden": 32}
TRAINING = Training(epochs=20, batch_size=250, learning_rate=5e-3)


@pytest.mark.parametrize(("name", "seed"), [("maf", 0), ("maf", 1), ("maf", 2), ("made", 0)])
def test_an_unlucky_order_spoils_no_fit(name, seed):
    """Within .25 nat of the truth after 400 steps; measured: .04 to .15, and .52 to .53 before."""
    assert excess(name, seed, unlucky, **SHORT, training=TRAINING) < 0.25


def test_it_spoiled_fits_before():
    assert excess("maf", 0, unlucky, as_before, **SHORT, training=TRAINING) > 0.4
