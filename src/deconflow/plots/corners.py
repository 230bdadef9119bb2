"""The corner figure: every pair of dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import corner
import numpy as np
from numpy.typing import ArrayLike, NDArray

from deconflow.checks import as_floats
from deconflow.estimators import Posterior
from deconflow.plots.marginals import band_of_column, band_words, draw_band
from deconflow.plots.style import BINS, COLOURS, DATA, DENSITY, columns, labels, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIGMAS = np.array([0.5, 1.0, 1.5, 2.0])
LEVELS = 1 - np.exp(-0.5 * SIGMAS**2)
"""Mass inside the 0.5, 1, 1.5 and 2 sigma contours of a two-dimensional Gaussian."""


def corner_figure(
    w: ArrayLike,
    samples: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    posterior: Posterior | None = None,
    rows: Sequence[int] = (),
    errors: ArrayLike | None = None,
    model: Any = None,
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
        Posteriors of ``rows``, as any estimator's ``posterior`` returns them.
    rows
        Which rows of ``w`` those are.
    errors
        ``(len(rows), D)`` standard deviations of their noise, drawn as error bars.
    model
        The fitted estimator, for the 90 % bands of its marginals on the diagonal, where it has
        replicates.
    """
    samples = columns(samples, "samples")
    dim = samples.shape[1]
    w = columns(w, "w", dim)
    ends = [span(w[:, d], samples[:, d]) for d in range(dim)]
    figure = corner.corner(
        samples, labels=labels(names, dim), color=DENSITY, levels=LEVELS, range=ends, bins=BINS,
        plot_datapoints=False, plot_density=False, no_fill_contours=True, smooth=1.0,
        hist_kwargs={"density": True, "color": DENSITY, "lw": 1.8},
    )  # fmt: skip
    axes = np.array(figure.axes).reshape(dim, dim)
    bands = _draw_bands(axes, model, ends)
    _draw_measured(axes, w, ends)
    if posterior is not None:
        bars = np.zeros((len(rows), dim)) if errors is None else as_floats(errors, "errors")
        if dim == 1:
            _draw_only_dimension(axes[0, 0], w[rows], bars, posterior)
        else:
            _draw_rows(axes, w[rows], bars, posterior)
    if dim == 1:
        _make_room(figure)
    shown = f"{len(rows)} of the rows{'' if errors is None else ', with their errors'}"
    _draw_legend(figure, "" if posterior is None else shown, bands=bands, small=dim < 3)
    return figure


def _draw_bands(axes: NDArray, model: Any, ends: Sequence[tuple[float, float]]) -> bool:
    """Shade the bands of the marginals; say whether there are any."""
    if model is None or model.density_.replicates is None:
        return False
    for d, limits in enumerate(ends):
        panel = axes[d, d]
        band = band_of_column(model.density_, d, limits)
        assert band is not None
        draw_band(panel, band)
        panel.set_ylim(0, max(panel.get_ylim()[1], 1.1 * band.upper.max()))
    return True


def _draw_measured(axes: NDArray, w: NDArray, ends: Sequence[tuple[float, float]]) -> None:
    """Draw every pair that was measured, also of rows that lack other values."""
    for y, limits in enumerate(ends):
        panel = axes[y, y]
        tallest = panel.get_ylim()[1]
        style = {"density": True, "color": DATA, "alpha": 0.45, "zorder": 0}
        heights = panel.hist(w[:, y], bins=BINS, range=limits, **style)[0]
        panel.set_ylim(0, max(tallest, 1.1 * np.nanmax(heights)))
        for x in range(y):
            style = {"color": DATA, "ms": 2.5, "alpha": 0.5, "zorder": 0, "rasterized": True}
            axes[y, x].plot(w[:, x], w[:, y], ".", **style)


def _make_room(figure: Figure) -> None:
    """Give the only panel there is a legend beside it and its name below."""
    figure.set_size_inches(7.0, 3.6)
    figure.subplots_adjust(left=0.05, right=0.58, bottom=0.2, top=0.95)
    figure.axes[0].tick_params(axis="x", rotation=0)
    figure.axes[0].xaxis.set_label_coords(0.5, -0.12)


def _draw_rows(axes: NDArray, w: NDArray, errors: NDArray, posterior: Posterior) -> None:
    for row, drawn in enumerate(posterior.samples):
        colour = COLOURS[row % len(COLOURS)]
        for y in range(len(axes)):
            for x in range(y):
                pair = [x, y]
                _draw_row(axes[y, x], w[row, pair], errors[row, pair], drawn[:, pair], colour)


def _draw_only_dimension(axes: Axes, w: NDArray, errors: NDArray, posterior: Posterior) -> None:
    """Draw rows on the one panel there is, at heights of their own."""
    top = axes.get_ylim()[1]
    for row, drawn in enumerate(posterior.samples):
        colour = COLOURS[row % len(COLOURS)]
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


def _draw_legend(figure: Figure, rows: str, *, bands: bool, small: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    words = "deconvolved density (0.5, 1, 1.5, 2 sigma)"
    if small:
        words = words.replace(" (", "\n(")
    entries: list[Any] = [
        Line2D([], [], color=DATA, marker=".", ls="", label="measured"),
        Line2D([], [], color=DENSITY, label=words),
    ]
    if bands:
        entries.append(Patch(color=DENSITY, alpha=0.25, lw=0, label=band_words()))
    if rows:
        entries += [
            Line2D([], [], color=COLOURS[0], marker="X", ls="", label=rows),
            Line2D([], [], color=COLOURS[0], marker=".", ls="", label="draws of their posteriors"),
        ]
    size = "small" if small else "large"
    figure.legend(handles=entries, loc="upper right", frameon=False, fontsize=size)
