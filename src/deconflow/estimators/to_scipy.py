"""One column of the truth as a distribution of scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import rv_continuous

from deconflow._types import Array
from deconflow.estimators.one_column import ColumnWithAtoms, OneColumn


def frozen(column: OneColumn, name: str) -> Any:
    """Return a frozen distribution of scipy; atoms, which it could not tell of, are refused."""
    if isinstance(column, ColumnWithAtoms):
        places = ", ".join(f"{atom:g}" for atom in column.atoms)
        raise ValueError(
            f"Expected a truth without atoms for scipy, whose distributions have a density; got "
            f"{name} with atoms at {places}. Use cdf, quantile and sample; or "
            "density_.inner.marginal(...).to_scipy() for what is at no atom."
        )
    return _ColumnDistribution(column, name=name)()


class _ColumnDistribution(rv_continuous):
    """What scipy asks of a distribution, answered by a column."""

    def __init__(self, column: OneColumn, **options: Any) -> None:
        self._column = column
        options["a"], options["b"] = column.ends
        super().__init__(**options)

    def _updated_ctor_param(self) -> dict[str, Any]:
        """Say what scipy needs to make this again, as it does to freeze it."""
        return {**super()._updated_ctor_param(), "column": self._column}

    def _pdf(self, x: Array) -> Array:
        return self._column.pdf(np.asarray(x, dtype=np.float64))

    def _cdf(self, x: Array) -> Array:
        return self._column.cdf(np.asarray(x, dtype=np.float64))

    def _ppf(self, q: Array) -> Array:
        return self._column.quantile(np.asarray(q, dtype=np.float64))

    def _stats(self) -> tuple[float, float, None, None]:
        return self._column.mean, self._column.sd**2, None, None

    def _rvs(self, size: Any = None, random_state: Any = None) -> Array:
        shape = () if size is None else tuple(np.atleast_1d(size))
        seed = int(random_state.uniform(0, 2**31))  # scipy's may be of either kind of generator
        return self._column.sample(int(np.prod(shape)), seed).reshape(shape)
