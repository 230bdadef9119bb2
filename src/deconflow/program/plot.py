"""``deconflow plot``: pictures of a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from deconflow._types import Array
from deconflow.files import replacing
from deconflow.program.how import law_of, refuse_simulation
from deconflow.program.known import refuse_covariates
from deconflow.program.messages import one_line_errors, say
from deconflow.program.model_folder import ModelFolder, load
from deconflow.program.options import Model, OptionalTable, Seed
from deconflow.tables import (
    Rows,
    need,
    open_table,
    read_rows,
    split_list,
    split_part,
)

KINDS = ("corner", "marginals", "history", "diagnostics")
SHOWN, DRAWS, CHECKED = 20_000, 20_000, 2000


def plot(
    model: Model,
    table: OptionalTable = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Picture to write: .png, .pdf or .svg.")
    ] = Path("deconvolved.png"),
    kind: Annotated[str, typer.Option("--kind", "-k", help=f"{', '.join(KINDS)}.")] = "corner",
    rows: Annotated[
        str, typer.Option("--rows", help="Rows whose posteriors to show in the corner: 0,17.")
    ] = "",
    seed: Seed = 0,
) -> None:
    """Draw the density, or how well it fits.

    Example: deconflow plot model stars.csv -o corner.png --rows 0,17
    """
    with one_line_errors():
        _check(output, kind)
        need_plots()
        saved = load(model)
        figure = draw(saved, kind, measured_rows(saved, table), _parse_rows(rows), seed)
        save(figure, output)
        say(f"Picture written to {output}.")


@dataclass(frozen=True)
class Measured:
    """The usable rows of a table; ``places`` are their numbers among its ``n_rows``."""

    rows: Rows
    places: NDArray[np.int64]
    n_rows: int

    @property
    def w(self) -> Array:
        """What was measured, NaN where it is missing."""
        return self.rows.w

    def some(self, count: int, seed: int = 0) -> Measured:
        """Take some rows at random, in their order."""
        rows = np.sort(np.random.default_rng(seed).permutation(len(self.rows))[:count])
        return Measured(self.rows[rows], self.places[rows], self.n_rows)

    def named(self, rows: list[int]) -> NDArray[np.int64]:
        """Find rows by their numbers in the table."""
        for row in rows:
            if row not in self.places:
                raise ValueError(
                    f"Expected --rows among the {len(self.places)} that can be used of "
                    f"{self.n_rows}, from {self.places[0]} to {self.places[-1]}; got {row}."
                )
        return np.searchsorted(self.places, rows)


def measured_rows(saved: ModelFolder, table: Path | None) -> Measured | None:
    """Read a table, or the one that was fitted; None if that is gone."""
    if table is None:
        table = Path(saved.about.get("table", {}).get("path", ""))
        if not split_part(table)[0].is_file():
            return None
    rows = read_rows(saved.reader(open_table(table, typed=False), weighted=True))
    return Measured(rows.rows, np.flatnonzero(rows.usable), len(rows))


def draw(
    saved: ModelFolder, kind: str, data: Measured | None, rows: list[int], seed: int = 0
) -> Any:
    """Draw a picture of one kind, as a matplotlib figure."""
    from deconflow import plots

    if kind == "history":
        return plots.history(saved.estimator).figure
    if kind == "marginals":
        w = None if data is None else data.w
        axes = plots.marginals(saved.estimator, w, names=saved.labels, random_state=seed)
        return axes[0].figure
    if data is None:
        raise ValueError(f"Expected a table for a picture of kind {kind}; got none. Name it.")
    return _corner(saved, data, rows, seed) if kind == "corner" else _checks(saved, data, seed)


def save(figure: Any, output: Path) -> None:
    """Write a figure in the format of the ending, all or nothing."""
    import matplotlib.pyplot as plt

    with replacing(output) as part:
        figure.savefig(part, dpi=110, format=output.suffix[1:].lower())
    plt.close(figure)


def need_plots() -> None:
    """Take matplotlib without a window, or say which extra brings it."""
    try:
        import corner  # noqa: F401
        import matplotlib
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Expected {error.name} to be installed, because pictures need it; got none. "
            "Run: pip install 'deconflow[plots]'",
            name=error.name,
        ) from error
    matplotlib.use("Agg")
    need("pyarrow")


def _corner(saved: ModelFolder, data: Measured, rows: list[int], seed: int) -> Any:
    from deconflow import plots

    samples = saved.estimator.sample(DRAWS, random_state=seed)
    if not rows:
        return plots.corner_figure(
            data.some(SHOWN).w, samples, names=saved.labels, model=saved.estimator
        )
    shown = data.rows[data.named(rows)]
    posterior = saved.estimator.posterior(
        shown.w, **shown.arguments, n_samples=300, random_state=seed
    )
    others = data.some(SHOWN).w
    return plots.corner_figure(
        np.concatenate([shown.w, others]), samples, names=saved.labels, posterior=posterior,
        rows=range(len(rows)), errors=shown.errors,
        model=saved.estimator,
    )  # fmt: skip


def _checks(saved: ModelFolder, data: Measured, seed: int) -> Any:
    from deconflow import plots

    refuse_covariates(saved.estimator, "a picture of kind diagnostics")
    refuse_simulation(saved.estimator, data.rows, "a picture of kind diagnostics")
    some = data.some(CHECKED)
    few = some.some(300).rows
    answer = saved.estimator.posterior(few.w, **few.arguments, n_samples=10, random_state=seed)
    sizes = answer.effective_sample_size
    grid = plots.diagnostics(
        saved.estimator, some.w, law_of(saved.estimator, some.rows), names=saved.labels,
        random_state=seed,
        effective_sample_size=None if np.isinf(sizes).all() else sizes,
    )  # fmt: skip
    return grid[0, 0].figure


def _check(output: Path, kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"Expected --kind as one of {', '.join(KINDS)}; got {kind!r}.")
    check_picture(output)


def check_picture(output: Path) -> None:
    """Raise unless the name is that of a picture."""
    if output.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ValueError(f"Expected a picture that ends in .png, .pdf or .svg; got {output.name}.")


def _parse_rows(text: str) -> list[int]:
    try:
        return [int(part) for part in split_list([text])]
    except ValueError as error:
        raise ValueError(
            f"Expected --rows as whole numbers, such as 0,17; got {text!r}."
        ) from error
