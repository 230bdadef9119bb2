"""Pictures of what is known of the truth: answers without and with it.

    python -m benchmarks.truth_pictures

Writes ``docs/images/truth_*.png``, from generated rows, and prints how many truths the intervals of
the page's example with a category hold, in other tables like it; in a minute.
"""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from deconflow import XDGMM, LogSplineDeconvolver

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
COLOUR = "#d1495b"


def draw_bounds(axes: Any) -> None:
    """Draw an exponential truth, as two estimators find it without and with its bound."""
    rng = np.random.default_rng(2)
    v = rng.exponential(size=(2000, 1))
    sd = rng.uniform(0.2, 0.6, size=v.shape)
    w = v + sd * rng.normal(size=v.shape)
    grid = np.linspace(-1, 4, 501)
    for ax, model in zip(axes, (XDGMM(3, random_state=0), LogSplineDeconvolver()), strict=True):
        free = np.exp(model.fit(w, noise=sd).score_samples(grid[:, None]))
        model.set_params(bounds=(0, None)).fit(w, noise=sd).plot("marginals", w, ax=ax)
        ax.plot(grid, free, color=COLOUR, label="without bounds")
        ax.plot(grid, np.where(grid < 0, 0.0, np.exp(-grid)), "k--", lw=1, label="truth")
        ax.set(xlim=(-1, 4), ylim=(0, 1.4), title=type(model).__name__)
        ax.legend(frameon=False, fontsize=9)


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
        ax.plot([-0.5, 5.5], [-0.5, 5.5], color="k", lw=1, ls="--")
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
    model.plot("marginals", w, ax=axes[0])
    zero = model.posterior(w, noise=sd).probability_of_atoms[:, 0]
    for rows, colour, name in (
        (effect[:, 0] == 0, "0.6", "truth is 0"), (effect[:, 0] != 0, COLOUR, "truth is not 0"),
    ):  # fmt: skip
        axes[1].plot(w[rows, 0], zero[rows], "o", ms=3, color=colour, label=name)
    axes[0].set_title(type(model).__name__)
    axes[1].set(xlabel="measured", ylabel="probability of exactly 0", title="per row")
    axes[1].legend(frameon=False, fontsize=9)


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
        figure.savefig(FOLDER / f"truth_{name}.png", dpi=110)
        plt.close(figure)
        print(name, flush=True)
    for n in (1000, 4000):
        found = ", ".join(f"{coverage(n, seed):.0%}" for seed in range(5))
        print(f"90 % intervals, {n} rows: {found}", flush=True)


if __name__ == "__main__":
    main()
