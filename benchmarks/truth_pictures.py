"""Pictures of what is known of the truth: answers without and with it.

    python -m benchmarks.truth_pictures

Writes ``docs/images/truth_*.png``, from generated rows, and prints how many truths the intervals of
the page's example with a category hold, in other tables like it; in a minute.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from deconflow import XDGMM, LogSplineDeconvolver

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
TRUTH, MEASURED, WITHOUT, WITH = "0.15", "0.8", "#d1495b", "#1f6fb4"


def on_grid(model: Any, grid: Any) -> Any:
    """Return the density at points of one column."""
    return np.exp(model.score_samples(grid[:, None]))


def draw_bounds(axes: Any) -> None:
    """Draw an exponential truth, as two estimators find it without and with its bound."""
    rng = np.random.default_rng(2)
    v = rng.exponential(size=(2000, 1))
    sd = rng.uniform(0.2, 0.6, size=v.shape)
    w = v + sd * rng.normal(size=v.shape)
    grid = np.linspace(-1, 4, 501)
    kinds = {
        "XDGMM(3)": lambda **known: XDGMM(3, random_state=0, **known),
        "LogSplineDeconvolver()": LogSplineDeconvolver,
    }
    for ax, (title, make) in zip(axes, kinds.items(), strict=True):
        ax.hist(w[:, 0], bins=60, range=(-1, 4), density=True, color=MEASURED, label="measured")
        true = np.where(grid < 0, 0.0, np.exp(-np.abs(grid)))
        ax.plot(grid, true, color=TRUTH, lw=1.5, ls="--", label="truth")
        free, bounded = make().fit(w, noise=sd), make(bounds=(0, None)).fit(w, noise=sd)
        ax.plot(grid, on_grid(free, grid), color=WITHOUT, label="without bounds")
        ax.plot(grid, on_grid(bounded, grid), color=WITH, lw=2, label="bounds=(0, None)")
        ax.set(xlabel="v", ylabel="density", ylim=(0, 1.05), title=title)
    axes[0].legend(frameon=False, fontsize=9)


def draw_given(axes: Any) -> None:
    """Draw posterior means of truths that depend on their error, without and with that."""
    rng = np.random.default_rng(0)
    variance = rng.uniform(0.1, 0.5, size=(1000, 1))
    v = variance * rng.choice([1.0, 10.0], size=variance.shape)
    sd = np.sqrt(variance)
    w = v + sd * rng.normal(size=v.shape)
    plain = XDGMM(3, random_state=0).fit(w, noise=sd)
    given = XDGMM(3, random_state=0).fit(w, noise=sd, given="noise")
    answers = {
        "without covariates": plain.posterior(w, noise=sd).mean,
        'given="noise"': given.posterior(w, noise=sd, given="noise").mean,
    }
    for ax, (title, mean) in zip(axes, answers.items(), strict=True):
        ax.plot([-0.5, 5.5], [-0.5, 5.5], color=TRUTH, lw=1, ls="--")
        dots = ax.scatter(v[:, 0], mean[:, 0], c=sd[:, 0], s=9, cmap="viridis")
        rms = np.sqrt(np.mean((mean - v) ** 2))
        ax.set(xlabel="truth", ylabel="posterior mean", title=f"{title}: off by {rms:.2f} (rms)")
    axes[0].figure.colorbar(dots, ax=axes, label="error of the row")


def draw_atom(axes: Any) -> None:
    """Draw a truth that is mostly zero: its density, and the probability of zero per row."""
    rng = np.random.default_rng(3)
    effect = np.where(rng.random(1000) < 0.8, 0.0, rng.normal(0, 2, 1000))[:, None]
    sd = rng.uniform(0.3, 1.0, size=effect.shape)
    w = effect + sd * rng.normal(size=effect.shape)
    model = XDGMM(1, atoms=[0.0], random_state=0).fit(w, noise=sd)
    ax, grid = axes[0], np.linspace(-6, 6, 501)
    ax.hist(w[:, 0], bins=60, range=(-6, 6), density=True, color=MEASURED, label="measured")
    ax.plot(grid, on_grid(model, grid), color=WITH, lw=2, label="density of the rest")
    share = float(model.atom_weights_[0])
    ax.annotate("", (0, 0.66), (0, 0), arrowprops={"arrowstyle": "-|>", "color": WITHOUT, "lw": 2})
    ax.text(0.3, 0.59, f"atom at 0:\n{share:.0%} of the truths", color=WITHOUT, fontsize=9)
    ax.set(xlabel="v", ylabel="density", title="XDGMM(1, atoms=[0.0])", ylim=(0, 0.72))
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    zero = model.posterior(w, noise=sd).probability_of_atoms[:, 0]
    ax, null = axes[1], effect[:, 0] == 0
    for rows, colour, name in ((null, "0.6", "truth is 0"), (~null, WITH, "truth is not 0")):
        ax.plot(w[rows, 0], zero[rows], "o", ms=3, color=colour, label=name)
    ax.set(xlabel="measured", ylabel="probability of exactly 0", title="per row", xlim=(-6, 6))
    ax.legend(frameon=False, fontsize=9)


def coverage(n: int, seed: int) -> float:
    """Share of truths in their 90 % intervals: a curve with little scatter, and large errors."""
    rng = np.random.default_rng(seed)
    age, clinic = rng.uniform(20, 70, n), rng.choice(["north", "south"], n)
    people = pd.DataFrame({"age": age, "clinic": clinic})
    curve = 4 + 2 * np.sin(people.age / 10) + 1.5 * (people.clinic == "south")
    v = curve.to_numpy()[:, None] + 0.3 * rng.normal(size=(n, 1))
    sd = rng.uniform(0.3, 1.2, size=v.shape)
    w = v + sd * rng.normal(size=v.shape)
    model = XDGMM(1, random_state=0).fit(w, noise=sd, given=people)
    low, high = model.posterior(w, noise=sd, given=people).interval(0.9)
    return float(np.mean((low < v) & (v < high)))


PICTURES = {"bounds": draw_bounds, "given": draw_given, "atoms": draw_atom}


def main() -> None:
    for name, draw in PICTURES.items():
        figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.2), layout="constrained")
        draw(axes)
        for ax in axes:
            ax.title.set_fontsize(10)
            ax.spines[["top", "right"]].set_visible(False)
        figure.savefig(FOLDER / f"truth_{name}.png", dpi=110)
        plt.close(figure)
        print(name, flush=True)
    for n in (1000, 4000):
        found = ", ".join(f"{coverage(n, seed):.0%}" for seed in range(5))
        print(f"90 % intervals, {n} rows: {found}", flush=True)


if __name__ == "__main__":
    main()
