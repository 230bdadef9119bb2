import numpy as np
import pytest

from deconflow.classical.wavelets import analyse, measure, order_of, synthesise
from deconflow.noise import as_noise, laplace
from deconflow.observations import Observations

PARTS = [(3, "scaling"), (3, "wavelet"), (4, "wavelet"), (5, "wavelet")]


def test_the_functions_are_orthonormal():
    """Each function's coefficients are one at its own place, and zero elsewhere."""
    order = max(order_of(*part) for part in PARTS)
    for level, kind in PARTS:
        for k in (0, 2**level - 1):
            one = np.eye(2**level)[k]
            phi = synthesise(one, level, kind, order)
            for other, other_kind in PARTS:
                found = analyse(phi[: order_of(other, other_kind) + 1], other, other_kind)
                wanted = one if (other, other_kind) == (level, kind) else 0.0
                np.testing.assert_allclose(found, np.broadcast_to(wanted, found.shape), atol=1e-12)


def test_low_frequencies_are_recovered_exactly():
    rng = np.random.default_rng(0)
    order, most = order_of(5, "wavelet"), 20
    phi = np.zeros(order + 1, complex)
    phi[: most + 1] = rng.normal(size=most + 1) + 1j * rng.normal(size=most + 1)
    phi[0] = 1
    total = sum(
        synthesise(analyse(phi[: order_of(*part) + 1], *part), *part, order) for part in PARTS
    )
    np.testing.assert_allclose(total[: most + 1], phi[: most + 1], atol=1e-12)


@pytest.mark.parametrize("by_row", [False, True])
def test_variances_of_coefficients(by_row):
    """What a fit believes of its error is what fits to fresh data scatter by."""
    rng = np.random.default_rng(0)
    n, low, length = 300, np.array([-5.0]), np.array([10.0])
    scale = np.where(np.arange(n) % 2, 0.2, 0.6)[:, None] if by_row else np.full(1, 0.4)
    found, believed = [], []
    for _ in range(400):
        w = rng.normal(size=(n, 1)) + rng.laplace(0, scale, (n, 1))
        data = Observations(w, as_noise(laplace(scale), n, 1), weights=np.full(n, 1 / n))
        level = measure(data, low, length, 4, "wavelet")
        found.append(level.values)
        believed.append(level.variances)
    middle = slice(5, 11)
    np.testing.assert_allclose(
        np.mean(believed, 0)[middle], np.var(found, 0)[middle], rtol=0.35
    )  # 5 standard errors of a variance from 400 draws
