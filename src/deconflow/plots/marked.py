"""Rows that a picture shows one by one, each in a colour and with a mark of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deconflow._types import Array
from deconflow.checks import as_floats
from deconflow.estimators import Posterior
from deconflow.plots.style import COLOURS, MARKERS


@dataclass(frozen=True)
class MarkedRow:
    """A row to show: its name, what was measured ``(D,)``, with which error, and its posterior."""

    name: str
    w: Array
    errors: Array
    posterior: Posterior
    colour: str
    marker: str


def marked_rows(
    names: Sequence[Any], w: Array, errors: Any, posterior: Posterior
) -> list[MarkedRow]:
    """Give rows their colours and marks; without errors they have no error bars."""
    bars = np.zeros(w.shape) if errors is None else as_floats(errors, "errors")
    for what, found in (("errors", bars.shape), ("posterior", (len(posterior), w.shape[1]))):
        if found != w.shape:
            raise ValueError(f"Expected {what} of rows as many as rows, {w.shape}; got {found}.")
    bars = np.where(np.isfinite(bars), bars, 0.0)  # laws without a variance have no error bars
    return [
        MarkedRow(
            f"row {name}", w[i], bars[i], posterior[i],
            COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)],
        )
        for i, name in enumerate(names)
    ]  # fmt: skip


def draw_value(ax: Any, row: MarkedRow, x: int, y: int | None = None, **style: Any) -> None:
    """Draw what was measured with its error bar: one column, low in the panel, or two."""
    across: dict[str, Any] = {}
    if y is None:
        across = {"transform": ax.get_xaxis_transform()}  # heights in shares of the panel
    height, bar = (0.06, 0.0) if y is None else (row.w[y], row.errors[y])
    ax.errorbar(
        row.w[x], height, xerr=row.errors[x], yerr=bar or None, fmt=row.marker, color=row.colour,
        mec="white", mew=0.6, ms=8, elinewidth=1.4, capsize=2.5, zorder=5, **across, **style,
    )  # fmt: skip
