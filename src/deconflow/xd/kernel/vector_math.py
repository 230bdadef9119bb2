"""Exponential and logarithm that vectorise over rows, which the C library's do not.

Both are exact to one unit in the last place on the ranges that mixtures need. Compiled with
``contract`` alone of the fast-math flags: reordering would break the argument reduction.
"""

import numpy as np

from deconflow.xd.kernel.compile import compiled_rows


@compiled_rows(fastmath={"contract"})
def exp_rows(x: np.ndarray, scratch: np.ndarray, n: int) -> None:
    """Replace ``x[:n]``, which must be at most zero, by its exponential.

    With ``x = k log 2 + z`` and ``|z| <= log(2) / 2``: a Taylor sum of 13 terms for
    ``exp(z)``, and ``k`` added to the exponent bits. Adding ``1.5 * 2**52`` (6755399441055744)
    leaves the nearest integer in the low bits of a double. Below -700 it answers with
    ``exp(-700)``.
    """
    for r in range(n):
        v = max(x[r], -700.0)
        shifted = v * 1.4426950408889634 + 6755399441055744.0
        scratch[r] = shifted
        k = shifted - 6755399441055744.0
        z = v - k * 0.693147180369123816490  # log 2 in two parts: this product is exact
        z = z - k * 1.90821492927058770002e-10
        p = 1.6059043836821613e-10
        p = p * z + 2.08767569878681e-09
        p = p * z + 2.505210838544172e-08
        p = p * z + 2.755731922398589e-07
        p = p * z + 2.7557319223985893e-06
        p = p * z + 2.48015873015873e-05
        p = p * z + 0.0001984126984126984
        p = p * z + 0.001388888888888889
        p = p * z + 0.008333333333333333
        p = p * z + 0.041666666666666664
        p = p * z + 0.16666666666666666
        p = p * z + 0.5
        p = p * z + 1.0
        x[r] = p * z + 1.0
    bits = x.view(np.int64)
    powers = scratch.view(np.int64)
    for r in range(n):
        bits[r] += powers[r] << 52


@compiled_rows(fastmath={"contract"})
def log_rows(x: np.ndarray, scratch: np.ndarray, n: int) -> None:
    """Replace ``x[:n]``, normal numbers, by its logarithm: NaN where not positive.

    With ``x = 2**k m`` and ``m`` within a factor of ``sqrt(2)`` of one:
    ``log m = 2 atanh((m - 1) / (m + 1))``, by its series.
    """
    bits = x.view(np.int64)
    powers = scratch.view(np.int64)
    for r in range(n):
        b = bits[r]
        k = (b - 0x3FE6A09E667F3BCD) >> 52  # the bits of sqrt(1 / 2)
        bits[r] = b - (k << 52)
        powers[r] = (
            k + 0x4338000000000000 if b > 0 else 0x7FF8000000000000
        )  # 1.5 * 2**52 + k, or NaN
    for r in range(n):
        k_real = scratch[r] - 6755399441055744.0
        s = (x[r] - 1.0) / (x[r] + 1.0)
        z = s * s
        p = 1.0 / 19.0
        p = p * z + 1.0 / 17.0
        p = p * z + 1.0 / 15.0
        p = p * z + 1.0 / 13.0
        p = p * z + 1.0 / 11.0
        p = p * z + 1.0 / 9.0
        p = p * z + 1.0 / 7.0
        p = p * z + 1.0 / 5.0
        p = p * z + 1.0 / 3.0
        x[r] = k_real * 0.6931471805599453 + (2.0 * s + 2.0 * s * z * p)
