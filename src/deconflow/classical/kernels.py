r"""Kernels whose characteristic functions vanish beyond :math:`|t| = 1`.

Only these may be divided by the characteristic function of any noise.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from deconflow._types import Array


def smooth(t: Array) -> Array:
    r""":math:`(1 - t^2)^3`: of second order, the usual choice (Stefanski and Carroll 1990)."""
    return np.clip(1 - np.square(t), 0, None) ** 3


def sinc(t: Array) -> Array:
    """One up to the edge: of infinite order, with the strongest ripples."""
    return (np.abs(t) <= 1).astype(float)


def flat_top(t: Array) -> Array:
    """One up to a half, then a line to zero (de la Vallée Poussin): of infinite order, milder."""
    return np.clip(2 - 2 * np.abs(t), 0, 1)


KERNELS: dict[str, Callable[[Array], Array]] = {
    "smooth": smooth,
    "sinc": sinc,
    "flat_top": flat_top,
}

SMOOTH_VARIANCE = 6.0
"""Variance of the kernel :func:`smooth`: minus the second derivative of (1 - t^2)^3 at zero."""
