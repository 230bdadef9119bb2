"""How the kernel is compiled: once per machine if a cache can be written, else per process."""

from collections.abc import Callable
from typing import Any

from numba import njit

#: Rows that the kernel takes at a time.
WIDTH = 256

#: Fast-math flags of linear algebra: sums may be reordered, NaN and infinity keep their sense.
LOOSE = {"contract", "reassoc", "nsz", "arcp"}


def compiled_rows(*signature: Any, fastmath: set[str] = LOOSE) -> Callable[[Callable], Any]:
    """Compile a function that loops over rows, without the GIL.

    ``error_model="numpy"`` matters: else a test for division by zero stops the vectoriser.
    """
    make: Any = njit
    options = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}

    def decorate(function: Callable) -> Any:
        try:
            return make(*signature, cache=True, **options)(function)
        except RuntimeError:  # numba found no folder to write to
            return make(*signature, **options)(function)

    return decorate
