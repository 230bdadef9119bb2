"""Pictures of what each line of the certificate looks at: a right case beside a wrong one.

    python -m benchmarks.certificate_pictures

Writes ``docs/images/certificate_*.png``. The tables are those of ``benchmarks.certificate``, each
fitted by ``Deconvolver(quick=True)``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.spatial import cKDTree
from scipy.special import ndtri

from benchmarks.certificate import ROWS, WRONG, Data, blobs, measured, right
from deconflow import Deconvolver
from deconflow.noise import gaussian, student_t
from deconflow.observations import Observations
from deconflow.trust.causes import log_likelihood
from deconflow.trust.table import Table, make_table

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
REAL, SIMULATED = "0.35", "#1f6fb4"
SEED = 5


def table_of(make: Callable[..., Data]) -> tuple[Table, Data]:
    """Fit a table, and put its rows beside simulated ones."""
    data = make(ROWS, np.random.default_rng(SEED))
    w, sd, _ = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Deconvolver(quick=True, random_state=0).fit(w, noise=sd)
    rows = Observations.from_arrays(w, gaussian(sd=sd))
    working = model._working_mixture()
    return make_table(rows, model.density_.sample, ["x", "y"], working, 0, averaged=True), data


def curve(ax: Any, table: Table, values: Any, noise_at: Callable[[float], Any], name: str) -> None:
    """Draw what the log-likelihood gains with other noise."""
    usual = log_likelihood(table, table.data.noise)
    gains = [
        log_likelihood(table, noise_at(value).bind(len(table.data))) - usual for value in values
    ]
    ax.plot(values, gains, "o-", color=SIMULATED)
    ax.axhline(0, color=REAL, lw=0.8)
    ax.set_ylim(max(min(gains), -60), max(max(gains), 5) * 1.15)
    ax.set(xlabel=name, ylabel="gain of log p(w), nats")


def factor(ax: Any, table: Table, data: Data) -> None:
    noise = table.data.noise
    values = np.geomspace(0.5, 2.5, 9)
    curve(ax, table, values, lambda f: noise.divide(torch.full((2,), 1 / f).double()),
          "factor on the errors")  # fmt: skip
    ax.set_xscale("log")
    ax.set_xticks([0.5, 1, 2], ["0.5", "1", "2"])
    ax.minorticks_off()


def tails(ax: Any, table: Table, data: Data) -> None:
    scale = table.data.noise.factor
    values = [2.5, 3, 4, 6, 10, 20]
    curve(ax, table, values, lambda df: student_t(scale, df), "degrees of freedom of t noise")


def correlation(ax: Any, table: Table, data: Data) -> None:
    sd = table.data.noise.factor

    def law(rho: float) -> Any:
        covariance = torch.diag_embed(sd.square())
        covariance[:, 0, 1] = covariance[:, 1, 0] = rho * sd[:, 0] * sd[:, 1]
        return gaussian(covariance=covariance)

    curve(ax, table, np.linspace(-0.9, 0.9, 9), law, "correlation of the errors of x and y")


def skewness(ax: Any, table: Table, data: Data) -> None:
    z = table.sums([table.view.skewness[..., d] for d in range(2)]).z
    ax.axhspan(-2, 2, color="0.9")
    ax.bar(["x", "y"], z, color=SIMULATED, width=0.5)
    ax.set(ylabel="lean, in standard errors", ylim=(-8, 8))


def swapped(ax: Any, table: Table, data: Data) -> None:
    noise = table.data.noise
    gain = log_likelihood(table, replace(noise, factor=noise.factor[:, [1, 0]]))
    ax.bar(["as said", "exchanged"], [0, gain - log_likelihood(table, noise)], color=SIMULATED)
    ax.axhline(0, color=REAL, lw=0.8)
    ax.set(ylabel="gain of log p(w), nats")


def even(ax: Any, shares: Any, name: str) -> None:
    """Draw a histogram of what should be uniform, with the band that chance makes."""
    counts, edges = np.histogram(shares, bins=20, range=(0, 1))
    mean = len(shares) / 20
    ax.axhspan(mean - 2 * np.sqrt(mean), mean + 2 * np.sqrt(mean), color="0.9")
    ax.stairs(counts, edges, color=REAL)
    ax.set(xlabel=name, ylabel="rows")


def columns(ax: Any, table: Table, data: Data) -> None:
    even(ax, table.below[:, 0, 1], "probability of a smaller y")


def joint(ax: Any, table: Table, data: Data) -> None:
    log_p = table.view.log_p
    simulated = np.sort(log_p[:, 1:], axis=None)
    rank = np.searchsorted(simulated, log_p[:, 0]) / simulated.size
    even(ax, rank, "rank of log p(w) among simulated rows")


def dependence(ax: Any, table: Table, data: Data) -> None:
    sd, u = data[1][:, 0], table.below[:, 0, 0]
    ax.plot(sd, u, ".", ms=2, color="0.7")
    bins = np.quantile(sd, np.linspace(0, 1, 9))
    place = np.digitize(sd, bins[1:-1])
    x = [sd[place == k].mean() for k in range(8)]
    for level, style in ((50, "o-"), (10, "--"), (90, "--")):
        ax.plot(x, [np.percentile(u[place == k], level) for k in range(8)], style, color=SIMULATED)
    ax.set(xlabel="error of x", ylabel="probability of a smaller x")


def order(ax: Any, table: Table, data: Data) -> None:
    ax.plot(ndtri(table.below[:200, 0, 0].clip(1e-4, 1 - 1e-4)), ".-", ms=3, lw=0.6, color=REAL)
    ax.set(xlabel="row", ylabel="x, as a normal score", ylim=(-4, 4))


def edges(ax: Any, table: Table, data: Data) -> None:
    low, high = table.rows.w[:, 1:, 0].min(), table.rows.w[:, 1:, 0].max()
    bins = np.linspace(low, high, 70)
    real, simulated = table.rows.w[:, 0, 0], table.rows.w[:, 1:, 0].ravel()
    units = table.units.measured_scale[0].item(), table.units.location[0].item()
    edges_ = units[1] + units[0] * bins
    ax.stairs(np.histogram(real, bins)[0], edges_, color=REAL, fill=True, alpha=0.4, label="real")
    counts = np.histogram(simulated, bins)[0] * len(real) / len(simulated)
    ax.stairs(counts, edges_, color=SIMULATED, label="simulated")
    ax.set(xlabel="x", ylabel="rows", xlim=(-5, 1))
    ax.legend(frameon=False)


def outliers(ax: Any, table: Table, data: Data) -> None:
    ax.plot(*data[0].T, ".", ms=2, color=REAL)
    ax.set(xlabel="x", ylabel="y", xlim=(-11, 11), ylim=(-11, 11))


def copies(ax: Any, table: Table, data: Data) -> None:
    distance = cKDTree(data[0]).query(data[0], k=2)[0][:, 1]
    ax.hist(np.log10(distance + 1e-8), bins=40, range=(-8.2, 0.5), color=REAL)
    ax.set(xlabel="log10 of the distance to the next row", ylabel="rows")


def wider(n: int, rng: np.random.Generator) -> Data:
    """Right rows of two columns with errors of different sizes."""
    sd = np.column_stack([rng.uniform(0.2, 0.4, n), rng.uniform(0.2, 1.4, n)])
    v = blobs(n, rng)
    return v + sd * rng.normal(size=v.shape), sd, v


def exchanged(n: int, rng: np.random.Generator) -> Data:
    w, sd, v = wider(n, rng)
    return w, sd[:, ::-1].copy(), v


def far_overstated(n: int, rng: np.random.Generator) -> Data:
    w, sd, v = right(n, rng)
    return w, 2.5 * sd, v


def depending(n: int, rng: np.random.Generator) -> Data:
    """Rows whose truth grows with the error."""
    w, sd, v = measured(blobs(n, rng), 0.2, 0.7, rng)
    return w + 2 * sd, sd, v + 2 * sd


PICTURES: dict[str, tuple[Callable[..., None], Callable[..., Data], Callable[..., Data], str]] = {
    "factor": (factor, right, WRONG["errors understated twofold"][0], "errors said half as large"),
    "tails": (tails, right, WRONG["t(3) noise said to be Gaussian"][0], "t(3) noise"),
    "skewness": (skewness, right, WRONG["skewed noise"][0], "skewed noise"),
    "correlation": (correlation, right, WRONG["correlated noise (.8)"][0], "correlated noise"),
    "swapped": (swapped, wider, exchanged, "errors exchanged"),
    "columns": (columns, right, far_overstated, "errors said 2.5 times as large"),
    "joint": (joint, right, far_overstated, "errors said 2.5 times as large"),
    "dependence": (dependence, right, depending, "truth grows with its error"),
    "order": (order, right, WRONG["40 objects, 50 rows each"][0], "objects measured 50 times"),
    "edges": (edges, right, WRONG["truncated sample"][0], "nothing below -1.8 was kept"),
    "outliers": (outliers, right, WRONG["2 % outliers"][0], "2 % outliers"),
    "copies": (copies, right, WRONG["every row five times"][0], "every row five times"),
}
"""What draws a check, a right table, a wrong one, and what is wrong with it."""


def main() -> None:
    made: dict[Any, tuple[Table, Data]] = {}
    for name, (draw, good, bad, words) in PICTURES.items():
        figure, axes = plt.subplots(1, 2, figsize=(7.2, 2.7), layout="constrained")
        for ax, make, title in zip(axes, (good, bad), ("right", words), strict=True):
            if make not in made:
                made[make] = table_of(make)
            draw(ax, *made[make])
            ax.set_title(title, fontsize=10)
            ax.spines[["top", "right"]].set_visible(False)
        figure.savefig(FOLDER / f"certificate_{name}.png", dpi=110)
        plt.close(figure)
        print(name, flush=True)


if __name__ == "__main__":
    main()
