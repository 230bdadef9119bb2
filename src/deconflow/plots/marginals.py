"""One dimension at a time, with what the members of an ensemble disagree about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter1d
from scipy.stats import norm

from deconflow.densities import Ensemble, Restored
from deconflow.plots.style import BINS, DATA, DENSITY, labels, panels, span
from deconflow.randomness import isolated_rng

Array = NDArray[np.float64]
DRAWS, POINTS = 20_000, 400


def marginals(
    model: Any,
    w: ArrayLike | None = None,
    *,
    names: Sequence[str] | None = None,
    axes: Any = None,
    random_state: int = 0,
) -> NDArray[Any]:
    """Draw the density of each dimension, with a band over the members of an ensemble.

    Parameters
    ----------
    model
        A fitted estimator.
    w
        ``(N, D)`` measurements to show beside it, NaN where missing.
    names
        Labels of the dimensions.
    axes
        ``D`` axes to draw on; None for a new figure.
    random_state
        Seed of the draws, for models that are not mixtures.

    Returns
    -------
    array of Axes
        ``(D,)``. The band is the range of the members' densities.
    """
    draws = model.sample(DRAWS, random_state=random_state)
    dim = draws.shape[1]
    words = labels(names, dim)
    noisy = None if w is None else np.asarray(w, dtype=float)
    row = panels(axes, 1, dim)[0]
    for d, ax in enumerate(row):
        ends = span(draws[:, d]) if noisy is None else span(draws[:, d], noisy[:, d])
        x = np.linspace(*ends, POINTS)
        if noisy is not None:
            ax.hist(
                noisy[:, d], bins=BINS, range=ends, density=True, color=DATA, alpha=0.45,
                label="measured",
            )  # fmt: skip
        ax.plot(x, _density(model, draws, d, x), color=DENSITY, lw=1.8, label="deconvolved")
        _draw_band(ax, model, d, x, random_state)
        ax.set(xlabel=words[d], xlim=ends, ylim=(0, None), yticks=[])
    row[0].set_ylabel("density")
    row[-1].legend(frameon=False, fontsize="small")
    return row


def members(model: Any) -> list[Any]:
    """Return the members of an ensemble, as densities; an empty list for a model that is none.

    An averaged :class:`~deconflow.XDGMM` is taken apart into its mixtures.
    """
    density = getattr(model, "density_", None)
    if isinstance(density, Restored) and isinstance(density.density, Ensemble):
        return [Restored(part, density.standardiser) for part in density.density.members]  # type: ignore[arg-type]
    if not hasattr(model, "mixture_") or getattr(model, "n_average", 1) == 1:
        return []
    mixture, count = model.mixture_, _components_each(model)
    starts = range(0, len(mixture.weights), count)
    return [_part(mixture, slice(start, start + count)) for start in starts]


def _components_each(model: Any) -> int:
    selection = getattr(model, "selection_", None)
    if selection is None:
        return int(np.ravel(model.n_components)[0])
    return int(selection["n_components"][selection["chosen"]][0])


def _part(mixture: Any, rows: slice) -> Any:
    weights = mixture.weights[rows]
    return type(mixture)(weights / weights.sum(), mixture.means[rows], mixture.covariances[rows])


def _draw_band(ax: Any, model: Any, d: int, x: Array, random_state: int) -> None:
    parts = members(model)
    if len(parts) < 2:
        return
    curves = [_density(part, _draws(part, random_state), d, x) for part in parts]
    low, high = np.min(curves, axis=0), np.max(curves, axis=0)
    ax.fill_between(x, low, high, color=DENSITY, alpha=0.25, lw=0, label=f"{len(parts)} members")


def _draws(member: Any, random_state: int) -> Array | None:
    """Draw from a member that is not a mixture."""
    if hasattr(member, "covariances"):
        return None
    with torch.no_grad(), isolated_rng(random_state):
        return member.sample(DRAWS // 2).double().cpu().numpy()


def _density(model: Any, draws: Array | None, d: int, x: Array) -> Array:
    """Density of one dimension: in closed form for mixtures, else a smoothed histogram."""
    mixture = getattr(model, "mixture_", model)
    if hasattr(mixture, "covariances"):
        sd = np.sqrt(mixture.covariances[:, d, d])
        return norm.pdf(x[:, None], mixture.means[:, d], sd) @ mixture.weights
    assert draws is not None
    step = x[1] - x[0]
    edges = np.append(x - step / 2, x[-1] + step / 2)
    counts = np.histogram(draws[:, d], edges)[0] / (len(draws) * step)
    return gaussian_filter1d(counts.astype(float), POINTS / 150)
