"""Posteriors of many rows, some rows at a time, so that memory does not grow with the rows."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sklearn.utils import check_random_state

from deconflow.core import EVERYTHING, refuse
from deconflow.fits import FittedDensity, Origin, Posterior
from deconflow.frames import refuse_other_units
from deconflow.guests import as_guest
from deconflow.models.fit import Engine, Fit
from deconflow.models.questions import ready
from deconflow.observations import Observations, rows_counted_from
from deconflow.randomness import RandomState
from deconflow.streams import RowStream

#: Which rows, and their posterior.
Part = tuple[slice, Posterior]


@dataclass
class Draws:
    """Numbers of draws for each chunk, and their seeds."""

    n_samples: int
    n_proposals: int
    random_state: RandomState
    _later: Any = None

    def posterior(self, density: FittedDensity, rows: Observations) -> Posterior:
        """Return the posterior of the next chunk, by other random numbers than those before it."""
        if self._later is None:
            self._later = check_random_state(self.random_state)
            return density.posterior(rows, self.n_samples, self.n_proposals, self.random_state)
        seed = int(self._later.randint(2**31 - 1))
        return density.posterior(rows, self.n_samples, self.n_proposals, seed)


def posteriors_in_chunks(fit: Fit, rows: Observations, draws: Draws, chunk: int) -> Iterator[Part]:
    """Walk through rows in memory, which are ready for the fit."""
    first = 0
    for part in rows.chunks(chunk):
        with rows_counted_from(first):
            found = draws.posterior(fit.density, part)
        origin = Origin(part.labels.kind, part.labels.index, fit.units)
        yield slice(first, first + len(part)), replace(found, origin=origin)
        first += len(part)


def posteriors_of_stream(
    fit: Fit, engine: Engine, stream: RowStream, noise: Any, facts: dict[str, Any], draws: Draws
) -> Iterator[Part]:
    """Walk through the rows of a stream, which are checked as they come."""
    if facts:
        raise ValueError(
            f"Expected no {next(iter(facts))} with a RowStream, whose rows have all that is known "
            "of them; got some. Ask about rows in memory."
        )
    refuse("a RowStream", EVERYTHING - {"covariates", "errors to learn", "projected"}, fit.traits)
    count = len(stream.names) if "projected" in fit.traits else len(fit.names)
    names = fit.labels.measured(count)
    unnamed = fit.labels.names is None and len(stream.names) == count
    if stream.names != names and not unnamed:
        raise ValueError(
            f"Expected a stream of the columns of the fit, {', '.join(names)}; got "
            f"{', '.join(stream.names)}."
        )
    refuse_other_units([stream.units[name] for name in stream.names], fit.labels.units, names)
    stream = stream if noise is None else stream.with_errors(noise)
    return _of_stream(fit, engine, stream, draws)


def _of_stream(fit: Fit, engine: Engine, stream: RowStream, draws: Draws) -> Iterator[Part]:
    first = 0
    for rows in stream.chunks():
        with stream.named_errors(), as_guest():
            found = draws.posterior(fit.density, ready(fit, engine, rows))
        found = replace(found, origin=Origin(units=fit.units))
        yield slice(first, first + len(rows)), found
        first += len(rows)
