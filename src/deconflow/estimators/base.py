"""The shell of all estimators: scikit-learn's interface around observations, engines and fits."""

import numbers
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import validate_data

from deconflow import models
from deconflow._types import Array
from deconflow.answers import (
    Regression,
    SelfTest,
    Statistics,
    regression_of,
    run_self_test,
    statistics_of,
)
from deconflow.certificate import Certificate
from deconflow.checks import (
    as_floats,
    check_choice,
    check_integer,
    check_number,
    check_seed,
    refuse_where,
)
from deconflow.classical import COARSEST, FINEST
from deconflow.core import Run, has_noise, observe, progress_of, sampled
from deconflow.engines import FEWEST_INTERVALS, MOST_INTERVALS
from deconflow.evaluation import Estimate
from deconflow.extras import need_plots
from deconflow.files import as_path
from deconflow.fits import FittedDensity, Posterior
from deconflow.frames import column_units, plain_table, refuse_other_names, refuse_other_units
from deconflow.guests import as_guest, check_device, computing
from deconflow.models import Fit
from deconflow.observations import Observations, rows_counted_from
from deconflow.randomness import RandomState
from deconflow.reductions import ErrorsFound, Known, PartsFound
from deconflow.saving import read_folder
from deconflow.streams import RowStream

#: Imported by name when a picture is asked for: it is a higher layer, and needs an extra.
PLOTS = "deconflow.plots"
#: Searches of scikit-learn take Observations, and need no metadata routing.
NO_ROUTING = {"w": UNUSED, "noise": UNUSED}
#: Facts of rows that pictures take with them.
ROW_FACTS = ("projection", "sample_weight", "groups")
KINDS = ("corner", "marginals", "row", "before_after", "diagnostics")
#: What a parameter of this name must be, in every estimator that has one.
PARAMETERS: dict[str, Callable[[str, Any], Any]] = {
    "random_state": lambda _, value: check_seed(value),
    "device": lambda _, value: check_device(value),
    "checkpoint": lambda name, value: as_path(value, name),
    "n_jobs": lambda name, value: check_integer(name, 1 if value == -1 else value, 1),
    **dict.fromkeys(
        (
            "max_iter",
            "n_init",
            "n_members",
            "n_chains",
            "n_snapshots",
            "n_draws",
            "n_layers",
            "hidden",
            "base_components",
            "batch_size",
            "epochs",
        ),
        partial(check_integer, minimum=1),
    ),
    "n_sweeps": partial(check_integer, minimum=3),
    "n_intervals": partial(check_integer, minimum=FEWEST_INTERVALS, maximum=MOST_INTERVALS[1]),
    "level": partial(check_integer, minimum=COARSEST, maximum=FINEST),
    "tol": partial(check_number, low=0.0),
    "learning_rate": partial(check_number, low=0.0, open_low=True),
    "validation_fraction": partial(check_number, low=0.0, high=1.0),
}


class DensityEstimator(DensityMixin, BaseEstimator):
    """An estimator of the density of true values, from measurements with known noise.

    Every method that takes rows takes :class:`~deconflow.Observations`, or arrays and facts as
    :func:`deconflow.observe` does: ``(w, noise=..., limits=..., ...)``.

    Attributes
    ----------
    fit_ : Fit
        What was learned.
    density_ : FittedDensity
        The density of the true values, in the units of the data.
    known_ : list of str
        Sentences on what was known or learned besides the density.
    errors_ : LearnedErrors or None
        What was learned of the errors.
    seen_share_ : float
        Share of all rows, seen or not, that the selection lets through.
    atom_weights_ : array
        Share of the true values at each of the atoms.
    background_share_ : float
        Share of the fitted rows that is background.
    part_errors_ : array
        Standard errors of the shares of atoms, and of the background after them; NaN with
        covariates and for counts, where there are none.
    n_features_in_ : int
        Number of columns of ``w``.
    """

    _engine_type: ClassVar[type[Any]]

    __metadata_request__fit = NO_ROUTING
    __metadata_request__score = NO_ROUTING

    fit_: Fit
    density_: FittedDensity
    n_features_in_: int

    def __init__(self, **parameters: Any) -> None:
        self.__dict__.update(parameters)

    def _check_parameters(self) -> None:
        """Raise where a parameter makes no sense, before any work; None does as the default."""
        for name, parameter in signature(type(self)).parameters.items():
            value = getattr(self, name)
            if name in PARAMETERS and (value is not None or parameter.default is not None):
                PARAMETERS[name](name, value)
        if "checkpoint" in vars(self) and not (
            self.checkpoint is None or isinstance(self.random_state, numbers.Integral)
        ):
            raise ValueError(
                "Expected an integer random_state for a checkpoint, so that the fit can go on; "
                f"got {self.random_state!r}."
            )
        self._check_together()

    def _check_together(self) -> None:
        """Raise where parameters make no sense together."""

    def fit(
        self, w: ArrayLike | Observations | RowStream, y: None = None, *, noise: Any = None,
        **facts: Any,
    ) -> Self:  # fmt: skip
        """Fit the density of the true values.

        Parameters
        ----------
        w
            Observations; or ``(N, M)`` measurements, with ``noise`` and other facts as for
            :func:`deconflow.observe`; or rows that are too many for memory: a
            :class:`~deconflow.RowStream` (:doc:`/many_rows`).
        y
            Ignored.
        noise, **facts
            See :func:`deconflow.observe`.
        """
        self._check_parameters()
        refuse_noise_as_y(w, y, noise)
        # The engine has these parameters as they are now, which nobody changes afterwards.
        engine = self._engine_type(SimpleNamespace(**self.get_params(deep=False)))
        n_jobs = getattr(self, "n_jobs", None)
        with computing(n_jobs), progress_of(getattr(self, "verbose", False)) as p:
            run = Run(getattr(self, "random_state", 0), n_jobs, p)
            known = Known(**{each.name: getattr(self, each.name, None) for each in fields(Known)})
            if isinstance(w, RowStream):
                models.refuse_beyond_memory(engine, known)
                rows = sampled(w, noise, facts, run)
            else:
                rows = observe(w, noise, **facts)
            fit = models.fit_rows(rows, engine, known, run)
            self._take(self._finished(fit, rows, run))
            self._validate(rows, reset=True)
        return self

    def _finished(self, fit: Fit, rows: Observations, run: Run) -> Fit:
        """Do what a fit does last, with the rows as they came."""
        return fit

    def _take(self, fit: Fit) -> None:
        """Show what was learned, and nothing of another fit."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        self.fit_, self.density_, self.known_ = fit, fit.density, fit.words()
        errors, parts = fit.found(ErrorsFound), fit.found(PartsFound)
        self.errors_ = None if errors is None else errors.errors
        self.seen_share_ = fit.seen_share
        self.atom_weights_ = np.empty(0) if parts is None else parts.atom_weights
        self.part_errors_ = np.empty(0) if parts is None else parts.errors
        self.background_share_ = 0.0 if parts is None else parts.background_share
        self.parameters_ = self.get_params()
        for name, value in fit.solution.attributes().items():
            setattr(self, name, value)

    def describe(self) -> str:
        """Return one line on what was fitted."""
        return self.fit_.solution.words()

    def _rows(self, w: Any, noise: Any, facts: dict[str, Any]) -> Observations:
        """Return rows that a method is asked about, as the fit needs them."""
        if (
            self.fit_.labels.noise_given
            and noise is None
            and not isinstance(w, RowStream)
            and not has_noise(w, None)
        ):
            raise ValueError(
                "Expected noise, because the model was fitted with noise; got none. Pass "
                "noise=..., or Observations, which scikit-learn's searches take as they are: "
                "search.fit(deconflow.observe(w, noise=...))."
            )
        rows = observe(w, noise, **facts)
        self._validate(rows, reset=False)
        with as_guest():
            return models.ready(self.fit_, self._engine_type, rows)

    def _validate(self, rows: Observations, *, reset: bool) -> None:
        """Let scikit-learn compare shapes and names with those of the fit, or take them from it."""
        header = rows.labels.header
        header = np.empty((0, rows.dim)) if header is None else header
        try:
            validate_data(self, header, reset=reset, skip_check_array=True)
        except ValueError as error:
            raise ValueError(
                f"Expected w with the columns of the fit; got others. {error}"
            ) from error

    def score_samples(self, v: Any) -> Array:
        """Log density ``log p(v)`` of true values ``(N, D)``, as ``(N,)``.

        The density of *measurements* is :meth:`log_marginal`. With atoms it is that of the
        rest, with its share: an atom has no density. With covariates it is that of the mix which
        the fitted rows have; for one value of them there is ``density_.given(x)``.
        """
        units, v, fit = column_units(v), plain_table(v, "v"), self.fit_
        if "projected" not in fit.traits and np.ndim(v) == 2:
            validate_data(self, v[:0], reset=False, skip_check_array=True)
        refuse_other_names(v, fit.names)
        refuse_other_units(units, fit.units, fit.names)
        values = as_floats(v, "v")
        if values.ndim != 2 or values.shape[1] != len(fit.names):
            raise ValueError(f"Expected v of shape (N, {len(fit.names)}); got {values.shape}.")
        advice = "A density has no value there."
        refuse_where(~np.isfinite(values), "finite values in v", got="NaN or inf", advice=advice)
        return self.density_.log_prob(values)

    def log_marginal(
        self, w: ArrayLike | Observations, noise: Any = None, *, n_samples: int | None = None,
        random_state: RandomState = 0, **facts: Any,
    ) -> Estimate:  # fmt: skip
        """Log density ``log p(w)`` of each measurement, with its standard error and bias.

        For a limit it is the log probability that a measurement lies beyond it.

        Parameters
        ----------
        w, noise, **facts
            As for :meth:`fit`.
        n_samples
            Draws or points per row where there is no closed form; None for the usual number.
        random_state
            Seed of the draws.
        """
        check_draws(random_state, n_samples=n_samples)
        rows = self._rows(w, noise, facts)
        return self.density_.log_marginal(rows, n_samples, random_state)

    def score_observations(
        self, w: ArrayLike | Observations, noise: Any = None, **facts: Any
    ) -> Array:
        """Log density ``log p(w)`` of each measurement; see :meth:`log_marginal`."""
        return self.log_marginal(w, noise, **facts).log_p

    def score(
        self, w: ArrayLike | Observations, y: None = None, *, noise: Any = None, **facts: Any
    ) -> float:
        """Mean of ``log p(w)`` over the measurements; not that of ``log p(v)``."""
        refuse_noise_as_y(w, y, noise)
        return float(self.score_observations(w, noise, **facts).mean())

    def p_values(
        self, w: ArrayLike | Observations, noise: Any = None, *, n_draws: int = 199,
        random_state: RandomState = 0, **facts: Any,
    ) -> Array:  # fmt: skip
        r"""Return how unusual each measurement is, given its error: a p-value per row, ``(N,)``.

        .. math:: p_i = P(T(w') \leq T(w_i)), \qquad w' = R_i v' + n', \quad v' \sim p(v), \quad
                  n' \text{ from the noise of row } i

        with row ``i``'s missing values, too. ``log p(w)`` is low for every row with large errors;
        a p-value is not. If the model and the errors are right, these are uniform between 0 and 1:
        one row in a thousand has 0.001 or less. :func:`deconflow.evaluation.unusual_rows` counts
        how many are more than that.

        ``T`` is ``log p(w)`` where that is a closed form of few Gaussians: mixtures of up to 64,
        under Gaussian noise. Elsewhere it is that of 12 Gaussians fitted to draws of the model,
        with Gaussian noise of the same mean and covariance. Any ``T`` gives p-values that are
        uniform under the model, because ``w'`` comes from the model and the noise themselves.
        Measurements of which only a limit is known are drawn first, beyond it, from the model.

        Parameters
        ----------
        w, noise, **facts
            As for :meth:`fit`.
        n_draws
            Draws ``w'`` of each row, at least; rows among the most unusual get up to 9,999.
        random_state
            Seed of the draws. The p-value of a row does not depend on the other rows.
        """
        check_draws(random_state, n_draws=n_draws)
        rows = self._rows(w, noise, facts)
        return models.p_values(self.fit_, rows, n_draws, random_state)

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Array:
        """Draw true values ``(n_samples, D)`` from the density.

        Parameters
        ----------
        n_samples
            How many.
        random_state
            Seed of the draws.
        """
        check_integer("n_samples", n_samples, 1)
        return self.density_.sample(n_samples, random_state)

    def posterior(
        self, w: ArrayLike | Observations, noise: Any = None, *, n_samples: int = 100,
        n_proposals: int = 1000, random_state: RandomState = 0, **facts: Any,
    ) -> Posterior:  # fmt: skip
        """Posterior of each row's true value, exact where there is a closed form.

        For posteriors that are too many for memory there is :meth:`posterior_in_chunks`.

        Parameters
        ----------
        w, noise, **facts
            As for :meth:`fit`.
        n_samples
            Draws to keep for each row.
        n_proposals
            Draws that are weighed for each row, where there is no closed form.
        random_state
            Seed of the draws.
        """
        check_draws(random_state, n_samples=n_samples, n_proposals=n_proposals)
        rows = self._rows(w, noise, facts)
        found = self.density_.posterior(rows, n_samples, n_proposals, random_state)
        return replace(found, origin=replace(rows.labels, units=self.fit_.units))

    def posterior_in_chunks(
        self, w: ArrayLike | Observations | RowStream, noise: Any = None, *, n_samples: int = 100,
        n_proposals: int = 1000, random_state: RandomState = 0, chunk: int = 100_000, **facts: Any,
    ) -> Iterator[tuple[slice, Posterior]]:  # fmt: skip
        """Walk through the posteriors of many rows, without keeping more than those of a chunk.

        The moments, quantiles and probabilities of closed forms are those of :meth:`posterior`, but
        for rounding. Draws are as good, and the same whenever rows, chunks and ``random_state``
        are; those of the first chunk are those that :meth:`posterior` has for its rows alone.

        Parameters
        ----------
        w
            Rows as for :meth:`fit`, which are checked before the first chunk; or a
            :class:`~deconflow.RowStream`, whose rows are checked as they come. A stream leaves out
            rows that cannot be used, and has only those of this process.
        noise, n_samples, n_proposals, random_state, **facts
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
        check_integer("chunk", chunk, 1)
        check_draws(random_state, n_samples=n_samples, n_proposals=n_proposals)
        draws = {"n_samples": n_samples, "n_proposals": n_proposals, "random_state": random_state}
        if isinstance(w, RowStream):
            stream = models.stream_of_fit(self.fit_, w, noise, facts)
            ready = partial(models.ready, self.fit_, self._engine_type)
            errors = stream.named_errors
            return models.posteriors(self.fit_, stream.chunks(), ready, lambda _: errors(), draws)
        chunks = self._rows(w, noise, facts).chunks(chunk)
        return models.posteriors(self.fit_, chunks, lambda rows: rows, rows_counted_from, draws)

    def condition(
        self, values: ArrayLike | Observations, columns: Any, noise: Any = None, *,
        n_samples: int = 100, random_state: RandomState = 0,
    ) -> Posterior:  # fmt: skip
        """Density of the other columns given some, for many rows at once.

        Parameters
        ----------
        values
            ``(N, d)`` known values; NaN for one that a row does not know.
        columns
            Which ``d`` columns these are, by name or number.
        noise
            Their noise, as in :meth:`fit`; None or 0.0 if they are exact.
        n_samples, random_state
            As for :meth:`posterior`.

        Returns
        -------
        Posterior
            Over the other columns, in their order.
        """
        check_draws(random_state, n_samples=n_samples)
        with as_guest():
            rows = observe(values, noise if has_noise(values, noise) else 0.0)
            return models.condition(self.fit_, rows, columns, n_samples, random_state)

    def statistics(self, w: Any = None, noise: Any = None, **facts: Any) -> Statistics:
        """Return the density in a few numbers: mean, spread, quantiles and correlations.

        With standard errors where the model has replicates, and with those of the measurements,
        if these are given. ``print`` shows a table. With covariates the numbers are those of the
        mix which the fitted rows have; with atoms, of all true values.

        Parameters
        ----------
        w, noise, **facts
            As for :meth:`fit`; noise is not needed. Limits are no measured values, and are left
            out.
        """
        if w is None and (facts or noise is not None):
            raise ValueError(f"Expected w with {', '.join(facts) or 'noise'}; got none.")
        with computing(getattr(self, "n_jobs", None)):
            if w is None:
                return statistics_of(self.density_, None, None)
            rows = observe(w, noise if has_noise(w, noise) else 0.0, **facts)
            return statistics_of(self.density_, *models.measured_values(self.fit_, rows))

    def regress(
        self, target: Any, on: Any, w: Any = None, noise: Any = None, *, n_refits: int = 50,
        random_state: RandomState = 0, **facts: Any,
    ) -> Regression:  # fmt: skip
        """Regress a column of the true values on others, whatever errors these have.

        Mean, quantiles and intrinsic scatter of the true ``target`` given the true ``on``, and
        their best linear relation: :doc:`/regression`. Standard errors come from refits to
        the rows, if these are given, with random weights (the Bayesian bootstrap): of the
        mixtures that the model averages, or of a mixture of Gaussians in place of a model that
        is none. Without rows they come from the model's replicates, where it has some.

        Parameters
        ----------
        target
            The column to predict, by name or number.
        on
            One or more columns to predict it from, by name or number.
        w, noise, **facts
            As for :meth:`fit`: the rows that were fitted, which a model does not keep.
        n_refits
            How many refits; each takes a fraction of a fit.
        random_state
            Seed of the weights.
        """
        check_integer("n_refits", n_refits, 2)
        check_seed(random_state)
        if w is None and (facts or noise is not None):
            raise ValueError(f"Expected w with {', '.join(facts) or 'noise'}; got none.")
        rows = None if w is None else self._rows(w, noise, facts)
        if rows is not None:
            rows = models.refitted_rows(self.fit_, rows, "a regression with refits")
        with computing(getattr(self, "n_jobs", None)):
            return regression_of(self.fit_, target, on, rows, n_refits, random_state)

    def certify(
        self, w: Any, noise: Any = None, *, random_state: RandomState = 0, **facts: Any
    ) -> Certificate:
        """Return how far to trust this fit, from the rows that it was fitted to.

        Simulated rows are compared with the real ones, other distributions of the noise with the
        stated one, and the rows are examined: :doc:`/certificate`. Nothing of the fit changes.
        Measurements of which only a limit is known are drawn first, beyond it, from the model.

        Parameters
        ----------
        w, noise, **facts
            As for :meth:`fit`.
        random_state
            Seed of the simulation.
        """
        check_seed(random_state)
        rows = self._rows(w, noise, facts)
        with computing(getattr(self, "n_jobs", None)):
            return models.certificate(self.fit_, rows, random_state)

    def plot(
        self, kind: str = "marginals", w: Any = None, noise: Any = None, **options: Any
    ) -> Any:
        """Draw a picture with matplotlib: :doc:`/pictures` shows each kind.

        Parameters
        ----------
        kind
            ``"marginals"``: the density of each column, with its band. ``"corner"``: every pair of
            columns with the measurements ``w``. ``"row"``: the posterior of each of the ``rows``.
            ``"before_after"``: measurements, true values, and these with noise again.
            ``"diagnostics"``: simulated measurements compared with the real ones.
        w, noise
            As for :meth:`fit`; a model does not keep its rows. Marginals need neither, a corner
            only ``w``, unless it shows posteriors of ``rows``.
        **options
            Keywords of the function of this name in :mod:`deconflow.plots`, such as ``rows``,
            ``columns``, ``axes`` and ``figsize``.

        Returns
        -------
        array of Axes
            The panels.

        Examples
        --------
        >>> import numpy as np
        >>> from deconflow import XDGMM
        >>> w = np.random.default_rng(0).normal(size=(500, 2))
        >>> axes = XDGMM(1).fit(w, noise=0.5).plot("marginals", w, figsize=(6, 3))
        >>> axes.shape
        (2,)
        """
        need_plots()
        check_choice("kind", kind, KINDS)
        facts = {name: options.pop(name) for name in ROW_FACTS if name in options}
        if facts:
            w, noise = observe(w, noise, **facts), None
        return getattr(import_module(PLOTS), kind)(self, w, noise, **options)

    def save(self, path: str | Path, extra_files: dict[str, str] | None = None) -> None:
        """Write the fitted model to a folder, as JSON and safetensors.

        ``extra_files``, texts by their names, are put into the same folder.
        """
        models.write_model(path, self, extra_files)

    @classmethod
    def load(cls, path: str | Path, **changes: Any) -> Self:
        """Read a model that :meth:`save` wrote; ``changes`` replace parameters, as ``device``.

        A model of a GPU that is not here is loaded to the processor, as its ``device`` shows.
        """
        with as_guest():
            return models.read_model(read_folder(path), cls, changes)

    def _remember(self, n_features: int) -> None:
        """Take the columns of a model that was saved."""
        self.n_features_in_, labels = n_features, self.fit_.labels
        if labels.of_table:
            self.feature_names_in_ = np.array(labels.names, dtype=object)

    def __getattr__(self, name: str) -> Any:
        """Raise for what is not there, which a fit would have learned if it ends so."""
        message = f"{type(self).__name__} has no attribute {name!r}."
        if "fit_" in vars(self) or not name.endswith("_") or name.startswith("_"):
            raise AttributeError(message)
        raise NotFittedError(f"{message} This estimator is not fitted yet. Call fit before.")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = "missing" in self._engine_type.takes
        return tags


def self_test(
    model: DensityEstimator,
    w: Any,
    noise: Any = None,
    *,
    n_tables: int = 5,
    random_state: RandomState = 0,
    verbose: bool = False,
    **facts: Any,
) -> SelfTest:
    """Fit a model again to tables simulated from it, and measure how well it is recovered.

    The tables have the noise, missing values, projections and weights of these rows, and the
    refits have the settings of the model. An interrupt ends with the tables that are done.

    Parameters
    ----------
    model
        A fitted estimator.
    w, noise, **facts
        The rows that were fitted, as for ``fit``: a model does not keep them.
    n_tables
        How many tables to simulate; each takes as long as a fit.
    random_state
        Seed of tables and refits.
    verbose
        Whether to show progress.

    Examples
    --------
    >>> import numpy as np
    >>> from deconflow import XDGMM, self_test
    >>> w = np.random.default_rng(0).normal(size=(500, 1))
    >>> found = self_test(XDGMM(1).fit(w, noise=[0.5]), w, noise=[0.5], n_tables=2)
    >>> found.passed
    True
    """
    check_draws(random_state, n_tables=n_tables)
    rows = models.simulated_rows(model.fit_, model._rows(w, noise, facts), "a self-test")
    with as_guest():
        return run_self_test(model, rows, n_tables, random_state, shown=verbose)


def refuse_noise_as_y(w: Any, y: Any, noise: Any) -> None:
    """Catch ``fit(w, noise)``, which would take the noise for labels that nobody reads."""
    if noise is None and y is not None and not _like_labels(y, w):
        raise TypeError("Expected noise by its name, as in fit(w, noise=...); got it as y.")


def _like_labels(y: Any, w: Any) -> bool:
    """Whether something is a label per row, which scikit-learn may pass to any estimator."""
    try:
        array = np.asarray(y)
    except (TypeError, ValueError):
        return False
    if array.ndim != 1 or array.size == 0 or array.dtype.kind != "f":
        return array.ndim == 1
    rows = w.shape[0] if hasattr(w, "shape") else len(w)
    return len(array) == rows and bool((array == np.round(array)).all())  # classes as floats


def check_draws(random_state: RandomState, **counts: int | None) -> None:
    """Raise unless a seed is one and counts are positive; None is the usual number."""
    check_seed(random_state)
    for name, value in counts.items():
        if value is not None:
            check_integer(name, value, 1)
