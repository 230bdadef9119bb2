"""What pictures are made of: measurements, axes, and single rows with their posteriors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deconflow._types import Array
from deconflow.checks import check_integer
from deconflow.core import EVERYTHING, has_noise, observe, refuse
from deconflow.estimators import Posterior, column_numbers
from deconflow.models import measured_values
from deconflow.plots.axis import LARGEST, Axis, span
from deconflow.plots.style import COLOURS, MARKERS
from deconflow.plots.words import bare, labels_of, typeset

DRAWS = 20_000
POSTERIOR_DRAWS, PROPOSALS = 2000, 4000


@dataclass(frozen=True)
class MarkedRow:
    """A row that is shown by itself: its name, measurement, error, posterior and style.

    ``limits`` are -1 or 1 where only an upper or a lower limit is known, which has no error bar.
    """

    name: str
    w: Array
    errors: Array
    limits: Array
    posterior: Posterior
    colour: str
    marker: str

    def words(self, d: int) -> str:
        """Describe a value."""
        return {-1: "an upper limit", 1: "a lower limit"}.get(int(self.limits[d]), "measured")

    def draw_value(self, ax: Any, x: int, y: int | None = None, **style: Any) -> None:
        """Draw the measurement with its error bar: one column, low in the panel, or two."""
        marker = {-1: "<", 1: ">"}.get(int(self.limits[x]), self.marker)
        if y is None:
            height, bar, style = 0.06, None, {"transform": ax.get_xaxis_transform(), **style}
        else:
            height, bar = self.w[y], self.errors[y]
        ax.errorbar(
            self.w[x], height, xerr=self.errors[x], yerr=bar, fmt=marker, color=self.colour,
            mec="white", mew=0.6, ms=8, elinewidth=1.4, capsize=2.5, zorder=5, **style,
        )  # fmt: skip


def measurements(
    model: Any, w: Any, noise: Any, given: Any, limits: Any, *, noise_needed: bool = True
) -> tuple[Array, Any]:
    """Check measurements, NaN where there are none, and their noise, if it is given or needed."""
    if not (noise_needed or given is not None or has_noise(w, noise)):
        facts = {} if limits is None else {"limits": limits}
        return _drawable(measured_values(model.fit_, observe(w, 0.0, **facts))[0]), None
    facts = {"given": given, "limits": limits}
    data = model._rows(w, noise, {name: each for name, each in facts.items() if each is not None})
    return _drawable(data.measured()), data


def to_simulate(
    model: Any, kind: str, w: Any, noise: Any, given: Any, limits: Any, most: int
) -> tuple[Array, Any]:
    """Check measurements that can be simulated again, and return some of them."""
    what = f"a picture of kind {kind}"
    refuse(what, EVERYTHING - {"covariates", "selected"}, model.fit_.traits)
    values, data = measurements(model, w, noise, given, limits)
    if data.noise.flags is not None:
        raise ValueError(
            f"Expected rows without limits for {what}, because it is not known how limits come "
            "about; got some. Leave those rows out."
        )
    some = some_of(len(data), most)
    return values[some], data[some]


def marked_rows(
    model: Any, rows: Any, row_names: Any, values: Array, data: Any, seed: int
) -> list[MarkedRow]:
    """Return rows to show by themselves, with their posteriors, colours and markers."""
    chosen = np.atleast_1d(np.asarray(rows, dtype=object)).tolist()
    for number in chosen:
        check_integer("rows=", number, 0)
        if number >= len(values):
            raise ValueError(
                f"Expected rows= below {len(values)}, the number of rows; got {number}."
            )
    part = data[[int(number) for number in chosen]]
    posterior = model.density_.posterior(part, POSTERIOR_DRAWS, PROPOSALS, seed)
    flags = np.zeros(part.w.shape) if part.noise.flags is None else np.asarray(part.noise.flags)
    sd = np.sqrt(np.broadcast_to(np.asarray(part.noise.variance()), flags.shape))
    errors = np.where(np.isfinite(sd) & (flags == 0), sd, 0.0)  # some noise has no variance
    return [
        MarkedRow(
            f"row {name}", values[number], errors[i], flags[i], posterior[i],
            COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)],
        )
        for i, (number, name) in enumerate(zip(chosen, row_names or chosen, strict=True))
    ]  # fmt: skip


def axes_of(
    model: Any,
    columns: Any,
    names: Sequence[str] | None,
    truth: Array,
    values: Array | None = None,
    *,
    measured: bool = False,
) -> list[Axis]:
    """Return an axis for each column to show, with room for true values and measurements.

    They are ``measured`` columns where a projection makes these others than the true ones.
    """
    other = measured and "projected" in model.fit_.traits
    labels = labels_of(model, names, truth.shape[1] if other else None)
    numbers = range(len(labels))
    if columns is not None:
        numbers = column_numbers(columns, [bare(label) for label in labels], "columns=").tolist()
    return [
        Axis(d, typeset(labels[d]), *span(truth[:, d], () if values is None else values[:, d]))
        for d in numbers
    ]


def some_of(count: int, most: int) -> Any:
    """Return numbers of some rows, taken by chance, in their order."""
    return np.sort(np.random.default_rng(0).permutation(count)[:most])


def _drawable(values: Array) -> Array:
    """Check that every column has a value to draw."""
    empty = np.flatnonzero(~(np.abs(values) <= LARGEST).any(0))
    if len(empty):
        raise ValueError(
            f"Expected values to draw in every column of w, up to {LARGEST:g}; got none in column "
            f"{empty[0]}."
        )
    return values
