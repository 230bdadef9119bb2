"""Pictures of a fitted model, by the package that draws them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from deconflow.checks import check_choice
from deconflow.extras import need_plots

PLOTS = "deconflow.plots"
"""Imported by name when a picture is drawn: it is a higher layer, and needs an extra of its own."""
KINDS = ("corner", "marginals", "row", "before_after", "diagnostics")


class Pictured:
    """Pictures of every estimator."""

    def plot(
        self, kind: str = "marginals", w: ArrayLike | None = None, noise: Any = None, **options: Any
    ) -> Any:
        """Draw a picture with matplotlib: :doc:`/pictures` shows each kind.

        Parameters
        ----------
        kind
            ``"marginals"``: the density of each column, with its band. ``"corner"``: every pair of
            columns with the measurements ``w``. ``"row"``: the posterior of each of the ``rows``.
            ``"before_after"``: measurements, the density, and that density with noise again.
            ``"diagnostics"``: simulated measurements compared with the real ones.
        w, noise
            As for :meth:`fit`; a model does not keep its rows. Marginals need neither, a corner
            only ``w``, unless it shows posteriors of ``rows``.
        **options
            Keywords of the function of this name in :mod:`deconflow.plots`, such as ``rows``,
            ``columns``, ``ax`` and ``figsize``.

        Returns
        -------
        array of Axes
            The panels.

        Examples
        --------
        >>> import numpy as np
        >>> from deconflow import XDGMM
        >>> w = np.random.default_rng(0).normal(size=(500, 2))
        >>> axes = XDGMM(1).fit(w, noise=0.5).plot("marginals", w, figsize=(6, 3))
        >>> axes.shape
        (2,)
        """
        check_is_fitted(self)
        need_plots()
        check_choice("kind", kind, KINDS)
        return getattr(import_module(PLOTS), kind)(self, w, noise, **options)
