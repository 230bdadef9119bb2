"""Extreme Deconvolution with the arguments of Bovy's C library, and its split-and-merge moves."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from deconflow._types import Array, BoolArray
from deconflow.checks import as_floats, check_number, refuse_if
from deconflow.files import as_path, clear_write_errors
from deconflow.frames import plain_table
from deconflow.guests import as_guest
from deconflow.mixtures import GaussianMixture
from deconflow.noise import gaussian
from deconflow.observations import Observations
from deconflow.xd import (
    SMALLEST_VARIANCE,
    Constraints,
    EMResult,
    KernelRows,
    Stopping,
    Sums,
    em,
    expectation,
    lay_out,
    made_feasible,
    with_floor,
)

#: What the arguments are called elsewhere in this library, and here.
NAMES = {"w": "ydata", "noise": "ycovar", "sample_weight": "weight"}
Fixed = bool | Sequence[bool] | None


@as_guest()
def extreme_deconvolution(
    ydata: Array,
    ycovar: Array,
    xamp: Array,
    xmean: Array,
    xcovar: Array,
    projection: Array | None = None,
    weight: ArrayLike | None = None,
    fixamp: Fixed = None,
    fixmean: Fixed = None,
    fixcovar: Fixed = None,
    tol: float = 1e-6,
    maxiter: float = 1e9,
    w: float = 0.0,
    logfile: str | None = None,
    splitnmerge: int = 0,
    maxsnm: bool = False,
    likeonly: bool = False,
    logweight: bool = False,
) -> float:
    """Extreme Deconvolution with the arguments and habits of Bovy's C library.

    Parameters
    ----------
    ydata
        ``(N, dy)`` measurements.
    ycovar
        ``(N, dy, dy)`` noise covariances, or ``(N, dy)`` variances.
    xamp, xmean, xcovar
        ``(K,)``, ``(K, dx)`` and ``(K, dx, dx)``: the start, **overwritten** with the answer. Of
        ``xcovar`` only the upper triangle is read.
    projection
        ``(N, dy, dx)``.
    weight, logweight
        ``(N,)`` row weights, or their logarithms.
    fixamp, fixmean, fixcovar
        What to keep: a boolean, or one for each component.
    tol, maxiter
        Stop when the mean log-likelihood gains at most ``tol``, or after ``maxiter`` steps.
    w
        Regularisation: covariances are ``(sum + w I) / (q + 1)``.
    logfile
        ``<logfile>_loglike.log`` gets the mean log-likelihood of every step, ``<logfile>_c.log``
        an account of the run.
    splitnmerge, maxsnm
        Number of split-and-merge moves to try before giving up; all of them.
    likeonly
        Only compute the mean log-likelihood.

    Returns
    -------
    float
        Mean log-likelihood, ``sum(weight * log p) / N``, at the last step.

    References
    ----------
    Bovy, Hogg, Roweis (2011), "Extreme Deconvolution", https://arxiv.org/abs/0905.2979

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> ydata = rng.normal(1.0, np.sqrt(1.25), size=(4000, 1))
    >>> xamp, xmean, xcovar = np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1))
    >>> log_p = extreme_deconvolution(ydata, np.full((4000, 1), 0.25), xamp, xmean, xcovar)
    >>> xmean.round(1), xcovar.round(1)
    (array([[1.]]), array([[[1.]]]))
    """
    ydata = as_floats(plain_table(ydata, "ydata"), "ydata")
    ycovar = as_floats(ycovar, "ycovar")
    refuse_if(
        ydata.ndim != 2 or ycovar.ndim not in (2, 3),
        "Expected ydata of shape (N, dy), and ycovar of shape (N, dy) or (N, dy, dy); "
        f"got {ydata.shape} and {ycovar.shape}.",
    )
    check_number("w", w, 0)
    check_number("tol", tol, 0)
    if maxiter != np.inf:
        _check_whole("maxiter", maxiter)
    _check_whole("splitnmerge", splitnmerge)
    try:
        rows = _rows(ydata, ycovar, projection, weight, logweight)
    except (TypeError, ValueError) as error:  # by the names that arguments have here
        words = re.sub(r"\b(w|noise|sample_weight)\b", lambda found: NAMES[found[0]], str(error))
        raise type(error)(words) from error
    K, dx = getattr(xamp, "size", 0), rows.dim
    for name, array, shape in (
        ("xamp", xamp, (K,)),
        ("xmean", xmean, (K, dx)),
        ("xcovar", xcovar, (K, dx, dx)),
    ):
        _check_start(name, array, shape)
    given = (np.array(part, dtype=np.float64) for part in (xamp, xmean, _symmetric(xcovar)))
    start = rows.units.mixture_to_standard(GaussianMixture(*given))
    if likeonly or maxiter < 1:
        return _likelihood(start, rows)
    _check_log(logfile)
    prior = np.diag(w / np.asarray(rows.units.scale) ** 2) if w > 0 else None
    fixed = np.array([_flags(flags, len(xamp)) for flags in (fixamp, fixmean, fixcovar)])
    constraints = Constraints(None, prior, fixed)
    depth = K * (K - 1) * (K - 2) // 2 if maxsnm else int(splitnmerge)
    stopping = Stopping(tol=tol, max_iter=int(min(maxiter, 2**62)))
    path: list[float | None] = []
    with suppress(np.linalg.LinAlgError):
        result, path = _split_and_merge(start, rows, constraints, stopping, depth)
    if not (path and np.isfinite(result.log_likelihood)):  # a singular covariance: a tiny floor
        floored = replace(constraints, floor=SMALLEST_VARIANCE * np.eye(dx))
        begin = made_feasible(start, floored)
        result, path = _split_and_merge(begin, rows, floored, stopping, depth)
    before, mixture = map(rows.units.mixture_from_standard, (start, result.mixture))
    xamp[:], xmean[:], xcovar[:] = mixture.weights, mixture.means, mixture.covariances
    if logfile is not None:
        steps = ["" if value is None else f"{value:f}" for value in path]
        account = "\n".join(["#Initial EM", *steps, ""])
        Path(f"{logfile}_loglike.log").write_text("\n".join([*steps, ""]) + "\n")
        with Path(f"{logfile}_c.log").open("a") as file:
            file.write(_described("Initial", before) + account + _described("Final", mixture))
    return result.log_likelihood


def _likelihood(mixture: GaussianMixture, rows: KernelRows) -> float:
    """Mean log-likelihood; where a covariance is singular and a row exact, of one a bit wider."""
    with suppress(np.linalg.LinAlgError):
        value = float(rows.weights @ expectation(mixture, rows, moments=False).log_p)
        if np.isfinite(value):
            return value / rows.n_rows
    wider = made_feasible(
        mixture, Constraints.free(mixture.n_components, SMALLEST_VARIANCE * np.eye(mixture.dim))
    )
    return float(rows.weights @ expectation(wider, rows, moments=False).log_p) / rows.n_rows


def _check_log(name: str | None) -> None:
    """Show before the work, not after it, that a folder cannot be written."""
    if name is not None:
        as_path(name, "logfile")
        for ending in ("_loglike.log", "_c.log"):
            path = Path(f"{name}{ending}")
            with clear_write_errors(path):
                path.open("a").close()


def _described(when: str, mixture: GaussianMixture) -> str:
    parts = (mixture.weights, mixture.means, mixture.covariances)
    lines = [f"#{when} amplitudes, means and covariances"]
    lines += [" ".join(f"{value:g}" for value in np.ravel(part)) for part in parts]
    return "\n".join(lines) + "\n"


def _check_whole(name: str, value: float) -> None:
    """Whole numbers may be written as floats, such as 1e9."""
    check_number(name, value, -np.inf, open_low=True)
    refuse_if(value != int(value), f"Expected {name} as a whole number; got {value!r}.")


def _check_start(name: str, array: Array, shape: tuple[int, ...]) -> None:
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        kind = getattr(array, "dtype", type(array).__name__)
        raise TypeError(
            f"Expected {name} as an array of floats, to be overwritten with the answer; got {kind}."
        )
    refuse_if(array.shape != shape, f"Expected {name} of shape {shape}; got {array.shape}.")
    read = np.triu(as_floats(array, name)) if array.ndim == 3 else as_floats(array, name)
    refuse_if(
        not np.isfinite(read).all() or (name == "xamp" and (array < 0).any()),
        f"Expected finite values in {name}, amplitudes of at least 0; got others.",
    )
    refuse_if(
        not array.flags.writeable,
        f"Expected {name} to be writeable, for the answer; got a read-only array.",
    )


def _symmetric(xcovar: Array) -> Array:
    return np.triu(xcovar) + np.swapaxes(np.triu(xcovar, 1), 1, 2)


def _flags(fixed: Fixed, n_components: int) -> BoolArray:
    flags = np.asarray(False if fixed is None else fixed)
    refuse_if(
        flags.dtype.kind not in "bi" or flags.size not in (1, n_components),
        f"Expected fixamp, fixmean and fixcovar as one flag or {n_components}; got {fixed!r}.",
    )
    return np.broadcast_to(flags.astype(bool).reshape(-1), (n_components,))


def _rows(
    ydata: Array,
    ycovar: Array,
    projection: Array | None,
    weight: ArrayLike | None,
    logweight: bool,
) -> KernelRows:
    if ycovar.ndim == 2:
        refuse_if(
            (ycovar < 0).any(), "Expected variances of at least zero in ycovar; got negative ones."
        )
        noise = gaussian(sd=np.sqrt(ycovar))
    else:
        noise = gaussian(covariance=_symmetric(ycovar))
    omega = None if weight is None else as_floats(weight, "weight")
    if omega is not None and logweight:
        omega = np.exp(omega)
    data = Observations.from_arrays(ydata, noise, projection=projection, weights=omega)
    rows = lay_out(data)
    if omega is None:
        return rows
    mean = float(omega.mean())  # observations have weights of mean one; this library's are raw
    blocks = [replace(block, omega=block.omega * mean) for block in rows.blocks]
    return replace(rows, blocks=blocks, weights=omega)


def _split_and_merge(
    start: GaussianMixture,
    rows: KernelRows,
    constraints: Constraints,
    stopping: Stopping,
    depth: int,
) -> tuple[EMResult, list[float | None]]:
    """Fit, and improve the fit as long as one of the ``depth`` best moves raises the likelihood.

    With the path of accepted likelihoods; None stands for a blank.

    References
    ----------
    Ueda, Nakano, Ghahramani, Hinton (2000), "SMEM Algorithm for GaussianMixture Models"
    """
    rng = np.random.RandomState(0)
    result = em(start, rows, constraints, stopping)
    path: list[float | None] = [*result.history, None]
    improved = depth > 0 and start.n_components >= 3 and np.isfinite(result.log_likelihood)
    while improved:
        improved = False
        sums = expectation(result.mixture, rows, moments=False, responsibilities=True)
        for merged, other, split in islice(_moves(result.mixture, sums), depth):
            moved = _move(result.mixture, (merged, other, split), constraints, rng)
            partial = em(moved, rows, constraints.but_for([merged, other, split]), stopping)
            full = em(partial.mixture, rows, constraints, stopping)
            if full.log_likelihood > result.log_likelihood + max(stopping.tol, 1e-12):
                path += [*partial.history, None, *full.history, None]
                result, improved = full, True
                break
    return result, path


def _moves(mixture: GaussianMixture, sums: Sums) -> Iterator[tuple[int, int, int]]:
    """Triples (merge, merge, split), most promising first."""
    q = sums.responsibilities
    assert q is not None
    K = len(mixture.weights)
    overlap = q.T @ q
    # the divergence of each component's own rows from its density of them
    share = q / np.maximum(q.sum(0), 1e-300)
    log_q = np.log(np.maximum(q, 1e-300))
    log_density = log_q + sums.log_p[:, None] - np.log(np.maximum(mixture.weights, 1e-300))
    misfit = (share * (np.log(np.maximum(share, 1e-300)) - log_density)).sum(0)
    pairs = [(i, j) for i in range(K) for j in range(i + 1, K)]
    for i, j in sorted(pairs, key=lambda pair: -overlap[pair]):
        for k in np.argsort(-misfit):
            if k not in (i, j):
                yield i, j, int(k)


def _move(
    mixture: GaussianMixture,
    move: tuple[int, int, int],
    constraints: Constraints,
    rng: np.random.RandomState,
) -> GaussianMixture:
    i, j, k = move
    weights, means = mixture.weights.copy(), mixture.means.copy()
    covariances = mixture.covariances.copy()
    both = max(weights[i] + weights[j], 1e-300)
    means[i] = (weights[i] * means[i] + weights[j] * means[j]) / both
    covariances[i] = (weights[i] * covariances[i] + weights[j] * covariances[j]) / both
    weights[i], half = weights[i] + weights[j], 0.5 * weights[k]
    weights[j] = weights[k] = half
    covariances = with_floor(covariances, 1e-12 * np.eye(mixture.dim))
    step = np.linalg.cholesky(covariances[k]) @ rng.standard_normal(mixture.dim)
    means[j], means[k] = means[k] + 0.5 * step, means[k] - 0.5 * step
    size = np.exp(np.linalg.slogdet(covariances[k])[1] / mixture.dim)
    covariances[j] = covariances[k] = size * np.eye(mixture.dim)
    covariances = with_floor(covariances, constraints.floor)
    weights = np.where(constraints.fixed[0], mixture.weights, weights)
    kept = constraints.kept(mixture, weights, means, covariances)
    return GaussianMixture(weights, kept.means, kept.covariances)
