r"""A p-value for each row: how unusual its measurement is, given its error.

.. math:: p_i = P(T(w') \leq T(w_i)), \qquad w' = R_i v' + n', \quad v' \sim p(v), \quad
          n' \text{ by the law of row } i

Whatever ``T`` is, these are uniform under the model, if only ``w'`` comes from it. So ``T`` is
``log p(w)`` of a mixture of few Gaussians, which the compiled kernel gives for millions of draws:
the model itself where it is one, else a stand-in near it. Noise that is not Gaussian enters ``T``,
and ``T`` alone, by its mean and covariance.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import false_discovery_control
from sklearn.utils import check_random_state

from deconflow._limits import rows_at_once
from deconflow._types import Array, IntArray
from deconflow.checks import as_floats, check_number, refuse_if, refuse_where
from deconflow.mixtures import GaussianMixture
from deconflow.noise import GaussianNoise, Noise, gaussian
from deconflow.observations import Observations
from deconflow.randomness import RandomState, isolated_rng
from deconflow.standardising import Standardiser
from deconflow.xd import expectation, lay_out

#: Draws ``(n, D)`` true values, given ``n`` and a seed.
Sample = Callable[[int, int], Array]

#: Draws of the truth, and of uniform numbers for the noise, that all rows share.
POOL = 99_999
#: Draws at least as unusual as the row that say how unusual it is: to a third of its p-value.
ENOUGH = 10
#: How many draws a row has at most that does not have enough by then.
STAGES = (1_999, 9_999)
THRESHOLDS = (0.001, 0.002, 0.005, 0.01)
#: So many rows should be below a threshold by chance, for their number to tell something.
EXPECTED = 10


def row_p_values(
    sample: Sample,
    mixture: GaussianMixture,
    data: Observations,
    *,
    n_draws: int = 199,
    random_state: RandomState = 0,
    threads: int | None = None,
) -> Array:
    r"""How unusual each row is under a model, ``(N,)``, between 0 and 1.

    With noise that all rows share, and nothing missing, all are held against the same 99,999 draws:
    :math:`p = (1 + \#\{T' \leq T\}) / (n + 1)`. Other rows have draws of their own, sequentially
    (Besag and Clifford 1991): ``n_draws``, by the same rule, if ten of these or more are as
    unusual as the row. If fewer are, draws go on up to the ``l``-th, which is the tenth to be so,
    and :math:`p = 10 / l`; or to 9,999, by the first rule again. Each attainable value is reached
    with its own probability, whatever the number of draws.

    A row's draws begin somewhere in a pool of truths and a pool of uniform numbers; where, its own
    values say. So they depend on no other row, nor on how many there are at once; but for a law of
    one's own that differs by row, which is drawn from as it can be. Rows share draws, then, by
    which the numbers of rows below 0.001, 0.01 and 0.1 are off by 10, 3 and 1 percent: less than
    by chance, up to 100,000 rows.

    Parameters
    ----------
    sample
        Draws ``(n, D)`` true values from the model, given ``n`` and a seed.
    mixture
        Its ``log p(w)`` is what rows are ranked by; the model, or near it.
    data
        Rows.
    n_draws
        Draws of each row, at least.
    random_state
        Seed of the draws.
    threads
        How many to use at most.

    References
    ----------
    Besag and Clifford (1991), "Sequential Monte Carlo p-values", Biometrika 78.
    """
    judge = _Judge(mixture, threads)
    seeds = check_random_state(random_state).randint(2**31 - 1, size=3).tolist()
    pool = _Pool(sample, max(POOL, n_draws), data.dim, seeds)
    if not data.noise.additive:
        return _measured_anew(judge, pool, data, n_draws)
    if data.noise.shared and data.observed is None and data.projection is None:
        return _against_one_pool(judge, pool, data)
    return _row_by_row(judge, pool, data, n_draws)


class _Judge:
    """The statistic ``T``."""

    def __init__(self, mixture: GaussianMixture, threads: int | None) -> None:
        self.mixture, self.threads = mixture, threads

    def __call__(self, data: Observations, w: Array) -> Array:
        """``T`` of other measurements ``(K, N, M)`` of these rows, ``(K, N)``."""
        noise, mean = _as_gaussian(data.noise, len(data))
        rows = replace(data, noise=noise, weights=None)
        if len(w) > 1:
            rows = rows[np.tile(np.arange(len(data)), len(w))]
        rows = replace(rows, w=(w - mean).reshape(-1, data.dim))
        ready = lay_out(rows, Standardiser.of_mixture(self.mixture, rows))
        standard = ready.units.mixture_to_standard(self.mixture)
        passed = expectation(standard, ready, moments=False, threads=self.threads)
        return passed.log_p.reshape(w.shape[:2])

    def of_rows(self, data: Observations) -> Array:
        """``T`` of what was measured, ``(N,)``."""
        return np.concatenate(
            [self(piece, piece.w[None])[0] for piece in data.chunks(_rows_at_once(data, 1))]
        )


class _Pool:
    """Draws that every row takes its own from."""

    def __init__(self, sample: Sample, size: int, dim: int, seeds: list[int]) -> None:
        self.seed = seeds[2]
        drawn = sample(size, seeds[0])
        self.truths = drawn[np.isfinite(drawn).all(1)]  # a flow may leave the finite
        uniform = np.random.default_rng(seeds[1]).uniform(size=(len(self.truths), dim))
        self.uniform = uniform.clip(np.finfo(float).tiny, 1 - np.finfo(float).eps)

    def starts(self, w: Array) -> tuple[IntArray, IntArray]:
        """Where each row ``(N, M)`` begins among truths and uniform numbers: its values say it."""
        mixed = np.full(len(w), self.seed, np.uint64)
        for column in np.ascontiguousarray(w.T + 0.0).view(np.uint64):  # no zero is negative
            mixed = _scrambled(mixed ^ column)
        size = np.uint64(len(self.truths))
        return (mixed % size).astype(np.int64), (_scrambled(mixed) % size).astype(np.int64)

    def measurements(self, data: Observations, truths: IntArray, uniform: IntArray) -> Array:
        """Measure the truths of these numbers ``(K, N)`` as the rows were, ``(K, N, M)``."""
        v = self.truths[truths % len(self.truths)]
        if data.projection is not None:
            v = np.einsum("nmd,knd->knm", data.projection, v)
        blur = data.noise.from_uniform(self.uniform[uniform % len(self.truths)])
        if blur is None:
            with isolated_rng(self.seed ^ int(uniform[0, 0])):
                blur = data.noise.sample(len(truths))
        return v + blur


def _against_one_pool(judge: _Judge, pool: _Pool, data: Observations) -> Array:
    """Hold all rows against the same draws."""
    size = len(pool.truths)
    every = np.arange(size)[None]
    alike = Observations(np.zeros((size, data.dim)), data.noise[np.zeros_like(every[0])])
    simulated = np.sort(judge(alike, pool.measurements(alike, every, every))[0])
    return (1 + simulated.searchsorted(judge.of_rows(data), side="right")) / (1 + size)


def _measured_anew(judge: _Judge, pool: _Pool, data: Observations, n_draws: int) -> Array:
    """Hold each row against ``n_draws`` truths measured as it was, each with a law of its own.

    Of counts many are equal: these p-values are uniform or, for frequent counts, larger.
    """
    p, size = np.empty(len(data)), _rows_at_once(data, n_draws)
    starts = pool.starts(data.w)[0]
    for lo in range(0, len(data), size):
        rows = data[lo : lo + size]
        numbers = starts[lo : lo + size] + np.arange(n_draws)[:, None]
        truth = pool.truths[numbers.reshape(-1) % len(pool.truths)]
        with isolated_rng(pool.seed + lo):
            drawn = rows[np.tile(np.arange(len(rows)), n_draws)].remeasure(truth)
        as_unusual = judge.of_rows(drawn).reshape(n_draws, -1) <= judge.of_rows(rows)
        p[lo : lo + size] = (1 + as_unusual.sum(0)) / (1 + n_draws)
    return p


def _row_by_row(judge: _Judge, pool: _Pool, data: Observations, n_draws: int) -> Array:
    """Hold each row against draws with its own noise, until enough are as unusual as it is."""
    usual, starts = judge.of_rows(data), pool.starts(data.w)
    count, p = np.zeros(len(data), np.int64), np.empty(len(data))
    left, done = np.arange(len(data)), 0
    for upto in (n_draws, *(stage for stage in STAGES if stage > n_draws)):
        size = _rows_at_once(data, upto - done)
        for some in (left[lo : lo + size] for lo in range(0, len(left), size)):
            rows, numbers = data[some], np.arange(done, upto)[:, None]
            drawn = pool.measurements(rows, *(start[some] + numbers for start in starts))
            total = count[some] + (judge(rows, drawn) <= usual[some]).cumsum(0)
            count[some] = total[-1]
            p[some] = (1 + total[-1]) / (1 + upto)
            if done:
                reached = total[-1] >= ENOUGH
                p[some[reached]] = ENOUGH / (done + 1 + (total[:, reached] >= ENOUGH).argmax(0))
        left, done = left[count[left] < ENOUGH], upto
    return p


def _as_gaussian(noise: Noise, n_rows: int) -> tuple[Noise, Array]:
    """Gaussian noise of the same mean and covariance, and its mean ``(N or 1, M)``."""
    if isinstance(noise, GaussianNoise):
        return noise, noise.mean()
    rows = 0 if noise.shared else slice(None)
    if noise.independent:
        law = gaussian(sd=np.sqrt(noise.variance())[rows])
    else:
        law = gaussian(covariance=noise.covariance()[rows])
    return law.bind(n_rows, noise.observed), noise.mean()


def _rows_at_once(data: Observations, draws: int) -> int:
    """How many rows of so many draws make one piece of work."""
    numbers = 8 * data.dim + data.dim**2 + data.latent_dim  # about so many for each draw
    if data.projection is not None:
        numbers += 3 * data.dim * data.latent_dim
    return rows_at_once(draws * numbers)


def _scrambled(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of numbers: the finaliser of splitmix64."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@dataclass(frozen=True)
class UnusualRows:
    """How many of many rows are unusual, beside how many should be by chance.

    Attributes
    ----------
    threshold : float
        P-values up to this are counted.
    n_rows, count : int
        Rows with a p-value, and those of them that are counted.
    expected : float
        How many should be, if the model and the errors are right.
    smallest : float
        The smallest p-value.
    rows : array
        The numbers of the rows that have it; the first row of all is 0.
    q_values : array
        ``(N,)``: the share of false alarms among the rows up to each one's p-value, by Benjamini
        and Hochberg; NaN where there is no p-value.
    """

    threshold: float
    n_rows: int
    count: int
    expected: float
    smallest: float
    rows: IntArray
    q_values: Array

    def __str__(self) -> str:
        return _words(
            self.threshold, self.n_rows, self.count, self.smallest, self.rows[0], len(self.rows)
        )


def unusual_rows(p: ArrayLike, threshold: float | None = None) -> UnusualRows:
    """Say how many rows are unusual, beside how many should be by chance.

    Parameters
    ----------
    p
        ``(N,)`` p-values, as those of ``model.p_values``; NaN for a row without one.
    threshold
        P-values up to this are counted; None for the smallest of 0.001, 0.002, 0.005 and 0.01 that
        ten rows should reach by chance, or 0.01 for fewer than a thousand rows.

    Examples
    --------
    >>> print(unusual_rows([0.5, 0.0001, 0.3]))
    p-values: 1 of 3 rows at 0.01 or below (0.03 expected if the model and the errors are right); \
smallest 0.0001, in row 1 (the first is 0)
    """
    p = as_floats(p, "p")
    used = ~np.isnan(p)
    refuse_if(
        p.ndim != 1 or not used.any(),
        f"Expected one or more p-values of shape (N,); got shape {p.shape}.",
    )
    refuse_where((p < 0) | (p > 1), "p-values between 0 and 1", p)
    n_rows = int(used.sum())
    threshold = _usual_threshold(n_rows) if threshold is None else threshold
    check_number("threshold", threshold, 0, 1)
    q_values = np.full(len(p), np.nan)
    q_values[used] = false_discovery_control(p[used])
    smallest = float(p[used].min())
    return UnusualRows(
        threshold,
        n_rows,
        count=_count_up_to(threshold, p),
        expected=threshold * n_rows,
        smallest=smallest,
        rows=np.flatnonzero(p == smallest),
        q_values=q_values,
    )


@dataclass
class PValueCounts:
    """What :func:`unusual_rows` says of p-values that come in chunks, in a few numbers.

    Attributes
    ----------
    n_rows, n_used : int
        Rows, and those of them with a p-value.
    counts : tuple of int
        How many are at or below each of the thresholds to choose from.
    smallest : float
        The smallest p-value; 2 if there is none.
    first : int
        The first row that has it.
    n_smallest : int
        How many rows have it.
    """

    n_rows: int = 0
    n_used: int = 0
    counts: tuple[int, ...] = (0,) * len(THRESHOLDS)
    smallest: float = 2.0
    first: int = 0
    n_smallest: int = 0

    def add(self, p: Array) -> None:
        """Count the p-values ``(N,)`` of the next rows."""
        used = ~np.isnan(p)
        smallest = float(np.min(p, where=used, initial=2.0))
        if smallest < self.smallest:
            self.smallest, self.n_smallest = smallest, 0
            self.first = self.n_rows + int(np.argmax(p == smallest))
        self.n_smallest += int((p == self.smallest).sum())
        self.n_rows += len(p)
        self.n_used += int(used.sum())
        self.counts = tuple(
            count + _count_up_to(threshold, p)
            for threshold, count in zip(THRESHOLDS, self.counts, strict=True)
        )

    def __str__(self) -> str:
        threshold = _usual_threshold(self.n_used)
        count = self.counts[THRESHOLDS.index(threshold)]
        return _words(threshold, self.n_used, count, self.smallest, self.first, self.n_smallest)


def _usual_threshold(n_rows: int) -> float:
    """Return the smallest threshold that enough rows should reach by chance."""
    return next((each for each in THRESHOLDS if each * n_rows >= EXPECTED), THRESHOLDS[-1])


def _count_up_to(threshold: float, p: Array) -> int:
    return int((p <= threshold * (1 + 1e-9)).sum())  # 10 / 5000 is 0.002, but for rounding


def _words(
    threshold: float, n_rows: int, count: int, smallest: float, first: int, n_smallest: int
) -> str:
    by_chance = threshold * n_rows
    expected = f"{by_chance:.0f}" if by_chance >= 10 else f"{by_chance:.2g}"
    others = f" and {n_smallest - 1} more" if n_smallest > 1 else ""
    return (
        f"p-values: {count} of {n_rows} rows at {threshold:g} or below "
        f"({expected} expected if the model and the errors are right); "
        f"smallest {smallest:.2g}, in row {first} (the first is 0){others}"
    )
