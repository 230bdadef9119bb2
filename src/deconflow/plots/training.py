"""What happened in training."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deconflow.plots.look import Look
from deconflow.plots.style import AGAIN, COLOURS, DENSITY, MARKERS, SECOND, panels


def history(model: Any, *, axes: Any = None, **look: Any) -> Any:
    """Draw the objective of each epoch, or the likelihood of each step of EM.

    A :class:`~deconflow.Deconvolver` without flows, and an :class:`~deconflow.XDGMM` that averages
    all that it compared, show what they compared: how far held-out rows put each number of
    components behind the best.

    Parameters
    ----------
    model
        A fitted estimator.
    axes
        Axes to draw on; None for a new figure.
    **look
        Keywords of :class:`Look`: ``size``, ``dpi`` and ``title``.

    Returns
    -------
    Axes
        Larger is better.
    """
    records = _records(model)
    known = [name for name in ("lower_bounds_", "selection_") if hasattr(model, name)]
    if not records and not known:
        raise ValueError(
            "Expected a model that is trained step by step; "
            f"got a {type(model).__name__}, which is not."
        )
    wanted = Look.of(look)
    wanted.refuse("for a picture of kind history", "columns", "range", "bins", "log", "invert")
    ax = panels(axes, 1, 1, wanted, (4.8, 3.4))[0, 0]
    if records:
        for record in records:
            _draw_epochs(ax, record)
        _draw_legend(ax)
    elif "lower_bounds_" in known and not _is_shared_out(model):
        _draw_steps(ax, np.asarray(model.lower_bounds_), len(model.density_.averaged()))
    else:
        _draw_choice(ax, model.selection_)
    return ax


def _is_shared_out(model: Any) -> bool:
    """Whether a mixture has no steps of one fit, but shares of all that were compared."""
    return hasattr(model, "selection_") and len(model.lower_bounds_) == 1


def _records(model: Any) -> list[dict[str, Any]]:
    """Histories of one flow, or of all flows of an ensemble."""
    if hasattr(model, "histories_"):
        return list(model.histories_)
    return [model.history_.as_dict()] if hasattr(model, "history_") else []


def _draw_steps(ax: Any, bounds: NDArray[np.float64], averaged: int) -> None:
    """Draw the steps of a fit: the only one, or that which is kept of those averaged."""
    ax.plot(np.arange(1, len(bounds) + 1), bounds, color=DENSITY, marker=".", ms=3)
    words = f"step of EM (one of the {averaged} fits averaged)" if averaged else "step of EM"
    ax.set(xlabel=words, ylabel="mean log-likelihood of the rows")


def _draw_choice(ax: Any, selection: dict[str, NDArray[Any]]) -> None:
    """Draw how far each number of components is behind the best, a line for each floor."""
    counts, floors = selection["n_components"], selection["floor"]
    known = sorted(set(counts.tolist()))
    tried = sorted(set(floors.tolist()))
    for f, floor in enumerate(tried):
        mine = floors == floor
        aside = 0.08 * (f - 0.5 * (len(tried) - 1))  # so that bars do not hide each other
        places = [known.index(count) + aside for count in counts[mine].tolist()]
        ax.errorbar(
            places, -selection["behind_best"][mine], selection["behind_best_se"][mine],
            fmt=f"{MARKERS[f % len(MARKERS)]}-", capsize=3, color=COLOURS[f % len(COLOURS)],
            label=f"floor {floor:g}",
        )  # fmt: skip
    ax.axhline(0, color="black", lw=0.8, ls=":")
    ax.set_xticks(range(len(known)), [str(count) for count in known])
    ax.set(xlabel="components", ylabel="held-out log p(w) less the best's")
    ax.legend(frameon=False, fontsize="small")


def _draw_epochs(ax: Any, record: dict[str, Any]) -> None:
    epochs = np.arange(1, len(record["train"]) + 1)
    ax.plot(epochs, record["train"], color=DENSITY, label="rows that are fitted")
    if record.get("validation"):
        ax.plot(epochs, record["validation"], color=SECOND, ls=AGAIN, label="rows held out")
    if record.get("best_epoch") is not None:
        style = {"color": "black", "lw": 0.8, "ls": ":"}
        ax.axvline(record["best_epoch"] + 1, label="best epoch", **style)
    ax.set(xlabel="epoch", ylabel="objective per row")


def _draw_legend(ax: Any) -> None:
    """Name each kind of line once."""
    lines, words = ax.get_legend_handles_labels()
    once = dict(zip(words, lines, strict=True))
    ax.legend(list(once.values()), list(once), frameon=False, fontsize="small")
