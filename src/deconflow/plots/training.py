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
    if not hasattr(model, "history_") and not hasattr(model, "lower_bounds_"):
        raise ValueError(
            f"Expected a model with a history of its training; got a {type(model).__name__}."
        )
    ax = panels(axes, 1, 1)[0, 0]
    if hasattr(model, "history_"):
        _draw_epochs(ax, model.history_)
    else:
        bounds = np.asarray(model.lower_bounds_)
        ax.plot(np.arange(1, len(bounds) + 1), bounds, color=DENSITY)
        ax.set(xlabel="step of EM", ylabel="mean log-likelihood of the rows")
    return ax


def _draw_epochs(ax: Any, record: Any) -> None:
    epochs = np.arange(1, len(record.train) + 1)
    ax.plot(epochs, record.train, color=DENSITY, label="rows that are fitted")
    if record.validation:
        ax.plot(epochs, record.validation, color=SECOND, label="rows held out")
    if record.best_epoch is not None:
        ax.axvline(record.best_epoch + 1, color="black", lw=0.8, ls=":", label="best epoch")
    ax.set(xlabel="epoch", ylabel="objective a row")
    ax.legend(frameon=False, fontsize="small")
