"""The certificate of a fit: what the fit knows of itself, and what checks of it find."""

from dataclasses import replace

import numpy as np
from sklearn.utils import check_random_state

from deconflow.answers import completed
from deconflow.certificate import LOW_SIZE, Certificate
from deconflow.fits import FittedDensity, GivenFit, PartsFit
from deconflow.models.fit import Fit
from deconflow.models.questions import with_unseen
from deconflow.observations import Observations
from deconflow.randomness import RandomState, isolated_rng
from deconflow.reductions import CurvesFound, ErrorsFound, Folding, PartsFound
from deconflow.trust import Case, find_doubts
from deconflow.xd import row_weights

#: Stage of the progress bar.
CHECKING = "checking the fit"
SCORED_ROWS, POSTERIOR_ROWS = 1000, 200
OF_FITTED_ROWS = ("fitted", "fitted_error", "fitted_rows", "fitted_of")


def certificate(fit: Fit, rows: Observations, random_state: RandomState) -> Certificate:
    """Check a fit with the rows that it was fitted to, which are ready for it."""
    rows = with_unseen(fit, rows, random_state)
    seed = int(check_random_state(random_state).randint(2**30))
    return certified(fit, rows, seed, getattr(fit.solution, "certificate", None))


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
