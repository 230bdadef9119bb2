"""The corner figure: every pair of dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import corner
import numpy as np
from numpy.typing import ArrayLike, NDArray

from deconflow.estimators.results import PosteriorSamples
from deconflow.plots.style import DATA, DENSITY, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIGMAS = np.array([0.5, 1.0, 1.5, 2.0])
LEVELS = 1 - np.exp(-0.5 * SIGMAS**2)
"""Mass inside the 0.5, 1, 1.5 and 2 sigma contours of a two-dimensional Gaussian."""

ROWS = ("#d1495b", "#edae49", "#2a9d8f", "#7b2d8b", "#6a994e", "#3a86ff")


def corner_figure(
    w: ArrayLike,
    samples: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    posterior: PosteriorSamples | None = None,
    rows: Sequence[int] = (),
    errors: ArrayLike | None = None,
) -> Figure:
    """Draw noisy data, the deconvolved density, and some rows with their posteriors.

    Parameters
    ----------
    w
        ``(N, D)`` measurements, NaN where missing.
    samples
        ``(S, D)`` draws of the deconvolved density.
    names
        Labels of the dimensions.
    posterior
        Posteriors of ``rows``, as :meth:`FlowDeconvolver.posterior` returns them.
    rows
        Which rows of ``w`` those are.
    errors
        ``(len(rows), D)`` standard deviations of their noise, drawn as error bars.
    """
    w, samples = np.asarray(w, dtype=float), np.asarray(samples, dtype=float)
    dim = samples.shape[1]
    ends = [span(w[:, d], samples[:, d]) for d in range(dim)]
    style = {"range": ends, "bins": 40, "plot_density": False}
    figure = corner.corner(
        w[np.isfinite(w).all(1)], labels=names, color=DATA, plot_contours=False,
        data_kwargs={"alpha": 0.5, "ms": 2.5}, hist_kwargs={"density": True, "color": DATA},
        **style,
    )  # fmt: skip
    corner.corner(
        samples, fig=figure, color=DENSITY, levels=LEVELS, plot_datapoints=False, smooth=1.0,
        hist_kwargs={"density": True, "color": DENSITY, "lw": 1.8}, **style,
    )  # fmt: skip
    axes = np.array(figure.axes).reshape(dim, dim)
    _fit_heights(axes, w, samples, ends)
    if posterior is not None:
        bars = np.zeros((len(rows), dim)) if errors is None else np.asarray(errors, dtype=float)
        if dim == 1:
            _draw_only_dimension(axes[0, 0], w[rows], bars, posterior)
        else:
            _draw_rows(axes, w[rows], bars, posterior)
    if dim == 1:  # room for the legend
        figure.set_size_inches(7.0, 4.0)
        figure.subplots_adjust(left=0.06, right=0.6, bottom=0.2, top=0.95)
    _draw_legend(figure, len(rows) if posterior is not None else 0, small=dim < 3)
    return figure


def _fit_heights(
    axes: NDArray, w: NDArray, samples: NDArray, ends: Sequence[tuple[float, float]]
) -> None:
    """Give each marginal the height of the taller of its two histograms."""
    for d, limits in enumerate(ends):
        tallest = max(
            np.histogram(x[np.isfinite(x)], bins=40, range=limits, density=True)[0].max()
            for x in (w[:, d], samples[:, d])
        )
        axes[d, d].set_ylim(0, 1.1 * tallest)


def _draw_rows(axes: NDArray, w: NDArray, errors: NDArray, posterior: PosteriorSamples) -> None:
    for row, drawn in enumerate(posterior.samples):
        colour = ROWS[row % len(ROWS)]
        for y in range(len(axes)):
            for x in range(y):
                pair = [x, y]
                _draw_row(axes[y, x], w[row, pair], errors[row, pair], drawn[:, pair], colour)


def _draw_only_dimension(
    axes: Axes, w: NDArray, errors: NDArray, posterior: PosteriorSamples
) -> None:
    """Draw rows on the one panel there is, at heights of their own."""
    top = axes.get_ylim()[1]
    for row, drawn in enumerate(posterior.samples):
        colour = ROWS[row % len(ROWS)]
        height = np.full(len(drawn), top * (0.9 - 0.8 * row / max(1, len(w))))
        _draw_row(
            axes, np.array([w[row, 0], height[0]]), np.array([errors[row, 0], 0.0]),
            np.column_stack([drawn[:, 0], height]), colour,
        )  # fmt: skip


def _draw_row(axes: Axes, measured: NDArray, errors: NDArray, drawn: NDArray, colour: str) -> None:
    axes.plot(*drawn.T, ".", color=colour, ms=1.5, alpha=0.35, zorder=3)
    axes.errorbar(
        measured[0], measured[1], xerr=errors[0], yerr=errors[1], fmt="X", color=colour,
        mec="white", mew=0.8, ms=8, elinewidth=1.2, zorder=5,
    )  # fmt: skip


def _draw_legend(figure: Figure, n_rows: int, *, small: bool) -> None:
    from matplotlib.lines import Line2D

    words = "deconvolved density (0.5, 1, 1.5, 2 sigma)"
    if small:
        words = words.replace(" (", "\n(")
    entries = [
        Line2D([], [], color=DATA, marker=".", ls="-", label="measured"),
        Line2D([], [], color=DENSITY, label=words),
    ]
    if n_rows:
        entries += [
            Line2D(
                [],
                [],
                color=ROWS[0],
                marker="X",
                ls="",
                label=f"{n_rows} of the rows, with their errors",
            ),
            Line2D([], [], color=ROWS[0], marker=".", ls="", label="draws of their posteriors"),
        ]
    size = "small" if small else "large"
    figure.legend(handles=entries, loc="upper right", frameon=False, fontsize=size)
