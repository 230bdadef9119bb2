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
from typing import Any

import numpy as np

from deconflow._limits import cpus
from deconflow._types import Array
from deconflow.mixtures import GaussianMixture
from deconflow.xd.kernel import generic
from deconflow.xd.kernel.passes import LARGEST, WIDTH, compiled, pass_over, pointers
from deconflow.xd.layout import Block, KernelRows, finite_log, lower_triangle

#: Variances, in the units of the rows, whose product may overflow.
WIDE = 1e30
#: Each block is added up in this many pieces, so that sums do not depend on the threads.
PIECES = 16
#: Pairs of a row and a component that are worth a thread.
SMALLEST_JOB = 100_000


@dataclass
class Sums:
    """What one pass over the rows adds up.

    Attributes
    ----------
    log_p : array
        ``(N,)`` log-likelihood of each row, in the user's units.
    q0, vu, vgv : array
        ``(K,)``, ``(K, D)``, ``(K, D, D)``; see the module. In the units of the rows.
    responsibilities : array
        ``(N, K)``; empty unless asked for.
    """

    log_p: Array
    q0: Array
    vu: Array
    vgv: Array
    responsibilities: Array


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
    kept = np.empty((rows.n_rows if responsibilities else 0, K))
    sums = Sums(np.empty(rows.n_rows), np.zeros(K), np.zeros((K, D)), np.zeros((K, D, D)), kept)
    passes = [Pass(block, mixture, moments, responsibilities) for block in rows.blocks]
    worth = sum(one.work for one in passes) // SMALLEST_JOB
    workers = min(cpus(threads), worth) if worth > 1 else 1
    jobs: list[tuple[Pass, int, int]] = []
    for one in passes:
        count = min(workers, one.pieces)
        ends = [one.pieces * i // count for i in range(count + 1)]
        jobs += [(one, *pair) for pair in pairwise(ends)]
    run_all: Any = _pool(workers, os.getpid()).map if workers > 1 else map
    list(run_all(lambda job: job[0].run(*job[1:]), jobs))
    for one in passes:
        one.finish(sums)
    return sums


@cache
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    """Keep threads from pass to pass; a forked process has none of them, and needs its own."""
    return ThreadPoolExecutor(workers)


class Pass:
    """One block seen by one mixture."""

    def __init__(self, block: Block, mixture: GaussianMixture, moments: bool, keep: bool) -> None:
        self.block, self.mixture, self.moments, self.s = block, mixture, moments, block.s
        log_a, means, covariances = finite_log(mixture.weights), mixture.means, mixture.covariances
        if block.projection is not None:
            R = block.projection
            means, covariances = means @ R.T, R @ covariances @ R.T
        _, dim, n = block.w.shape
        widest = max(block.widest, float(np.diagonal(covariances, axis1=1, axis2=2).max()))
        shared = block.kind == "shared"
        if block.kind != "projected" and dim <= LARGEST and (shared or widest <= WIDE):
            self.functions = compiled(dim, block.kind)
        elif shared:
            self.functions = pointers(generic.shared_density, generic.shared_moments)
        else:
            self.functions = pointers(generic.density, generic.moments)
            if block.kind == "diagonal":
                self.s = np.zeros((len(block.s), dim * (dim + 1) // 2, n))
                self.s[:, np.cumsum(np.arange(1, dim + 1)) - 1] = block.s
        if block.common is not None:  # components of ``w``: one for each part of the shared noise
            shares, shifts, noise = block.common
            factor = np.linalg.cholesky((covariances[:, None] + noise).reshape(-1, dim, dim))
            self.whitener = covariances = np.linalg.inv(factor)
            log_a = (log_a[:, None] + finite_log(shares)).reshape(-1)
            log_a = log_a - np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(1)
            centres = np.broadcast_to(means[:, None] + shifts, (len(means), len(noise), dim))
            means = centres.reshape(-1, dim)
        i, j = lower_triangle(means.shape[1])
        self.log_a, self.means = np.array(log_a), np.array(means, order="C")
        self.packed = np.array(covariances[:, i, j], order="C")
        self.size = -(-n // (PIECES * WIDTH)) * WIDTH
        self.pieces = -(-n // self.size)
        self.work = n * len(self.log_a) * len(self.s)
        self.q0 = np.zeros((self.pieces, len(log_a)))
        self.u = np.zeros((self.pieces, *self.means.shape))
        self.g = np.zeros((self.pieces, *self.packed.shape))
        self.log_p, self.q = np.empty(n), np.zeros((len(log_a), n) if keep else (0, 0))

    def run(self, first: int, last: int) -> None:
        """Pass over some pieces."""
        pass_over(
            *self.functions, self.block.w, self.s, self.block.log_share, self.block.omega,
            self.log_a, self.means, self.packed, self.size, first, last, self.moments,
            self.q0, self.u, self.g, self.log_p, self.q,
        )  # fmt: skip

    def finish(self, sums: Sums) -> None:
        """Bring everything back to the components and dimensions of the truth."""
        block, K, V = self.block, len(self.mixture.weights), self.mixture.covariances
        sums.log_p[block.index] = self.log_p + block.log_unit
        if len(self.q) > 0:
            sums.responsibilities[block.index] = self.q.reshape(K, -1, len(self.log_p)).sum(1).T
        if not self.moments:
            return
        q0, u = self.q0.sum(0), self.u.sum(0)
        i, j = lower_triangle(u.shape[1])
        g = np.empty((len(u), u.shape[1], u.shape[1]))
        g[:, i, j] = g[:, j, i] = self.g.sum(0)
        if block.projection is not None:
            V = block.projection @ V
        if block.kind == "shared":  # u and g are those of T^-1/2 (w - m)
            g = g - q0[:, None, None] * np.eye(u.shape[1])
            V = self.whitener @ np.repeat(V, len(q0) // K, axis=0)
        vu, vgv = np.einsum("kij,ki->kj", V, u), np.swapaxes(V, 1, 2) @ g @ V
        sums.q0 += q0.reshape(K, -1).sum(1)
        sums.vu += vu.reshape(K, -1, vu.shape[1]).sum(1)
        sums.vgv += vgv.reshape(K, -1, *vgv.shape[1:]).sum(1)
