"""The engine of XDGMM: Extreme Deconvolution."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from deconflow._types import AnyArray, Array, IntArray
from deconflow.checks import warn_caller
from deconflow.core import EVERYTHING, Run
from deconflow.engines.checks import refuse_unseen
from deconflow.engines.stream_fits import everything_of, fit_stream, folds_of_sample, in_memory
from deconflow.engines.xd_settings import (
    Start,
    as_settings,
    describe_average,
    given_start,
    is_auto,
    minibatches,
)
from deconflow.fits import MixtureFit, Replicates, clear_errors
from deconflow.mixtures import GaussianMixture, mix
from deconflow.observations import Observations
from deconflow.xd import (
    FITTING,
    N_FOLDS,
    Adam,
    EMResult,
    FitSettings,
    PreparedData,
    fit_averaged,
    fit_minibatch,
    lay_out,
    row_weights,
)


@dataclass(frozen=True)
class XDSolution:
    """Mixtures that are averaged, and how they were found.

    Attributes
    ----------
    mixtures : list of GaussianMixture
        One for each fold that is left out; a single one without an average.
    converged : bool
        Whether all of them converged.
    n_iter : int
        Number of passes over the rows.
    log_likelihood : float
        Mean log-likelihood of the rows; of an average that of the rows left out.
    history : list of float
        The same for every step.
    table : dict of arrays
        What was tried, and its share; empty for a single fit.
    """

    mixtures: list[GaussianMixture]
    converged: bool
    n_iter: int
    log_likelihood: float
    history: list[float]
    table: dict[str, AnyArray] = field(default_factory=dict)

    def density(self, names: list[str], threads: int | None) -> MixtureFit:
        """Return the average, with its parts as replicates."""
        density = MixtureFit(self.mixtures, names, threads)
        parts = density.averaged()
        if parts:
            density.replicates = Replicates(parts, "folds")
        return density

    @property
    def counts(self) -> IntArray:
        """Number of components of each mixture."""
        return np.array([each.n_components for each in self.mixtures])

    @property
    def n_components(self) -> int:
        """The most frequent number of components."""
        return int(np.bincount(self.counts).argmax())

    def words(self) -> str:
        """Return what was fitted, and what it was chosen from."""
        if len(self.mixtures) > 1:
            return describe_average(self.table, len(self.mixtures))
        count = self.n_components
        return f"Gaussian mixture with {count} component{'s' * (count > 1)}."

    def attributes(self) -> dict[str, Any]:
        """Return what XDGMM shows."""
        whole = mix(self.mixtures)
        found = {
            "weights_": whole.weights,
            "means_": whole.means,
            "covariances_": whole.covariances,
            "mixtures_": self.mixtures,
            "component_counts_": self.counts,
            "n_components_": self.n_components,
            "converged_": self.converged,
            "n_iter_": self.n_iter,
            "lower_bound_": self.log_likelihood,
            "lower_bounds_": np.array(self.history),
        }
        return found | ({"selection_": self.table} if self.table else {})


class XD:
    """Extreme Deconvolution with the settings of an estimator."""

    name = "XDGMM"
    takes = EVERYTHING
    solution = XDSolution
    samples = False

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        if not isinstance(settings.init, str) or settings.fixed is not None:
            # both are in the units of rows that these two would change
            self.takes = EVERYTHING - {"bounds", "covariates"}
            self.name = "init or fixed"

    def fit(self, rows: Observations, run: Run) -> XDSolution:
        """Fit mixtures to rows."""
        refuse_unseen(rows)
        auto = is_auto(self.settings) and len(rows) > 1
        with clear_errors():
            if run.beyond is not None:
                found = self._beyond_memory(rows, run)
            elif auto:
                found = self._climb(rows, run, run.generator())
            else:
                found = _single(self._fit(rows, run))
        self._check(found)
        return found

    def _fit(self, rows: Observations, run: Run) -> EMResult:
        """Fit a mixture of as many components as were asked for."""
        count = 1 if is_auto(self.settings) else int(self.settings.n_components)
        # With bounds every component has a mirror image, which is a component of the same fit.
        settings, start = self._settings(count * rows.images, rows)
        rng, batches = run.generator(), minibatches(self.settings)
        if batches is not None:
            adam = Adam.start(rows, settings, rng)
            return fit_minibatch(adam, rows, settings.stopping, batches, rng, run.progress)
        run.progress.begin(FITTING)
        return PreparedData(rows).fit_best(settings, self._starts(start), rng)

    def _beyond_memory(self, sample: Observations, run: Run) -> XDSolution:
        """Fit all rows of a stream, of which a sample is in memory."""
        assert run.beyond is not None
        stream, overview = run.beyond
        if minibatches(self.settings) is not None:
            raise ValueError(
                "Expected method='anderson' with rows beyond memory; got "
                f"{self.settings.method!r}. Leave it out."
            )
        rng = np.random.RandomState(run.stream_seed())
        if not is_auto(self.settings):
            settings, start = self._settings(int(self.settings.n_components), sample)
            return _single(fit_stream(
                stream, overview, sample, settings, n_init=self._starts(start), rng=rng,
                progress=run.progress,
            ))  # fmt: skip
        if in_memory(overview):
            return self._climb(sample, run, rng)
        everything = everything_of(
            stream, overview, sample, N_FOLDS, threads=run.threads, progress=run.progress
        )
        folds = folds_of_sample(overview, N_FOLDS)
        return self._climb(sample, run, rng, folds=folds, everything=everything)

    def _climb(
        self, rows: Observations, run: Run, rng: np.random.RandomState, **beyond: Any
    ) -> XDSolution:
        """Leave the number of components and the floor to the rows.

        With ``beyond`` these are a sample of rows beyond memory.
        """
        lay_out(rows)  # so that an error counts the rows of all data, not of a fold
        settings = as_settings(self.settings, 1)
        fit = fit_averaged(rows, settings, rng, progress=run.progress, **beyond)
        value = float(np.average(fit.held_out, weights=row_weights(rows)))
        return XDSolution(list(fit.mixtures), fit.converged, fit.n_iter, value, [value], fit.table)

    def _settings(self, count: int, rows: Observations) -> tuple[FitSettings, Start]:
        """Return the settings of a single fit, and what is given of its start."""
        settings = as_settings(self.settings, count)
        start = given_start(self.settings, count, rows.latent_dim)
        return (settings if start.empty else replace(settings, complete=start.complete)), start

    def _starts(self, start: Start) -> int:
        """Return how many starts to try: one where it is given."""
        return 1 if start.whole else self.settings.n_init

    def _check(self, found: XDSolution) -> None:
        """Raise for steps that led nowhere; warn where they had not ended."""
        if not all(_finite(each) for each in found.mixtures):
            raise ValueError(
                "Expected steps that lead to finite weights, means and covariances; got NaN or "
                "inf. Lower learning_rate, set a floor, or look for rows far from all others."
            )
        if not found.converged and self.settings.tol > 0:
            advice = f"EM did not converge in {self.settings.max_iter} steps. Raise max_iter or "
            advice += "tol, or set a floor."
            batches = minibatches(self.settings)
            if batches is not None:
                advice = f"Minibatches still gained after {batches.epochs} epochs. Raise epochs."
            warn_caller(advice, ConvergenceWarning)


def _single(result: EMResult) -> XDSolution:
    """Return the solution of one mixture."""
    value, history = result.log_likelihood, list(result.history)
    return XDSolution([result.mixture], result.converged, result.n_iter, value, history)


def _finite(mixture: GaussianMixture) -> bool:
    arrays: tuple[Array, ...] = mixture.weights, mixture.means, mixture.covariances
    return all(np.isfinite(array).all() for array in arrays)
