"""What happened in training."""

from __future__ import annotations

from typing import Any

import numpy as np

from deconflow.plots.style import DENSITY, SECOND, panels


def history(model: Any, *, axes: Any = None) -> Any:
    """Draw the objective of each epoch, or the likelihood of each step of EM.

    Parameters
    ----------
    model
        A fitted estimator.
    axes
        Axes to draw on; None for a new figure.

    Returns
    -------
    Axes
        Larger is better.
    """
    records = _records(model)
    if not records and not hasattr(model, "lower_bounds_"):
        raise ValueError(
            "Expected a model with a history of its training; "
            f"got a {type(model).__name__} without one."
        )
    ax = panels(axes, 1, 1)[0, 0]
    if records:
        for record in records:
            _draw_epochs(ax, record)
        _draw_legend(ax)
    else:
        bounds = np.asarray(model.lower_bounds_)
        ax.plot(np.arange(1, len(bounds) + 1), bounds, color=DENSITY)
        ax.set(xlabel="step of EM", ylabel="mean log-likelihood of the rows")
    return ax


def _records(model: Any) -> list[dict[str, Any]]:
    """Histories of one flow, or of all flows of an ensemble."""
    if hasattr(model, "histories_"):
        return list(model.histories_)
    return [model.history_.as_dict()] if hasattr(model, "history_") else []


def _draw_epochs(ax: Any, record: dict[str, Any]) -> None:
    epochs = np.arange(1, len(record["train"]) + 1)
    ax.plot(epochs, record["train"], color=DENSITY, label="rows that are fitted")
    if record.get("validation"):
        ax.plot(epochs, record["validation"], color=SECOND, label="rows held out")
    if record.get("best_epoch") is not None:
        style = {"color": "black", "lw": 0.8, "ls": ":"}
        ax.axvline(record["best_epoch"] + 1, label="best epoch", **style)
    ax.set(xlabel="epoch", ylabel="objective a row")


def _draw_legend(ax: Any) -> None:
    """Name each kind of line once."""
    lines, words = ax.get_legend_handles_labels()
    once = dict(zip(words, lines, strict=True))
    ax.legend(list(once.values()), list(once), frameon=False, fontsize="small")
