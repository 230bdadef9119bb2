"""Posteriors of many rows, some rows at a time, so that memory does not grow with the rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from deconflow.checks import check_integer, check_seed
from deconflow.estimators.observing import ObservesRows
from deconflow.estimators.validation import reaching
from deconflow.fits import FittedDensity, Origin, Posterior
from deconflow.frames import Units, refuse_other_units
from deconflow.guests import as_guest
from deconflow.observations import Observations, rows_counted_from
from deconflow.randomness import RandomState
from deconflow.streams import RowStream

Part = tuple[slice, Posterior]
"""Which rows, and their posterior."""


class AnswersInChunks(ObservesRows):
    """What an estimator answers about rows whose answers are too many for memory."""

    _column_names: list[str] | None
    _units: Units | None
    n_features_in_: int
    n_latent_: int

    @property
    @abstractmethod
    def _units_of_truth(self) -> Units | None:
        """Units of the truth's dimensions, if these are those that were measured."""

    def posterior_in_chunks(
        self,
        w: ArrayLike | RowStream,
        noise: Any = None,
        *,
        projection: ArrayLike | None = None,
        given: Any = None,
        limits: Any = None,
        n_samples: int = 100,
        n_proposals: int = 1000,
        random_state: RandomState = 0,
        chunk: int = 100_000,
    ) -> Iterator[Part]:
        """Walk through the posteriors of many rows, without keeping more than those of a chunk.

        The moments, quantiles and probabilities of closed forms are those of :meth:`posterior`, but
        for rounding. Draws are as good, and the same whenever rows, chunks and ``random_state``
        are; those of the first chunk are those that :meth:`posterior` has for its rows alone.

        Parameters
        ----------
        w
            ``(N, M)`` measurements, which are checked before the first chunk; or a
            :class:`~deconflow.RowStream`, whose rows are checked as they come. A stream leaves out
            rows that cannot be used, and has only those of this process.
        noise, projection, given, limits, n_samples, n_proposals, random_state
            As for :meth:`posterior`. A stream has the errors of its rows.
        chunk
            Rows at a time; a stream has chunks of its own.

        Yields
        ------
        slice, Posterior
            Which rows, and the posterior of these.

        Examples
        --------
        >>> import numpy as np
        >>> from deconflow import XDGMM
        >>> w = np.random.default_rng(0).normal(size=(500, 1))
        >>> model = XDGMM(1).fit(w, noise=[0.5])
        >>> means = np.empty_like(w)
        >>> for rows, posterior in model.posterior_in_chunks(w, noise=[0.5], chunk=200):
        ...     means[rows] = posterior.mean
        >>> bool(np.allclose(means, model.posterior(w, noise=[0.5]).mean))
        True
        """
        check_is_fitted(self)
        check_integer("chunk", chunk, 1)
        check_integer("n_samples", n_samples, 1)
        check_integer("n_proposals", n_proposals, 1)
        check_seed(random_state)
        draws = _Draws(n_samples, n_proposals, random_state)
        if isinstance(w, RowStream):
            self._refuse_beside_stream(projection=projection, given=given, limits=limits)
            return self._of_stream(self._known_stream(w, noise), draws)
        data = self._observe(w, noise, projection, given=given, limits=limits)
        return self._of_rows(data, Origin.of(w, self._units_of_truth), draws, chunk)

    def _of_rows(
        self, data: Observations, origin: Origin, draws: _Draws, chunk: int
    ) -> Iterator[Part]:
        """Walk through rows in memory."""
        density, first = self.density_, 0
        for part in data.chunks(chunk):
            rows = slice(first, first + len(part))
            with rows_counted_from(first):
                found = draws.posterior(density, part)
            yield rows, replace(found, origin=origin.rows(rows))
            first = rows.stop

    def _of_stream(self, stream: RowStream, draws: _Draws) -> Iterator[Part]:
        """Walk through the rows of a stream, which are checked as they come."""
        density, first = self.density_, 0
        for data in stream.chunks():
            with stream.named_errors():
                found = draws.posterior(density, self._answerable(data))
            found = replace(found, origin=Origin(units=self._units_of_truth))
            yield slice(first, first + len(data)), found
            first += len(data)

    def _refuse_beside_stream(self, **others: Any) -> None:
        """Raise for what rows of a stream do not have, be it said or expected by the model."""
        for name, value in others.items():
            if value is not None:
                raise ValueError(
                    f"Expected no {name} beside a RowStream, whose rows have all that is known of "
                    "them; got some. Ask about rows in memory."
                )
        knows = self._knowledge is not None and self._knowledge.covariates is not None
        projected = self.n_latent_ != self.n_features_in_
        for has, what in (
            (knows, "covariates"), (self._errors is not None, "errors to learn"),
            (projected, "projections"),
        ):  # fmt: skip
            if has:
                raise ValueError(
                    f"Expected a model without {what} for a RowStream; got one with some. Ask "
                    "about rows in memory."
                )

    def _known_stream(self, stream: RowStream, noise: Any) -> RowStream:
        """Refuse a stream of other columns or units than those of the fit."""
        names = self._measured_names
        named = self._column_names is not None or hasattr(self, "feature_names_in_")
        if stream.names != names if named else len(stream.names) != len(names):
            raise ValueError(
                f"Expected a stream of the columns of the fit, {', '.join(names)}; got "
                f"{', '.join(stream.names)}."
            )
        refuse_other_units([stream.units[name] for name in stream.names], self._units, names)
        return stream if noise is None else stream.with_errors(noise)

    def _answerable(self, data: Observations) -> Observations:
        """Check rows of a stream as any that are asked about."""
        with as_guest():
            return self._taken(reaching(self, data), self._bounds)


@dataclass
class _Draws:
    """How many draws each chunk gets, and by which seeds."""

    n_samples: int
    n_proposals: int
    random_state: RandomState
    _later: Any = None

    def posterior(self, density: FittedDensity, rows: Observations) -> Posterior:
        """Ask about the next chunk; it draws by other random numbers than those before it."""
        if self._later is None:
            self._later = check_random_state(self.random_state)
            return density.posterior(rows, self.n_samples, self.n_proposals, self.random_state)
        seed = int(self._later.randint(2**31 - 1))
        return density.posterior(rows, self.n_samples, self.n_proposals, seed)
