"""The one door for rows, the refusal of combinations, and the settings of a run."""

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from deconflow import ranks
from deconflow.checks import warn_caller
from deconflow.frames import (
    column_names,
    column_units,
    parted,
    plain_tables,
    refuse_other_rows,
)
from deconflow.guests import as_guest
from deconflow.measuring import Selection, as_rule
from deconflow.noise import FreeErrors
from deconflow.observations import Labels, Observations
from deconflow.progress import SILENT, Progress
from deconflow.randomness import RandomState
from deconflow.streams import Overview, RowStream
from deconflow.truth import Given

_SHOWN: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def shown_by(progress: Progress) -> Iterator[None]:
    """Let fits inside the block count their steps with ``progress``."""
    token = _SHOWN.set(progress)
    try:
        yield
    finally:
        _SHOWN.reset(token)


@contextmanager
def progress_of(verbose: bool) -> Iterator[Progress]:
    """Give the progress of a fit: the one that is shown already, or a new one if ``verbose``."""
    shown = _SHOWN.get()
    if shown is not None or not (verbose and ranks.is_first()):
        yield shown or SILENT
        return
    with Progress() as progress:
        yield progress


@dataclass
class Run:
    """Settings of one fit that are no part of the model.

    Attributes
    ----------
    random_state
        Seed or generator of the estimator.
    n_jobs
        Its number of threads, None or -1 for one per processor.
    progress
        Counts steps.
    beyond : tuple of RowStream and Overview, or None
        Rows beyond memory, of which the rows that are fitted are a sample.
    """

    random_state: RandomState = 0
    n_jobs: int | None = None
    progress: Progress = SILENT
    beyond: tuple[RowStream, Overview] | None = None

    @property
    def threads(self) -> int | None:
        """Number of threads; None for one per processor."""
        return self.n_jobs if self.n_jobs is not None and self.n_jobs > 0 else None

    def generator(self) -> np.random.RandomState:
        """Return the estimator's own random numbers."""
        return check_random_state(self.random_state)

    def rng(self) -> np.random.RandomState:
        """Return random numbers for what is done before a fit."""
        return np.random.RandomState(self.generator().randint(2**30))

    @cached_property
    def reducing(self) -> np.random.RandomState:
        """Random numbers that the reductions of true values share."""
        return self.rng()

    def stream_seed(self) -> int:
        """Return a seed for a sample that is the same on all processes."""
        return ranks.from_first(int(self.rng().randint(2**30)))


#: For each trait of rows and of true values its noun, and what to do where it is not taken.
WORDS: dict[str, tuple[str, str]] = {
    "beyond memory": ("rows beyond memory", "Fit a sample: stream.overview(100_000).sample"),
    "projected": ("projection", "Use XDGMM, which takes projections"),
    "limits": ("limits in place of values", "Leave those rows out, or use XDGMM"),
    "missing": ("missing values (NaN)", "Drop those rows, or use XDGMM"),
    "counts": ("values with a likelihood, such as counts", "Use XDGMM or Deconvolver"),
    "covariates": ("covariates", "Leave out given, or put them in w with errors of zero"),
    "errors to learn": ("errors to learn", "Give errors that are known"),
    "selected": ("selection", "Leave out the selection"),
    "bounds": ("bounds", "Leave them out"),
    "atoms": ("atoms", "Leave them out"),
    "background": ("background", "Leave it out"),
}
#: What everything takes that does not say otherwise: a new fact is refused until it is named here.
EVERYTHING = frozenset({
    "beyond memory", "projected", "limits", "missing", "counts", "covariates", "errors to learn",
    "selected", "bounds", "atoms", "background",
})  # fmt: skip


def refuse(who: str, takes: Set[str], traits: Set[str]) -> None:
    """Raise for the first trait that ``who`` does not take."""
    for trait, (noun, remedy) in WORDS.items():
        if trait in traits and trait not in takes:
            raise ValueError(f"Expected no {noun} with {who}; got some. {remedy}.")


def refuse_other_traits(fitted: Set[str], asked: Set[str], must_match: Set[str]) -> None:
    """Raise for rows that lack a trait which the rows of the fit had, or have one more."""
    for trait, (noun, _) in WORDS.items():
        if trait in must_match & (fitted ^ asked):
            had, got = (noun, "none") if trait in fitted else (f"no {noun}", "some")
            raise ValueError(
                f"Expected {had}, as in the fit; got {got}. Describe these rows so, too."
            )


#: Traits that rows with a selection may have as far as the door is concerned.
NOT_SELECTED = frozenset({"errors to learn", "covariates"})


def observe(
    w: ArrayLike | Observations,
    noise: Any = None,
    *,
    projection: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    groups: Any = None,
    given: Any = None,
    limits: Any = None,
    selection: Any = None,
    selection_of: str = "measured",
    names: Sequence[str] | None = None,
) -> Observations:
    """Make observations of arrays, frames or tables: the one argument of every method.

    Parameters
    ----------
    w
        ``(N, M)`` measurements; NaN or a masked cell marks a missing value. Or, without ``noise``,
        values that carry their errors: numbers of uncertainties, distributions of astropy
        (:doc:`/other_tools`). Observations are returned as they are.
    noise
        Standard deviations ``(M,)`` or ``(N, M)``, covariances ``(M, M)`` or ``(N, M, M)``,
        0.0 for exact rows, a :class:`~deconflow.noise.Noise`, or a torch distribution over
        ``M`` values; or a likelihood, as ``noise.poisson()`` for counts. Errors in a table find
        the columns of a table ``w`` by their names, as ``x_err``, and are converted to their
        units. Gaussian errors that are not quite known are learned:
        ``noise.gaussian(sd=..., scale="fit")``.
    projection
        ``(N, M, D)`` or ``(M, D)``, if what is measured is ``R v + n``.
    sample_weight
        ``(N,)`` row weights.
    groups
        ``(N,)`` labels, of numbers or text, the same for rows that belong together, such as those
        of one object: rows of a group are never split between a fit and the rows it is judged
        by. They count as rows all the same. Without groups, exact copies of rows are kept
        together, unless rounding explains them; ``numpy.arange(N)`` keeps none together.
    given
        ``(N, C)`` covariates that are known exactly, numbers or categories: the location and
        the spread of the true values are curves of these. ``"noise"`` for the logarithms of the
        rows' own errors; ``("noise", table)`` for both.
    limits
        ``(N, M)`` flags of values of which only a limit is known: -1 where what would have
        been measured lies below the number in ``w``, 1 where it lies above, 0 for a measured
        value; or a table, whose columns ``x`` or ``x_limit`` find those of a table ``w``. The
        noise of a limit is the error that its measurement would have had.
    selection
        The probability of a row to be seen, if not all are: a function of points ``(N, M)``,
        text such as ``"g < 18"``, an :class:`~deconflow.Efficiency`, or a
        :class:`~deconflow.Selection`. What is fitted is the density of all true values, seen or
        not, as far as the noise reaches beyond what is seen: :doc:`/measured`.
    selection_of
        What decides: ``"measured"`` for the measured values, ``"truth"`` for the true ones.
    names
        Names of the columns of an array.

    Examples
    --------
    >>> rows = observe([[1.0, 2.0], [3.0, float("nan")]], noise=[0.1, 0.2], names=["x", "y"])
    >>> rows.shape, sorted(rows.traits)
    ((2, 2), ['missing'])
    """
    if isinstance(w, Observations):
        facts = (noise, projection, sample_weight, groups, given, limits, selection, names)
        if any(fact is not None for fact in facts):
            raise TypeError(
                "Expected Observations alone, which hold all facts of their rows; got more. Give "
                "these to deconflow.observe."
            )
        return w
    if isinstance(w, RowStream):
        raise ValueError(
            "Expected rows in memory; got a RowStream. Use posterior_in_chunks, or a sample: "
            "stream.overview(100_000).sample."
        )
    table: Any = w
    with as_guest():
        plain, noise = plain_tables(table, noise)
        free = noise if isinstance(noise, FreeErrors) else None
        stated: Any = noise if free is None else free.said
        if noise is None:
            if limits is not None:
                raise ValueError(
                    "Expected noise with limits, the error that the measurement of a limit would "
                    "have had; got none. Pass noise=..., or noise=0.0 if there is none."
                )
            stated = 0.0
        data = Observations.from_arrays(
            plain,
            stated,
            projection=projection,
            weights=sample_weight,
            groups=groups,
            limits=limits,
        )
        if noise is None:
            warn_caller(
                "noise was not given, so w is taken as exact. Pass noise=..., or noise=0.0 to say "
                "so."
            )
        in_table = column_names(plain)
        own = in_table if names is None else names
        labels = Labels(
            None if own is None else tuple(str(name) for name in own),
            column_units(table),
            type(table),
            table.index if type(table).__module__.split(".")[0] == "pandas" else None,
            plain[:0],
            noise is not None,
            in_table is not None,
            limits is not None,
        )
        data = replace(data, labels=labels, uncertain=free)
        if given is not None:
            data = replace(data, covariates=Given.of(given, table, len(data)))
        if selection is not None:
            refuse("a selection", NOT_SELECTED, data.traits)
            if isinstance(selection, Selection) and hasattr(selection.columns, "iloc"):
                refuse_other_rows(table, selection.columns, "columns")
            data = replace(
                data, selection=as_rule(selection, selection_of, data.measured_names, data)
            )
        elif selection_of != "measured":
            raise ValueError(f"Expected a selection with selection_of={selection_of!r}; got none.")
        return data


def has_noise(w: Any, noise: Any) -> bool:
    """Whether noise is given: as an argument, by Observations, or by values that carry errors."""
    if isinstance(w, Observations):
        return w.labels.noise_given
    return noise is not None or parted(w, None)[1] is not None


#: Measured values of the sample that is in memory while all rows are passed over.
SAMPLE_VALUES = 3_000_000
COUNTING = "counting and sampling rows"


def sampled(stream: RowStream, noise: Any, facts: dict[str, Any], run: Run) -> Observations:
    """Pass over all rows once, and return some of them, checked as any rows to fit."""
    for name, value in facts.items():
        if value is not None:
            raise ValueError(
                f"Expected no {name} with a RowStream, whose rows have all that is known of "
                "them; got some. open_rows takes weights= and errors=."
            )
    if noise is not None:
        stream = stream.with_errors(noise)
    if stream.reader.columns.fit_errors:
        raise ValueError(
            "Expected errors that are known for rows beyond memory; got some to learn. Learn "
            "them from a sample, and give what was learned."
        )
    run.progress.begin(COUNTING, "rows", stream.n_rows)
    overview = stream.overview(
        max(1, SAMPLE_VALUES // len(stream.names)), run.stream_seed(), run.progress.advance
    )
    assert overview.sample is not None
    run.beyond = stream, overview
    rows = observe(overview.sample.w, **overview.sample.facts)
    units = list(stream.units.values())
    return replace(rows, labels=Labels(tuple(stream.names), units if any(units) else None))
