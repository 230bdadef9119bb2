"""The most likely errors: those and a mixture of the truth are fitted together.

Each number of components is started by EM, with the errors as they are known so far, and finished
by steps of Newton's method for everything at once, where the products of the rows' scores stand
for the curvature (Berndt, Hall, Hall and Hausman 1974). A mixture and its errors pull at the same
spread, so that steps in turns would take hundreds of rounds.
"""

from dataclasses import dataclass

import numpy as np

from deconflow._types import Array, BoolArray
from deconflow.errors.likelihood import ErrorRows, View, combined, look
from deconflow.errors.parameters import Layout
from deconflow.mixtures import GaussianMixture
from deconflow.noise import gaussian
from deconflow.observations import Observations
from deconflow.xd import COMPONENTS_TO_TRY, FitSettings, PreparedData, Stopping, n_parameters

#: Most steps, and the gains in log-likelihood that are not worth another: while the number of
#: components is sought, and then.
STEPS, ROUGH, PRECISE = 100, 0.5, 1e-3
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = 1e-2, 1e-9, 1e9
RIDGE = 1e-10
#: Longest step of a parameter: of the logarithm of a factor, or in units of the spread.
LONGEST = 1.0
PATIENCE, ROWS_PER_COMPONENT = 2, 20
#: In units of the spread of the column.
FIRST_JITTER = 0.1
#: Smallest covariance of a component that EM makes, in units of the mean error.
FLOOR = 0.01
#: Of a component; the latter in units of the spread.
LEAST_WEIGHT, NARROWEST = 1e-8, 1e-4
#: A larger variance is that of a value which no row of an object has measured.
SEEN = 1e6


@dataclass(frozen=True)
class Fit:
    """Errors and a mixture, fitted together.

    Attributes
    ----------
    theta : array
        Parameters of the errors.
    view : View
        What the mixture sees of the rows, with these errors.
    log_likelihood : float
        Of all objects.
    """

    theta: Array
    view: View
    log_likelihood: float

    @classmethod
    def at(cls, rows: ErrorRows, layout: Layout, theta: Array, mixture: GaussianMixture) -> "Fit":
        """Look at rows with some errors and a mixture."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # then it is refused
            view = look(mixture, layout.values(theta), rows)
        return cls(theta, view, float(rows.weights @ view.log_p))


def most_likely(
    rows: ErrorRows, layout: Layout, rng: np.random.RandomState, threads: int | None = None
) -> Fit:
    """Fit errors with mixtures of more and more components, and keep what BIC likes best."""
    theta, best, behind = layout.start(FIRST_JITTER), None, 0
    most = max(1, rows.n_objects // ROWS_PER_COMPONENT)
    for count in [count for count in COMPONENTS_TO_TRY if count <= most]:
        start = _start(rows, layout, theta, count, rng, threads)
        fit = climb(rows, layout, theta, start, ROUGH)
        behind += 1
        if best is None or _worth(fit, rows) > _worth(best, rows):
            best, theta, behind = fit, fit.theta, 0
        if behind == PATIENCE:
            break
    assert best is not None
    return climb(rows, layout, theta, best.view.mixture, PRECISE)


def _worth(fit: Fit, rows: ErrorRows) -> float:
    """Log-likelihood less what its parameters cost, by BIC."""
    count = n_parameters(fit.view.mixture.n_components, fit.view.mixture.dim)
    return fit.log_likelihood - 0.5 * count * float(np.log(rows.n_objects))


def _start(
    rows: ErrorRows,
    layout: Layout,
    theta: Array,
    count: int,
    rng: np.random.RandomState,
    threads: int | None,
) -> GaussianMixture:
    """Fit a mixture to the objects by EM, with errors that are known so far."""
    objects = combined(rows, layout.values(theta))
    size = np.diagonal(objects.covariance, axis1=1, axis2=2)
    mean = np.where(size < SEEN, objects.mean, np.nan)
    noise = gaussian(covariance=objects.covariance)
    weights = None if (rows.weights == 1).all() else rows.weights
    data = Observations.from_arrays(mean, noise, weights=weights)
    stopping = Stopping(tol=1e-5, max_iter=100, accelerate=True, threads=threads)
    settings = FitSettings(count, floor=FLOOR, stopping=stopping)
    return _regular(PreparedData(data).fit(settings, rng).mixture)


def climb(
    rows: ErrorRows, layout: Layout, theta: Array, mixture: GaussianMixture, precise: float
) -> Fit:
    """Take steps for errors and mixture at once, each of which makes the rows more likely."""
    fit, damping = Fit.at(rows, layout, theta, mixture), FIRST_DAMPING
    for _ in range(STEPS):
        scores = fit.view.scores(layout)
        slope = rows.weights @ scores
        curvature = (scores * rows.weights[:, None]).T @ scores
        free = np.ones(len(slope), bool)
        free[: layout.size] = ~layout.held(fit.theta, slope[: layout.size])
        found = None
        while found is None and damping < MOST_DAMPING:
            step = damped(curvature, slope, free, damping)
            if step @ slope < precise:
                return fit
            tried = _stepped(rows, layout, fit, step)
            found = tried if tried.log_likelihood > fit.log_likelihood else None
            damping *= 0.1 if found else 6
        if found is None:
            return fit
        fit, damping = found, max(damping, LEAST_DAMPING)
    return fit


def damped(curvature: Array, slope: Array, free: BoolArray, damping: float) -> Array:
    """Return a step of Newton's method for what is free, shortened as Marquardt does."""
    own = curvature[np.ix_(free, free)]
    size = np.diag(own)
    own = own + np.diag(damping * size + RIDGE * max(size.max(initial=0.0), 1e-300))
    step = np.zeros(len(slope))
    step[free] = np.linalg.solve(own, slope[free])
    return step


def _stepped(rows: ErrorRows, layout: Layout, fit: Fit, step: Array) -> Fit:
    """Go a step, which is shortened as a whole where one parameter would jump."""
    step = step * min(1.0, LONGEST / max(np.abs(step[: layout.size]).max(initial=0.0), 1e-300))
    theta = layout.feasible(fit.theta + step[: layout.size])
    return Fit.at(rows, layout, theta, _moved(fit.view.mixture, step[layout.size :]))


def _moved(mixture: GaussianMixture, step: Array) -> GaussianMixture:
    """Change logits, means and factors by a step."""
    K, dim = mixture.means.shape
    by_logit, by_mean, by_root = np.split(step, [K, K + K * dim])
    logits = np.log(mixture.weights) + np.clip(by_logit, -LONGEST, LONGEST)
    weights = np.exp(logits - logits.max())
    roots = np.linalg.cholesky(mixture.covariances)
    lower = np.tril_indices(dim)
    roots[:, lower[0], lower[1]] += by_root.reshape(K, -1)
    means, covariances = mixture.means + by_mean.reshape(K, dim), roots @ roots.transpose(0, 2, 1)
    return _regular(GaussianMixture(weights / weights.sum(), means, covariances))


def _regular(mixture: GaussianMixture) -> GaussianMixture:
    """Keep weights and widths from zero, where they have no logarithm or factor."""
    weights = np.maximum(mixture.weights, LEAST_WEIGHT)
    covariances = mixture.covariances + NARROWEST**2 * np.eye(mixture.dim)
    return GaussianMixture(weights / weights.sum(), mixture.means, covariances)
