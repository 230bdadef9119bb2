"""Methods of every estimator, as functions of a fit and observations."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from deconflow._types import Array
from deconflow.answers import completed
from deconflow.certificate import LOW_SIZE, Certificate
from deconflow.copies import keep_copies_together
from deconflow.core import EVERYTHING, refuse, refuse_other_traits
from deconflow.fits import FittedDensity, GivenFit, PartsFit, Posterior, column_numbers
from deconflow.frames import refuse_other_names, refuse_other_units
from deconflow.guests import as_guest
from deconflow.models.fit import Engine, Fit
from deconflow.noise import LimitedNoise
from deconflow.observations import Observations
from deconflow.randomness import RandomState, isolated_rng
from deconflow.reductions import (
    CurvesFound,
    ErrorsFound,
    Folding,
    PartsFound,
    completed_by,
    within,
)
from deconflow.streams import RowStream
from deconflow.trust import Case, find_doubts
from deconflow.xd import row_weights

#: Stage of the progress bar.
CHECKING = "checking the fit"
SCORED_ROWS, POSTERIOR_ROWS = 1000, 200
OF_FITTED_ROWS = ("fitted", "fitted_error", "fitted_rows", "fitted_of")
#: Draws of a model that say how far its true values reach.
DRAWS_FOR_REACH = 1000
#: Traits that rows must have if those of the fit had them.
OF_THE_FIT = frozenset({"limits"})
#: Traits that rows must not have unless those of the fit had them.
NOT_NEW = frozenset({"covariates", "errors to learn"})
#: Traits of rows that can be simulated from a model.
SIMULATED = frozenset({"missing", "projected", "counts", "bounds", "atoms", "background"})


def ready(fit: Fit, engine: type[Engine], rows: Observations) -> Observations:
    """Return rows as the fit needs them, or raise where they are of another kind."""
    refuse_other_labels(fit, rows)
    refuse(engine.name, engine.takes, rows.traits)
    must = (OF_THE_FIT & fit.traits) | (NOT_NEW & rows.traits)
    refuse_other_traits(fit.traits, rows.described, must)
    if rows.latent_dim != len(fit.names):
        raise ValueError(
            f"Expected true values of {len(fit.names)} dimensions, as in fit; got a projection "
            f"from {rows.latent_dim}."
        )
    rows = as_fitted(fit, rows)
    if isinstance(rows.noise, LimitedNoise):  # single rows do not show how far these reach
        draws = fit.density.sample(DRAWS_FOR_REACH, 0)
        onto = np.asarray(rows.projections())[:: 1 + len(rows) // 100]
        clean = np.einsum("nmd,kd->nkm", onto, draws).reshape(-1, rows.dim)
        rows = replace(rows, noise=rows.noise.for_truths(rows.w, clean))
    return rows


def as_fitted(fit: Fit, rows: Observations) -> Observations:
    """Change rows as those of the fit were changed before its engine saw them."""
    for each in fit.learned:
        rows = each.rows(rows)
    return within(rows, fit.known.bounds)


def refuse_other_labels(fit: Fit, rows: Observations) -> None:
    """Raise for rows whose columns have other names or units than those of the fit."""
    own, names = rows.labels.names, fit.labels.names
    if own and names and own != names:
        raise ValueError(
            f"Expected the columns {', '.join(names)}, as in the fit and in this order; got "
            f"{', '.join(own)}. Choose and order them in this way, or pass arrays."
        )
    refuse_other_units(rows.labels.units, fit.labels.units, rows.measured_names)


def p_values(fit: Fit, rows: Observations, n_draws: int, random_state: RandomState) -> Array:
    """Return how unusual each row is, given its error."""
    with isolated_rng(int(check_random_state(random_state).randint(2**30))):
        rows = completed(fit.density, rows)
    return fit.density.p_values(rows, n_draws, random_state)


def condition(
    fit: Fit, rows: Observations, columns: Any, n_samples: int, random_state: RandomState
) -> Posterior:
    """Return the density of the other columns given rows that measure only some."""
    given = column_numbers(columns, fit.names)
    names = [fit.names[d] for d in given]
    if len(given) == len(fit.names):
        raise ValueError("Expected some columns, but not all, to condition on; got all.")
    if rows.dim != len(given):
        raise ValueError(
            f"Expected values of shape (N, {len(given)}), one per column that is given; "
            f"got {rows.shape}."
        )
    if fit.units:
        refuse_other_units(rows.labels.units, [fit.units[d] for d in given], names)
    refuse_other_names(SimpleNamespace(columns=rows.labels.names or ()), names)
    refuse("columns to condition on", SIMULATED - {"projected"}, rows.traits)
    bounds = fit.known.bounds
    rows = within(rows, None if bounds is None else bounds.marginal(given))
    return fit.density.condition(rows, given, n_samples, random_state)


def criterion(fit: Fit, rows: Observations, n_parameters: int, penalty: Any) -> float:
    """Return an information criterion: a penalty less twice the log-likelihood.

    Rows count by their weights; where rows were selected, each has its density among those seen.
    """
    refuse("an information criterion", SIMULATED - {"bounds", "atoms", "background"} | {
        "limits", "selected", "errors to learn"}, fit.traits | fit.known.traits)  # fmt: skip
    weights = np.ones(len(rows)) if rows.weights is None else np.asarray(rows.weights)
    weights = weights * (np.count_nonzero(weights) / weights.sum())
    log_p = fit.density.log_marginal(rows).log_p - np.log(fit.seen_share)
    return float(n_parameters * penalty(weights.sum()) - 2 * weights @ log_p)


def with_unseen(fit: Fit, rows: Observations, random_state: RandomState) -> Observations:
    """Return fitted rows of positive weight, with unseen ones as the density has them."""
    refuse_other_traits(fit.traits, rows.traits, {"selected"})
    rule, rows = rows.selection, replace(rows, selection=None)
    if rule is None:
        return rows.with_weight()
    if rows.weights is not None:
        rule = rule.take(np.asarray(rows.weights) > 0)
    rng = np.random.RandomState(check_random_state(random_state).randint(2**30))
    return completed_by(fit.density, rule, rows.with_weight(), rng)


def simulated_rows(fit: Fit, rows: Observations, what: str) -> Observations:
    """Check rows that others are simulated like: those have no limits, covariates or selection."""
    refuse(what, SIMULATED | {"errors to learn"}, fit.traits | rows.traits)
    return rows.with_weight()


def refitted_rows(fit: Fit, rows: Observations, what: str) -> Observations:
    """Check rows that refits are made to: those were all seen, and have no covariates."""
    refuse(what, SIMULATED | {"limits", "errors to learn", "beyond memory"}, fit.traits)
    return rows.with_weight()


def measured_values(fit: Fit, rows: Observations) -> tuple[Array, Array | None]:
    """Return measured values ``(N, D)``, NaN for missing ones and limits, and row weights."""
    if "projected" in fit.traits:
        raise ValueError(
            "Expected a model without a projection to compare measurements with true values; got "
            "one with it. Leave out w."
        )
    refuse_other_labels(fit, rows)
    refuse_other_traits(fit.traits, rows.described, OF_THE_FIT & fit.traits)
    values = rows.measured()
    if rows.dim != len(fit.names):
        raise ValueError(
            f"Expected w with {len(fit.names)} columns, as in the fit; got {rows.dim}."
        )
    if rows.noise.flags is not None:
        values = np.where(np.asarray(rows.noise.flags) == 0, values, np.nan)
    return values, None if rows.weights is None else np.asarray(rows.weights)


def refuse_changed(fit: Fit, what: str) -> None:
    """Raise where components are those of rows that reductions have changed."""
    refuse(what, set(), {"covariates"} & fit.traits | fit.known.traits)


def fitted_rows(fit: Fit, rows: Observations, random_state: RandomState) -> Observations:
    """Return the rows of a fit as the engine's density is about them, of positive weight."""
    rows = keep_copies_together(as_fitted(fit, rows).with_weight())
    return with_unseen(fit, rows, random_state)


def posteriors(
    fit: Fit,
    chunks: Iterable[Observations],
    make_ready: Callable[[Observations], Observations],
    errors_of: Callable[[int], AbstractContextManager[None]],
    draws: dict[str, Any],
) -> Iterator[tuple[slice, Posterior]]:
    """Walk through chunks of rows: which they are, and their posterior.

    ``errors_of`` names rows in errors, given the number of rows before a chunk. Every chunk has
    random numbers of its own.
    """
    first, later = 0, check_random_state(draws["random_state"])
    for rows in chunks:
        if first > 0:
            draws = draws | {"random_state": int(later.randint(2**31 - 1))}
        with errors_of(first), as_guest():
            found = fit.density.posterior(make_ready(rows), **draws)
        origin = replace(rows.labels, units=fit.units)
        yield slice(first, first + len(rows)), replace(found, origin=origin)
        first += len(rows)


def stream_of_fit(fit: Fit, stream: RowStream, noise: Any, facts: dict[str, Any]) -> RowStream:
    """Return a stream, with its errors, that has the columns of the fit."""
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
    return stream if noise is None else stream.with_errors(noise)


def certificate(fit: Fit, rows: Observations, random_state: RandomState) -> Certificate:
    """Check a fit with the rows that it was fitted to, which are ready for it."""
    rows = with_unseen(fit, rows, random_state)
    seed = int(check_random_state(random_state).randint(2**30))
    return certified(fit, rows, seed, fit.solution.attributes().get("certificate_"))


def certified(fit: Fit, rows: Observations, seed: int, own: Certificate | None) -> Certificate:
    """Add checks of the model and of its rows to what the fit knows of itself."""
    with isolated_rng(seed):
        complete = completed(fit.density, rows)
    density, checked = checkable(fit, complete)
    alone = fit.found(Folding) is None and fit.found(PartsFound) is None
    errors, samples = fit.found(ErrorsFound), None
    if rows.noise.kept is not None and rows.projection is None and rows.given is None:
        samples = _some(rows), fit.density.log_prob
    case = Case(
        checked, density.sample, fit.labels.measured(rows.dim), fit.working if alone else None,
        log_p=None if own is not None else lambda some: density.log_marginal(some).log_p,
        seed=seed,
        learned=None if errors is None else errors.errors.finding(),
        samples=samples,
    )  # fmt: skip
    found = own
    if found is None:
        found = _of_fitted_rows(fit, rows)
    elif not alone or fit.found(CurvesFound) is not None:
        # Scores of held-out rows are of rows that were changed: no other fit's compare with them.
        seen = _of_fitted_rows(fit, rows)
        figures = {name: getattr(seen, name) for name in OF_FITTED_ROWS}
        found = replace(found, held_out=None, held_out_error=None, **figures)
    return replace(found, findings=find_doubts(case))


def checkable(fit: Fit, rows: Observations) -> tuple[FittedDensity, Observations]:
    """Return a density to check, and the rows that it is about.

    With covariates, what the curves leave of the rows; with a background, rows by how likely
    they are none, and so with atoms and curves.
    """
    answer, parts = fit.density, fit.found(PartsFound)
    if parts is None and fit.found(CurvesFound) is None:
        return fit.own if fit.found(Folding) is None else answer, rows
    atoms = 0 if parts is None else len(parts.atoms)
    atoms_apart = atoms > 0 and fit.found(CurvesFound) is not None
    if isinstance(answer, PartsFit) and (answer.background is not None or atoms_apart):
        of_atoms, of_background = answer.memberships(rows)
        signal = 1.0 - of_background
        if atoms_apart:  # they lie elsewhere in every row that is moved
            signal = signal * (1.0 - of_atoms.sum(1))
        rows = rows.weighed(row_weights(rows) * np.maximum(signal, 1e-6))
    density = answer.inner if isinstance(answer, PartsFit) else answer
    if isinstance(density, GivenFit):
        rows, density = density.standardised(rows), density.inner
    if parts is not None and atoms and not atoms_apart:
        density = PartsFit(density, parts.atoms, parts.atom_weights)
    return density, rows


def _some(rows: Observations) -> Observations:
    return rows[np.random.default_rng(0).permutation(len(rows))[:SCORED_ROWS]]


def _of_fitted_rows(fit: Fit, rows: Observations) -> Certificate:
    """Score rows that the model has seen; all of them where ``log p(w)`` is exact."""
    some = _some(rows)
    estimate = fit.density.log_marginal(some)
    scores = estimate.log_p
    if len(some) < len(rows) and not estimate.error.any():
        scores = fit.density.log_marginal(rows).log_p
    sizes = fit.density.posterior(some[:POSTERIOR_ROWS]).effective_sample_size
    exact = np.isinf(sizes).all()
    return Certificate(
        fitted=float(scores.mean()),
        fitted_error=float(scores.std() / np.sqrt(len(scores))),
        fitted_rows=len(scores),
        fitted_of=len(rows),
        converged=getattr(fit.solution, "converged", None),
        posterior_size=None
        if exact
        else (np.median(sizes).item(), np.mean(sizes < LOW_SIZE).item()),
    )
