"""Pictures of a fitted model, by the package that draws them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from deconflow.extras import need_plots

PLOTS = "deconflow.plots"
"""Asked for by name when a picture is wanted: it lies above, and needs an extra of its own."""


class Pictured:
    """What every estimator draws of itself."""

    def plot(
        self,
        kind: str = "marginals",
        w: ArrayLike | None = None,
        noise: Any = None,
        *,
        rows: Sequence[int] = (),
        given: Any = None,
        limits: Any = None,
        axes: Any = None,
        random_state: int = 0,
        **look: Any,
    ) -> Any:
        """Draw a picture with matplotlib: :doc:`/pictures` shows each kind.

        Parameters
        ----------
        kind
            ``"marginals"``: the density of each column, with its band. ``"corner"``: every pair of
            columns beside the measurements ``w``. ``"row"``: the posterior of each of the ``rows``.
            ``"before_after"``: what was measured, the truth, and that truth with noise again.
            ``"diagnostics"``: simulated measurements against the real ones. ``"history"``: how the
            fit went.
        w, noise, given, limits
            As for :meth:`fit`; a model does not keep its rows. Marginals need none of them,
            a corner only ``w``, unless posteriors of some ``rows`` are to be in it.
        rows
            Numbers of the rows of ``w`` whose posteriors to show.
        axes
            Axes of matplotlib, as many as there are panels; None for a new figure.
        random_state
            Seed of what is drawn by chance.
        **look
            ``columns``, ``range``, ``bins``, ``log``, ``invert``, ``size``, ``dpi`` and ``title``,
            as :class:`deconflow.plots.Look` has them; ``names`` for other labels.

        Returns
        -------
        Axes, or array of Axes
            The panels.

        Examples
        --------
        >>> import numpy as np
        >>> from deconflow import XDGMM
        >>> w = np.random.default_rng(0).normal(size=(500, 2))
        >>> axes = XDGMM(1).fit(w, noise=0.5).plot("marginals", w, range={"v0": (-3, 3)})
        >>> axes.shape, [float(end) for end in axes[0].get_xlim()]
        ((2,), [-3.0, 3.0])
        """
        check_is_fitted(self)
        need_plots()
        return import_module(PLOTS).picture(
            self, kind, w, noise, rows=rows, given=given, limits=limits, axes=axes,
            random_state=random_state, **look,
        )  # fmt: skip
