r"""The E-step: responsibilities, and the three sums that every kind of fit is made of.

With :math:`T = R V R^T + S`, :math:`t = R^T T^{-1} (w - R m)`,

.. math:: q_0 = \sum_i q_i, \quad u = \sum_i q_i t_i, \quad
          G = \sum_i q_i (t_i t_i^T - R^T T^{-1} R)

are additive over rows, whatever their noise, projection or missing values. ``u`` and ``G / 2`` are
the gradients of the log-likelihood with respect to ``m`` and ``V``. Kept are ``V u`` and ``V G V``,
which stay accurate where ``V`` is nearly singular.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from deconflow._limits import cpus
from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.xd.kernel import generic
from deconflow.xd.kernel.passes import LARGEST, WIDTH, Pointer, compiled, pass_over, pointers
from deconflow.xd.layout import Block, KernelRows, finite_log, lower_triangle

#: Variances, in the units of the rows, whose product may overflow.
WIDE = 1e30
#: Each block is added up in this many pieces, so that sums do not depend on the threads.
PIECES = 16
#: Pairs of a row and a component that are worth a thread.
SMALLEST_JOB = 100_000


@dataclass
class Sums:
    """What one pass over the rows adds up; the sums of two parts of the rows can be added.

    Attributes
    ----------
    log_p : array
        ``(N,)`` log-likelihood of each row, in the user's units.
    q0, vu, vgv : array
        ``(K,)``, ``(K, D)``, ``(K, D, D)``; see the module. In the units of the rows.
    responsibilities : array or None
        ``(N, K)``, if asked for.
    """

    log_p: Array
    q0: Array
    vu: Array
    vgv: Array
    responsibilities: Array | None = None

    def __add__(self, other: "Sums") -> "Sums":
        """Return the sums of these rows and then others, seen by one mixture in the same units."""
        q, theirs = self.responsibilities, other.responsibilities
        return Sums(
            np.concatenate([self.log_p, other.log_p]),
            self.q0 + other.q0,
            self.vu + other.vu,
            self.vgv + other.vgv,
            None if q is None or theirs is None else np.concatenate([q, theirs]),
        )


def expectation(
    mixture: GaussianMixture,
    rows: KernelRows,
    *,
    moments: bool = True,
    responsibilities: bool = False,
    threads: int | None = None,
) -> Sums:
    """Pass over all rows.

    Parameters
    ----------
    mixture
        In the units of the rows.
    rows
        Laid out by :func:`deconflow.xd.lay_out`.
    moments
        Whether to add up ``q0``, ``vu`` and ``vgv``.
    responsibilities
        Whether to keep each row's.
    threads
        How many to use at most; None for one per processor. The answer does not depend on it.
    """
    K, D = mixture.means.shape
    sums = Sums(np.empty(rows.n_rows), np.zeros(K), np.zeros((K, D)), np.zeros((K, D, D)))
    if responsibilities:
        sums.responsibilities = np.empty((rows.n_rows, K))
    passes = [Pass(block, mixture, moments, responsibilities) for block in rows.blocks]
    worth = sum(one.work for one in passes) // SMALLEST_JOB
    workers = min(cpus(threads), worth) if worth > 1 else 1
    if workers > 1:
        jobs = [(one, job) for one in passes for job in one.jobs(workers)]
        list(_pool(workers, os.getpid()).map(lambda job: job[0].run(*job[1]), jobs))
    else:
        for one in passes:
            one.run(0, one.pieces)
    for one in passes:
        one.finish(sums)
    return sums


@cache
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    """Keep threads from pass to pass; a forked process has none of them, and needs its own."""
    return ThreadPoolExecutor(workers)


def straight(block: Block, widest: float = 0.0) -> bool:
    """Whether a block's arithmetic can be straight lines; these multiply variances."""
    usual = block.kind == "shared" or max(block.widest, widest) <= WIDE
    return block.kind != "projected" and block.w.shape[1] <= LARGEST and usual


def arithmetic(block: Block, widest: float = 0.0) -> tuple[Pointer, Pointer]:
    """Choose the row arithmetic of a block for components of variances up to ``widest``."""
    if straight(block, widest):
        return compiled(block.w.shape[1], block.kind)
    if block.kind == "shared":
        return pointers(generic.shared_density, generic.shared_moments)
    return pointers(generic.density, generic.moments)


class Pass:
    """One block seen by one mixture."""

    def __init__(self, block: Block, mixture: GaussianMixture, moments: bool, keep: bool) -> None:
        self.block, self.moments = block, moments
        self.mixture = mixture
        means, covariances = mixture.means, mixture.covariances
        if block.projection is not None:
            R = block.projection
            means, covariances = means @ R.T, R @ covariances @ R.T
        widest = float(np.diagonal(covariances, axis1=1, axis2=2).max())
        self.functions = arithmetic(block, widest)
        self.s, log_a = block.s, finite_log(mixture.weights)
        if block.kind == "shared":
            log_a, means, covariances = self._with_noise(log_a, means, covariances)
        elif block.kind == "diagonal" and not straight(block, widest):
            self.s = _packed_diagonal(block.s)
        i, j = lower_triangle(means.shape[1])
        self.log_a = np.array(log_a)
        self.means = np.array(means, order="C")
        self.packed = np.array(covariances[:, i, j], order="C")
        width = -(-len(block) // PIECES)
        self.size = -(-width // WIDTH) * WIDTH
        self.pieces = -(-len(block) // self.size)
        self.q0 = np.zeros((self.pieces, len(log_a)))
        self.u = np.zeros((self.pieces, *self.means.shape))
        self.g = np.zeros((self.pieces, *self.packed.shape))
        self.log_p = np.empty(len(block))
        self.q = np.zeros((len(log_a), len(block)) if keep else (0, 0))

    def _with_noise(self, log_a: Array, means: Array, covariances: Array) -> tuple[Array, ...]:
        """Components of ``w``: one for each component of ``v`` and part of the shared noise."""
        assert self.block.common is not None
        shift, noise = self.block.shared_noise
        size = means.shape[1]
        factor = np.linalg.cholesky((covariances[:, None] + noise).reshape(-1, size, size))
        self.whitener = np.linalg.inv(factor)
        log_a = (log_a[:, None] + finite_log(self.block.common.weights[0])).reshape(-1)
        log_a = log_a - np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(1)
        centres = np.broadcast_to(means[:, None] + shift, (len(means), len(noise), size))
        return log_a, centres.reshape(-1, size), self.whitener

    @property
    def work(self) -> int:
        """Number of pairs of a row and a component."""
        return len(self.block) * len(self.log_a) * len(self.s)

    def jobs(self, count: int) -> list[tuple[int, int]]:
        """Split the pieces into about ``count`` jobs."""
        ends = np.unique(np.linspace(0, self.pieces, min(count, self.pieces) + 1).astype(int))
        return [(int(a), int(b)) for a, b in pairwise(ends)]

    def run(self, first: int, last: int) -> None:
        """Pass over some pieces."""
        pass_over(
            *self.functions, self.block.w, self.s, self.block.log_share, self.block.omega,
            self.log_a, self.means, self.packed, self.size, first, last, self.moments,
            self.q0, self.u, self.g, self.log_p, self.q,
        )  # fmt: skip

    def finish(self, sums: Sums) -> None:
        """Bring everything back to the components and dimensions of the truth."""
        index = slice(None) if self.block.index is None else self.block.index
        sums.log_p[index] = self.log_p + self.block.log_unit
        K = len(self.mixture.weights)
        if sums.responsibilities is not None:
            sums.responsibilities[index] = self.q.reshape(K, -1, len(self.block)).sum(1).T
        if not self.moments:
            return
        q0, u = self.q0.sum(0), self.u.sum(0)
        g = _unpacked(self.g.sum(0), u.shape[1])
        V = self.mixture.covariances
        if self.block.projection is not None:
            V = self.block.projection @ V
        if self.block.kind == "shared":  # u and g are those of T^-1/2 (w - m)
            g = g - q0[:, None, None] * np.eye(u.shape[1])
            V = self.whitener @ np.repeat(V, len(q0) // K, axis=0)
        elif self.block.kind == "projected":
            V = self.mixture.covariances
        vu, vgv = np.einsum("kij,ki->kj", V, u), np.swapaxes(V, 1, 2) @ g @ V
        sums.q0 += q0.reshape(K, -1).sum(1)
        sums.vu += vu.reshape(K, -1, vu.shape[1]).sum(1)
        sums.vgv += vgv.reshape(K, -1, *vgv.shape[1:]).sum(1)


def _unpacked(packed: Array, dim: int) -> Array:
    i, j = lower_triangle(dim)
    full = np.empty((len(packed), dim, dim))
    full[:, i, j] = packed
    full[:, j, i] = packed
    return full


def _packed_diagonal(s: Array) -> Array:
    parts, dim, n = s.shape
    packed = np.zeros((parts, dim * (dim + 1) // 2, n))
    packed[:, np.cumsum(np.arange(1, dim + 1)) - 1] = s
    return packed
