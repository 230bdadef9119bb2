"""Answers in the words of other tools: pandas, polars, xarray, ArviZ, astropy, uncertainties."""

from __future__ import annotations

import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from deconflow._types import Array
from deconflow.checks import as_floats
from deconflow.estimators.origin import Origin, polars_table
from deconflow.extras import need
from deconflow.randomness import RandomState

DIMENSIONS = ("chain", "draw", "row")


class ToOtherTools(ABC):
    """What every posterior can become.

    Attributes
    ----------
    names : list of str
        Names of the dimensions.
    """

    names: list[str]
    _origin = Origin()
    _exact = False

    @property
    @abstractmethod
    def mean(self) -> Array:
        """Posterior means ``(N, D)``."""

    @property
    @abstractmethod
    def sd(self) -> Array:
        """Posterior standard deviations ``(N, D)``."""

    @property
    @abstractmethod
    def covariance(self) -> Array:
        """Posterior covariances ``(N, D, D)``."""

    @property
    @abstractmethod
    def effective_sample_size(self) -> Array:
        """How many exact draws each row's answer is worth, ``(N,)``."""

    @property
    @abstractmethod
    def samples(self) -> Array:
        """Draws ``(N, S, D)``, the same at every call."""

    @abstractmethod
    def sample(self, n_samples: int, random_state: RandomState = None) -> Array:
        """Draw ``(N, n_samples, D)``."""

    @abstractmethod
    def quantile(self, q: float | Sequence[float] | Array) -> Array:
        """Quantiles of each value: ``(N, D)`` for one share ``q``, ``(Q, N, D)`` for several."""

    def to_frame(self, q: float | Sequence[float] = ()) -> Any:
        """Return a table of the library that the rows came from.

        A data frame of pandas, with their index; of polars; a table of astropy, with their units;
        of pandas where the rows were an array.

        Parameters
        ----------
        q
            Shares of quantiles, as ``[0.05, 0.95]``.

        Returns
        -------
        table
            ``x_mean``, ``x_sd`` and quantiles as ``x_q5`` of each column ``x``; the effective
            sample size, where the answer is made of draws.
        """
        columns, units = self._table_columns(q)
        return self._origin.table(columns, units)

    def to_pandas(self, q: float | Sequence[float] = ()) -> Any:
        """Return a data frame of pandas, as :meth:`to_frame`, wherever the rows came from."""
        return self._origin.pandas_table(self._table_columns(q)[0])

    def to_polars(self, q: float | Sequence[float] = ()) -> Any:
        """Return a data frame of polars, as :meth:`to_frame`, wherever the rows came from."""
        return polars_table(self._table_columns(q)[0])

    def to_xarray(self, n_samples: int | None = None, random_state: RandomState = 0) -> Any:
        """Return draws as a dataset of xarray: a variable for each column, over its rows.

        Every draw counts the same: posteriors in closed form are drawn from, and those made of
        weighted draws were drawn again by weight, so that some draws may be there twice.

        Parameters
        ----------
        n_samples
            How many draws of each row; None for those in ``samples``. Where the answer is made of
            draws, more than these repeat them: ask :meth:`DensityEstimator.posterior` for more.
        random_state
            Seed of the draws.

        Returns
        -------
        xarray.Dataset
            With dimensions ``chain`` (of one), ``draw`` and ``row``. Rows are named by the index
            of a pandas data frame, if they came in one, and numbered otherwise. Units are in the
            attribute ``units`` of a variable.
        """
        xarray = need("xarray", "its datasets were asked for")
        for name in self.names:
            if name in DIMENSIONS:
                raise ValueError(
                    f"Expected columns with other names than those of dimensions, "
                    f"{', '.join(DIMENSIONS)}; got {name!r}. Rename it before the fit."
                )
        drawn = self._drawn(n_samples, random_state).transpose(2, 1, 0)[:, None]
        units = self._units_by_name
        data = {
            name: (DIMENSIONS, values, {"units": units[name]} if units[name] else {})
            for name, values in zip(self.names, drawn, strict=True)
        }
        numbers = {"chain": [0], "draw": np.arange(drawn.shape[2])}
        return xarray.Dataset(data, numbers).assign_coords(
            _row_labels(self._origin, drawn.shape[3])
        )

    def to_arviz(self, n_samples: int | None = None, random_state: RandomState = 0) -> Any:
        """Return draws for ArviZ, in a group called ``posterior``.

        For ArviZ before 1.0, if it is installed, an ``InferenceData``; otherwise a ``DataTree``,
        as ArviZ 1.0 and its part arviz-base have it. All else is as in :meth:`to_xarray`. The draws
        are independent, not those of a Markov chain: checks of convergence have nothing to find.

        Parameters
        ----------
        n_samples, random_state
            As for :meth:`to_xarray`.
        """
        dataset = self.to_xarray(n_samples, random_state)
        if _generation() == 0:
            return need("arviz").InferenceData(posterior=dataset)
        base = need("arviz_base", "ArviZ's objects were asked for")
        return base.convert_to_datatree(dataset)

    def to_astropy(self, n_samples: int | None = None, random_state: RandomState = 0) -> Any:
        """Return a :class:`astropy.uncertainty.Distribution` of each column, by its name.

        Each has the shape ``(N,)``, and the unit of its column if the model was fitted to columns
        with units. The draws of a row belong together, so that sums and products over columns are
        right. All else is as in :meth:`to_xarray`.

        Parameters
        ----------
        n_samples, random_state
            As for :meth:`to_xarray`.

        Returns
        -------
        dict of str to astropy.uncertainty.Distribution
        """
        make = need("astropy.uncertainty", "its distributions were asked for").Distribution
        to_quantity = need("astropy.units").Quantity
        drawn, units = self._drawn(n_samples, random_state), self._units_by_name
        return {
            name: make(to_quantity(values, units[name]) if units[name] else values)
            for name, values in zip(self.names, np.moveaxis(drawn, 2, 0), strict=True)
        }

    def to_uncertainties(self) -> Any:
        """Return an array ``(N, D)`` of numbers with errors, as those of ``uncertainties.unumpy``.

        Means with standard deviations, correlated between the columns of a row as the posterior
        is; of its shape nothing else is left. Errors of rows are independent.
        """
        package = need("uncertainties", "its numbers were asked for")
        cells = np.empty(self.mean.shape, dtype=object)
        for row, (mean, covariance) in enumerate(zip(self.mean, self.covariance, strict=True)):
            cells[row] = package.correlated_values(mean, covariance)
        return cells

    @property
    def _units_by_name(self) -> dict[str, str | None]:
        return dict(zip(self.names, self._origin.units or [None] * len(self.names), strict=True))

    def _drawn(self, n_samples: int | None, random_state: RandomState) -> Array:
        return self.samples if n_samples is None else self.sample(n_samples, random_state)

    def _table_columns(self, q: float | Sequence[float]) -> tuple[dict[str, Array], dict[str, Any]]:
        """Columns of a table of the answer, and their units."""
        parts = {"mean": self.mean, "sd": self.sd}
        shares = np.atleast_1d(as_floats(q, "q"))
        if shares.size:
            endings = [f"q{100 * share:g}".replace(".", "_") for share in shares]
            if len(set(endings)) < len(endings):
                raise ValueError(f"Expected shares in q that differ to six digits; got {q!r}.")
            parts |= zip(endings, self.quantile(shares), strict=True)
        columns, units = {}, {}
        for ending, values in parts.items():
            for d, name in enumerate(self.names):
                columns[f"{name}_{ending}"] = values[:, d]
                units[f"{name}_{ending}"] = self._units_by_name[name]
        if not self._exact:
            columns["effective_sample_size"] = self.effective_sample_size
        return columns, units


def _generation() -> int:
    """Return the first number of the version of ArviZ; of arviz-base alone that of the next."""
    try:
        return int(importlib.metadata.version("arviz").split(".")[0])
    except importlib.metadata.PackageNotFoundError:
        return 1


def _row_labels(origin: Origin, count: int) -> Any:
    """Coordinates of rows: the index of a data frame, or numbers."""
    if origin.index is None:
        return {"row": np.arange(count)}
    if origin.index.nlevels == 1:
        return {"row": origin.index.to_numpy()}
    return need("xarray").Coordinates.from_pandas_multiindex(origin.index, "row")
