"""Colours, markers and panels that the pictures share."""

from typing import Any

import numpy as np

from deconflow._types import AnyArray

#: Colours of measurements, of the density of the truth, and of simulated measurements.
#:
#: They differ in lightness, too, for greyscale and for colour-blind readers.
DATA, DENSITY, SECOND = "#999999", "#004488", "#d55e00"
#: Opacity of histograms of measurements and of bands of densities.
OF_BARS, OF_BANDS = 0.4, 0.38
#: Colours of single rows, after Okabe and Ito (2008): neighbours differ in lightness, too.
COLOURS = (SECOND, "#56b4e9", "#00714f", "#e69f00", "#6b3000", "#cc79a7")
#: Markers of single rows: one more than colours, so that pairs of both repeat late.
MARKERS = ("X", "o", "s", "^", "D", "P", "v")
#: Dashes of curves that are compared with others.
AGAIN = (0, (4, 1.5))
MOST_IN_A_ROW = 3
#: With more points than this, a vector picture stores them as an image, to open quickly.
MOST_AS_VECTORS = 5000


def panels(
    ax: Any,
    n_rows: int,
    n_columns: int,
    each: tuple[float, float],
    figure: dict[str, Any],
    **share: Any,
) -> AnyArray:
    """Return ``(n_rows, n_columns)`` axes: those given, or those of a new figure.

    Each panel of a new figure measures ``each`` inches, unless ``figure`` has a ``figsize``.
    """
    if ax is None:
        import matplotlib.pyplot as plt

        size = (each[0] * n_columns, each[1] * n_rows)
        options = {"figsize": size, "layout": "constrained", "squeeze": False, **share, **figure}
        return plt.subplots(n_rows, n_columns, **options)[1]
    if figure:
        raise TypeError(f"Expected no {', '.join(figure)} with ax=, which has a figure.")
    given = np.asarray(ax, dtype=object)
    if given.size != n_rows * n_columns:
        raise ValueError(f"Expected {n_rows * n_columns} axes as ax; got {given.size}.")
    return given.reshape(n_rows, n_columns)


def wrapped(ax: Any, count: int, figure: dict[str, Any]) -> AnyArray:
    """Return ``(count,)`` axes: those given, or those of a new figure, a few in a row."""
    each = (4.8, 3.4) if count == 1 else (3.6, 2.9)
    if ax is not None:
        return panels(ax, 1, count, each, figure)[0]
    n_columns = min(count, MOST_IN_A_ROW)
    grid = panels(None, -(-count // n_columns), n_columns, each, figure).ravel()
    for idle in grid[count:]:
        idle.set_axis_off()
    return grid[:count]


def room_for_legend(ax: Any) -> None:
    """Put a legend above the curves of a panel."""
    lines = -(-len(ax.get_legend_handles_labels()[1]) // 2)
    ax.set_ylim(0, (1.1 + 0.13 * lines) * ax.get_ylim()[1])
    ax.legend(
        frameon=False, fontsize="small", loc="upper center", ncols=2, columnspacing=1.2,
        handlelength=1.6, borderaxespad=0.2,
    )  # fmt: skip
