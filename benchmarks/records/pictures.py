"""The pictures of the page; each keeps a digest of the figures that it shows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.records import gamma, real
from benchmarks.records.estimators import LABELS
from benchmarks.records.sections import RECORD
from benchmarks.records.tables import by_estimator, read
from benchmarks.runs import Run
from paper.records import write

STYLES = {
    "deconvolver": ("#0072B2", "o", "-"), "quick": ("#56B4E9", "v", "--"),
    "spline": ("#D55E00", "s", "-."), "bayes": ("#009E73", "^", ":"),
    "xd": ("#CC79A7", "D", (0, (3, 1, 1, 1, 1, 1))), "xd-average": ("#E69F00", "P", ":"),
}  # fmt: skip
"""Colours of Okabe and Ito, that all eyes tell apart, with a mark and a line of their own."""
OTHER = ("#666666", "*", "-")

Data = dict[str, Any]


def gamma_data(runs: list[Run]) -> Data:
    """Return geometric means of the divergence by estimator and number of rows."""
    data: Data = {}
    for name, mine in by_estimator([run for run in runs if run["section"] == "gamma"]):
        kls = {n: [run["kl"] for run in mine if run["rows"] == n] for n in gamma.ROWS}
        data[name] = {n: gamma.geometric_mean(each) for n, each in kls.items() if each}
    return data


def real_data(runs: list[Run]) -> Data:
    """Return fitted densities by table and estimator."""
    data: Data = {}
    for name, mine in by_estimator([run for run in runs if run["section"] == "real"]):
        for run in mine:
            data.setdefault(run["table"], {})[name] = {
                "span": run["span"],
                "density": run["density"],
            }
    return {key: data[key] for key in real.TABLES if key in data}


def draw_gamma(data: Data) -> Any:
    """Draw the divergence against the number of rows, beside the published curve."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    published = gamma.PUBLISHED_BY_ROWS
    ax.plot(list(published), list(published.values()), "kx-", lw=2, label="published flow")
    for name, means in data.items():
        colour, mark, line = STYLES.get(name, OTHER)
        label = LABELS[name].strip("`").split("(")[0]
        ax.plot(list(means), list(means.values()), color=colour, marker=mark, ls=line, label=label)
    ax.set(xscale="log", yscale="log", xlabel="rows", ylabel="KL(truth || estimate), nat",
           title="Gamma truths: geometric mean over the cells")  # fmt: skip
    ax.legend(frameon=False)
    ax.grid(alpha=0.3)
    return figure


def draw_real(data: Data) -> Any:
    """Draw the density of the truth of each table, on a logarithmic scale."""
    import matplotlib.pyplot as plt

    size = (4.0 * len(data), 3.4)
    figure, axes = plt.subplots(1, len(data), figsize=size, layout="constrained", squeeze=False)
    for ax, (key, densities) in zip(axes[0], data.items(), strict=True):
        for name, curve in densities.items():
            low, high = curve["span"]
            grid = np.linspace(low, high, len(curve["density"]))
            colour, _, line = STYLES.get(name, OTHER)
            label = LABELS[name].strip("`").replace("deconflow fit ", "")
            ax.plot(grid, curve["density"], color=colour, ls=line, label=label)
        top = max(max(curve["density"]) for curve in densities.values())
        ax.set(yscale="log", ylim=(1e-3, 2 * top), title=key, xlabel="truth")
    axes[0, 0].set_ylabel("density")
    axes[0, -1].legend(frameon=False, fontsize=8)
    return figure


PICTURES: dict[str, tuple[str, Callable[[list[Run]], Data], Callable[[Data], Any]]] = {
    "records-gamma.png": ("gamma", gamma_data, draw_gamma),
    "records-real.png": ("real", real_data, draw_real),
}
"""Pictures by their file names: the part they belong to, what they show, who draws them."""

WORDS = {
    "records-gamma.png": "Divergence against the number of rows, ours and the published flow's",
    "records-real.png": "Densities of the truth of the three tables, on a logarithmic scale",
}


def shown(results: Path) -> dict[str, Data]:
    """Return what every picture has to show; pictures without anything are left out."""
    runs = read(results / RECORD)
    found = {name: collect(runs) for name, (_, collect, _) in PICTURES.items()}
    return {name: data for name, data in found.items() if data}


def links(results: Path) -> dict[str, str]:
    """Return the Markdown of every picture that is drawn, by the part it belongs to."""
    return {PICTURES[name][0]: f"![{WORDS[name]}](images/{name})" for name in shown(results)}


def digest(data: Data) -> str:
    """Return what tells one picture's figures from others."""
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()


def is_up_to_date(path: Path, data: Data) -> bool:
    """Whether a picture shows these figures."""
    return path.is_file() and digest(data).encode() in path.read_bytes()


def draw_all(results: Path, folder: Path) -> list[str]:
    """Draw the pictures that do not show what is recorded; return their names."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn = []
    for name, data in shown(results).items():
        if not is_up_to_date(folder / name, data):
            figure, buffer = PICTURES[name][2](data), BytesIO()
            figure.savefig(buffer, dpi=100, format="png", metadata={"Made of": digest(data)})
            plt.close(figure)
            folder.mkdir(parents=True, exist_ok=True)
            write(folder / name, buffer.getvalue())
            drawn.append(name)
    return drawn
