"""The kinds of pictures by their names: what ``model.plot`` and the program draw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deconflow._types import Array
from deconflow.carried_errors import parted
from deconflow.checks import check_choice, check_integer, check_seed
from deconflow.observations import Observations
from deconflow.plots.before_after import before_after
from deconflow.plots.checks import diagnostics
from deconflow.plots.corners import corner_figure
from deconflow.plots.marginals import DRAWS, marginals
from deconflow.plots.row import row
from deconflow.plots.style import columns, refuse_no_model
from deconflow.plots.training import history

SHOWN, CHECKED, WEIGHED = 20_000, 2000, 300
"""Rows at most that are shown, that are simulated again, and whose posteriors are weighed."""
POSTERIOR_DRAWS = 2000


@dataclass(frozen=True)
class Wanted:
    """What a picture is made of.

    Attributes
    ----------
    model
        A fitted estimator.
    w : array or None
        ``(N, D)`` measurements in the units of the truth, NaN where missing.
    data : Observations or None
        The same with their noise, if that was given.
    rows : list of int
        Those to show one by one, called by ``row_names``.
    common : dict
        Labels, axes and look.
    """

    kind: str
    model: Any
    w: Array | None
    data: Observations | None
    rows: list[int]
    row_names: Sequence[Any]
    seed: int
    common: dict[str, Any]

    def measured(self) -> Array:
        """Return what was measured, or raise if it was not given."""
        if self.w is None:
            raise ValueError(f"Expected w for a picture of kind {self.kind}; got none.")
        return self.w

    def observed(self) -> Observations:
        """Return what was measured with its noise, or raise if either was not given."""
        self.measured()
        if self.data is None:
            raise ValueError(f"Expected noise for a picture of kind {self.kind}; got none.")
        return self.data

    def posterior(self) -> dict[str, Any]:
        """Return posteriors, errors and names of the rows to show one by one."""
        part = self.observed()[self.rows]
        sd = part.noise.variance().sqrt().double().numpy()
        flags = part.noise.flags
        return {
            "posterior": self.model.density_.posterior(part, POSTERIOR_DRAWS, 4000, self.seed),
            "errors": np.broadcast_to(sd, (len(self.rows), self.measured().shape[1])),
            "limits": None if flags is None else flags.numpy(),
            "row_names": self.row_names,
        }


def picture(
    model: Any,
    kind: str = "marginals",
    w: Any = None,
    noise: Any = None,
    *,
    rows: Sequence[int] = (),
    given: Any = None,
    limits: Any = None,
    row_names: Sequence[Any] | None = None,
    names: Sequence[str] | None = None,
    axes: Any = None,
    random_state: int = 0,
    **look: Any,
) -> Any:
    """Draw a picture of one kind; this is what ``model.plot`` does.

    Parameters
    ----------
    model
        A fitted estimator.
    kind
        One of ``"marginals"``, ``"corner"``, ``"row"``, ``"before_after"``, ``"diagnostics"`` and
        ``"history"``.
    w, noise, given, limits
        Measurements and what is known of them, as in ``fit``.
    rows
        Numbers of the rows to show one by one, in a corner or by themselves.
    row_names
        What these rows are called; None for their numbers.
    names
        Labels of the dimensions, as ``x`` or ``x [mas]``; None for those of the model.
    axes
        Axes of matplotlib, as many as the kind has panels; None for a new figure.
    random_state
        Seed of the draws.
    **look
        Keywords of :class:`Look`: ``columns``, ``range``, ``log`` and others.

    Returns
    -------
    Axes, or array of Axes
        As the function of this kind returns them; a corner ``(D, D)``.
    """
    check_choice("kind", kind, KINDS)
    refuse_no_model(model)
    check_seed(random_state)
    chosen = _checked_rows(kind, rows, w)
    measured, data = _measured(model, w, noise, given, limits)
    wanted = Wanted(
        kind, model, measured, data, chosen, chosen if row_names is None else row_names,
        random_state, {"names": names, "axes": axes, **look},
    )  # fmt: skip
    return KINDS[kind](wanted)


def _corner(wanted: Wanted) -> Any:
    samples = wanted.model.sample(DRAWS, random_state=wanted.seed)
    w = wanted.measured()
    some = _some(len(w), SHOWN)
    more: dict[str, Any] = {}
    if wanted.rows:
        more = {"rows": range(len(wanted.rows)), **wanted.posterior()}
        w = np.concatenate([w[wanted.rows], w[np.setdiff1d(some, wanted.rows)]])
    else:
        w = w[some]
    figure = corner_figure(w, samples, model=wanted.model, **more, **wanted.common)
    given = wanted.common["axes"]
    found = np.array(figure.axes if given is None else given, dtype=object)
    side = round(np.sqrt(found.size))
    return found.reshape(side, side)


def _marginals(wanted: Wanted) -> Any:
    return marginals(wanted.model, wanted.w, random_state=wanted.seed, **wanted.common)


def _row(wanted: Wanted) -> Any:
    if not wanted.rows:
        raise ValueError("Expected rows= with numbers of rows for a picture of kind row; got none.")
    w = wanted.measured()[wanted.rows]
    more = wanted.posterior()
    return row(wanted.model, w, random_state=wanted.seed, **more, **wanted.common)


def _before_after(wanted: Wanted) -> Any:
    w, data = _to_simulate(wanted, SHOWN)
    return before_after(wanted.model, w, data.noise, random_state=wanted.seed, **wanted.common)


def _diagnostics(wanted: Wanted) -> Any:
    w, data = _to_simulate(wanted, CHECKED)
    few = data[_some(len(data), WEIGHED)]
    sizes = wanted.model.density_.posterior(few, 10, 1000, wanted.seed).effective_sample_size
    return diagnostics(
        wanted.model, w, data.noise, random_state=wanted.seed,
        effective_sample_size=None if np.isinf(sizes).all() else sizes, **wanted.common,
    )  # fmt: skip


def _history(wanted: Wanted) -> Any:
    common = {name: value for name, value in wanted.common.items() if name != "names"}
    return history(wanted.model, **common)


KINDS: dict[str, Callable[[Wanted], Any]] = {
    "corner": _corner,
    "marginals": _marginals,
    "row": _row,
    "before_after": _before_after,
    "history": _history,
    "diagnostics": _diagnostics,
}
TAKE_ROWS = ("corner", "row")


def _measured(
    model: Any, w: Any, noise: Any, given: Any, limits: Any
) -> tuple[Array | None, Observations | None]:
    """Check measurements: their noise, too, if it is given, or carried by the values."""
    if w is None:
        for name, value in {"noise": noise, "given": given, "limits": limits}.items():
            if value is not None:
                raise ValueError(f"Expected w beside {name}; got none.")
        return None, None
    if parted(w, noise)[1] is None:
        if given is not None:
            raise ValueError("Expected noise beside given; got none.")
        return columns(model._measured_values(w, limits), "w"), None
    data = model._observe(w, noise, None, given=given, limits=limits)
    seen = data.w.double().numpy()
    if data.observed is not None:
        seen = np.where(data.observed.numpy(), seen, np.nan)
    return columns(seen, "w"), data


def _to_simulate(wanted: Wanted, most: int) -> tuple[Array, Observations]:
    """Return some rows that can be simulated again, with their noise."""
    data, model, what = wanted.observed(), wanted.model, f"a picture of kind {wanted.kind}"
    model._refuse_covariates(what)
    if model._selected is not None:
        raise ValueError(
            f"Expected a model of rows that were all seen for {what}, which simulates whole "
            "tables; got one with a selection."
        )
    if data.noise.flags is not None:
        raise ValueError(
            f"Expected rows without limits for {what}, because it is not known how limits come "
            "about; got some. Leave those rows out."
        )
    some = _some(len(data), most)
    return wanted.measured()[some], data[some]


def _some(count: int, most: int) -> Any:
    """Numbers of some rows, by chance, in their order."""
    return np.sort(np.random.default_rng(0).permutation(count)[:most])


def _checked_rows(kind: str, rows: Sequence[int], w: Any) -> list[int]:
    if not isinstance(rows, Iterable) or isinstance(rows, str):
        rows = [rows]
    chosen = list(rows)
    if chosen and kind not in TAKE_ROWS:
        raise ValueError(f"Expected no rows= for a picture of kind {kind}; got {chosen}.")
    for number in chosen:
        check_integer("rows=", number, 0)
        if w is not None and number >= len(w):
            raise ValueError(f"Expected rows= below {len(w)}, the number of rows; got {number}.")
    return [int(number) for number in chosen]
