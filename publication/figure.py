"""The figure of the paper, and the numbers that its caption quotes.

``python publication/figure.py`` writes ``figure.png`` and ``figure.json`` beside itself, from data
that ships with scikit-learn and with fixed seeds, in about five minutes.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from deconflow import Deconvolver, UntrustedFitWarning, __version__
from deconflow.demo import cell_nuclei

HERE = Path(__file__).parent
COLUMN, LABEL = "symmetry", "log symmetry"
SHOWN_ROWS = 10
FACTORS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4)
SIMULATED_ROWS, SIMULATED_TABLES = 2_000, 5
MEASURED, TRUTH, THRESHOLD = "#9a9a9a", "#1f4e79", "#d1495b"

Array = NDArray[np.float64]


def main() -> None:
    """Draw the figure and write its numbers."""
    matplotlib.use("Agg")
    x, errors = measurements()
    w, sd = np.log(x), errors / x
    model, plain = fitted(w, sd), fitted(x, errors)
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.3), layout="constrained")
    draw_density(axes[0], model, w)
    draw_rows(axes[1], model, w, sd)
    p_values = certificates(model, sd)
    draw_certificates(axes[2], p_values)
    for ax, letter in zip(axes, "abc", strict=True):
        ax.set_title(f"({letter})", loc="left", fontsize=10)
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / "figure.png", dpi=200, metadata={"Software": None})
    record = numbers(model, w, sd) | {
        "cautions": cautions(model),
        "cautions_without_logarithm": cautions(plain),
        "median_p": dict(zip(map(str, FACTORS), np.median(p_values, 0).tolist(), strict=True)),
        "below_a_thousandth": dict(
            zip(map(str, FACTORS), (p_values < 0.001).sum(0).tolist(), strict=True)
        ),
        "tables": SIMULATED_TABLES,
    }
    (HERE / "figure.json").write_text(json.dumps(record, indent=1) + "\n")


def measurements() -> tuple[Array, Array]:
    """Return one column of the demo's table, and its standard errors."""
    data = cell_nuclei()
    column = data.names.index(COLUMN)
    return data.w[:, [column]], data.sd[:, [column]]


def fitted(w: Array, sd: Array, *, quick: bool = False) -> Deconvolver:
    """Fit an average; what its certificate objects to is what the figure is about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrustedFitWarning)
        return Deconvolver(quick=quick, random_state=0).name_columns([COLUMN]).fit(w, noise=sd)


def cautions(model: Deconvolver) -> list[str]:
    """Return the checks that object, the likeliest cause first."""
    return [each.check for each in model.certificate_.cautions]


def draw_density(ax: Axes, model: Deconvolver, w: Array) -> None:
    """Draw what was measured, and the density of the truth with its band."""
    grid = np.linspace(-2.25, -1.2, 300)
    band = model.band(grid, column=COLUMN)
    ax.hist(w[:, 0], bins=40, density=True, color=MEASURED, alpha=0.55, label="measured")
    ax.fill_between(grid, band.lower, band.upper, color=TRUTH, alpha=0.25, lw=0, label="90 % band")
    ax.plot(grid, band.value, color=TRUTH, label="density of the truth")
    ax.set(xlabel=LABEL, ylabel="density", xlim=(grid[0], grid[-1]))
    ax.set_ylim(0, 1.35 * band.upper.max())  # room for the legend
    ax.legend(frameon=False, fontsize=8)


def draw_rows(ax: Axes, model: Deconvolver, w: Array, sd: Array) -> None:
    """Draw some rows with their error bars, and above each the posterior of its true value."""
    rows = np.argsort(sd[:, 0])[np.linspace(0, len(sd) - 1, SHOWN_ROWS).astype(int)]
    posterior = model.posterior(w[rows], noise=sd[rows])
    height = np.arange(SHOWN_ROWS)
    style: dict[str, Any] = {"fmt": "o", "ms": 4, "capsize": 2}
    ax.errorbar(w[rows, 0], height, xerr=sd[rows, 0], color=MEASURED, label="measured", **style)
    ax.errorbar(
        posterior.mean[:, 0],
        height + 0.3,
        xerr=posterior.sd[:, 0],
        color=TRUTH,
        label="posterior",
        **style,
    )
    ax.set(xlabel=LABEL, ylabel="rows, from well to badly measured", yticks=[])
    ax.set_ylim(-0.5, SHOWN_ROWS + 1.8)
    ax.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)


def certificates(model: Deconvolver, sd: Array) -> Array:
    """Return what the check of the errors' size says, ``(tables, factors)`` p-values.

    Truths come from the fitted density and errors from the table; they are said to be a factor too
    small or too large, so that the right factor is one.
    """
    found = np.empty((SIMULATED_TABLES, len(FACTORS)))
    for table in range(SIMULATED_TABLES):
        rng = np.random.default_rng(table)
        errors = rng.choice(sd, SIMULATED_ROWS)
        truth = model.sample(SIMULATED_ROWS, random_state=table)
        rows = truth + errors * rng.normal(size=errors.shape)
        for place, factor in enumerate(FACTORS):
            said = factor * errors
            finding = fitted(rows, said, quick=True).certificate_.finding("factor")
            assert finding is not None
            found[table, place] = finding.p
    return found


def draw_certificates(ax: Axes, p_values: Array) -> None:
    """Draw p-values against the factor by which the errors were said wrongly."""
    ax.axhline(0.001, color=THRESHOLD, lw=1, ls="--", label="p = 0.001")
    ax.plot(FACTORS, p_values.T, "o", color=TRUTH, ms=3, alpha=0.35, mew=0)
    ax.plot(FACTORS, np.median(p_values, 0), color=TRUTH, label="median")
    ax.legend(frameon=False, fontsize=8, loc="lower center")
    ax.set(xscale="log", yscale="log")
    ticks = (0.5, 0.7, 1.0, 1.4)
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set_xticks([], minor=True)
    ax.set(xlabel="errors as said / true errors", ylabel="p-value of the check")


def numbers(model: Deconvolver, w: Array, sd: Array) -> dict[str, Any]:
    """Return what the caption quotes, with how it came about."""
    truth = model.sample(100_000, random_state=0)
    return {
        "command": "python publication/figure.py",
        "version": __version__,
        "rows": len(w),
        "measured_spread": float(w.std()),
        "median_error": float(np.median(sd)),
        "true_spread": float(truth.std()),
        "weights": {name: float(share) for name, share in model.weights_.items()},
    }


if __name__ == "__main__":
    main()
