r"""Which of some numbers of components and floors: a choice by fits that leave out a fold.

Noisy held-out likelihood hardly sees a density that has collapsed onto spikes narrower than the
noise. Averages of several fits do not collapse together, so these are compared, and the average
takes each setting by its share (:mod:`deconflow.xd.shares`). Over folds it is the fits that were
compared that are averaged; over starts, new ones to all rows. Of single fits, the one with the
largest entropy is taken among those that the held-out rows cannot tell apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import cycle, islice, product, repeat

import numpy as np
import torch
from numpy.typing import NDArray

from deconflow._types import Array
from deconflow.mixtures import mix
from deconflow.observations import Observations
from deconflow.progress import SILENT, Progress
from deconflow.xd.averaged import AveragedFit, average
from deconflow.xd.cross_fits import (
    Candidate,
    CrossFits,
    Table,
    failure,
    make_folds,
    successful,
)
from deconflow.xd.em import EMResult
from deconflow.xd.fit import FITTING, FitSettings, PreparedData
from deconflow.xd.layout import KernelRows
from deconflow.xd.shares import SMALLEST_SHARE

CHOOSING = "choosing components"
"""Stage of the progress bar."""
STARTS_TO_COMPARE = 4


def choose(
    data: Observations,
    settings: FitSettings,
    n_components: Sequence[int],
    floors: Sequence[float],
    *,
    n_average: int,
    folds: int,
    rng: np.random.RandomState,
    progress: Progress = SILENT,
) -> tuple[list[FitSettings], Table]:
    """Choose settings for each of ``n_average`` fits by cross-validation on noisy rows.

    Every row is held out once. The differences that matter are a few thousandths of a nat per row,
    as large as the error of one held-out fifth of 20,000 rows. The table is that of
    :meth:`CrossFits.table`.
    """
    cross = CrossFits(data, folds, rng)
    several = _settings(settings, n_components, floors)
    candidates = _compared(cross, several, STARTS_TO_COMPARE, n_average > 1, progress)
    behind, error = cross.behind(candidates)
    entropy = [each.entropy(20_000) for each in candidates]
    if n_average > 1:
        shares = cross.shares(candidates, 0.5 / n_average)
    else:
        shares = np.eye(len(candidates))[np.argmax(np.where(behind <= error, entropy, -np.inf))]
    counts = apportioned(shares, n_average)
    chosen = [candidates[i].settings for i in np.repeat(np.arange(len(counts)), counts)]
    return chosen, cross.table(candidates, counts / n_average, entropy)


def average_over_folds(
    data: Observations,
    settings: FitSettings,
    n_components: Sequence[int],
    floors: Sequence[float],
    *,
    folds: int,
    starts: int,
    rng: np.random.RandomState,
    progress: Progress = SILENT,
) -> AveragedFit:
    """Average settings by cross-validation on noisy rows: the very fits that are compared."""
    cross = CrossFits(data, folds, rng)
    several = _settings(settings, n_components, floors)
    candidates = _compared(cross, several, starts, True, progress)
    return average(cross, candidates, cross.shares(candidates, SMALLEST_SHARE))


def _settings(
    settings: FitSettings, n_components: Sequence[int], floors: Sequence[float]
) -> list[FitSettings]:
    pairs = product(sorted(n_components), sorted(floors))
    return [replace(settings, n_components=count, floor=floor) for count, floor in pairs]


def _compared(
    cross: CrossFits,
    several: Sequence[FitSettings],
    starts: int,
    averaged: bool,
    progress: Progress,
) -> list[Candidate]:
    """Fit all settings without each fold: the average of some starts, or the best of them."""
    candidates = [cross.candidate(settings) for settings in several]
    progress.begin(CHOOSING, steps=len(cross.folds) * len(candidates))
    for fold in cross:
        for candidate in candidates:
            # All starts of a single Gaussian end in the same place.
            alike = averaged and candidate.settings.n_components == 1
            cross.add(candidate, fold, [None] * (1 if alike else starts), averaged=averaged)
            progress.advance()
    return candidates


def apportioned(shares: Array, count: int) -> NDArray[np.int64]:
    """Share out ``count`` fits: whole ones first, the rest to the largest remainders."""
    wanted = count * shares / shares.sum()
    counts = np.floor(wanted + 1e-9).astype(np.int64)
    left = np.argsort(counts - wanted, kind="stable")[: count - counts.sum()]
    counts[left] += 1
    return counts


def fit_average(
    data: Observations,
    settings: Sequence[FitSettings],
    over: str,
    n_init: int,
    rng: np.random.RandomState,
    progress: Progress = SILENT,
) -> EMResult:
    """Average the densities of several fits, one for each of the settings.

    They differ by their random ``"starts"``, or by the one of ``"folds"`` that each leaves out. The
    fit of largest likelihood reports.
    """
    parts: Iterable[PreparedData]
    if over == "folds":
        folds = make_folds(data, len(settings), rng)
        each_fold = islice(cycle(folds), len(settings))  # of few groups there are fewer folds
        parts = (PreparedData(data[torch.from_numpy(fold.kept)]) for fold in each_fold)
    else:
        whole = PreparedData(data)
        parts = repeat(whole, len(settings))
    progress.begin(FITTING, steps=len(settings))
    results = []
    for part, each in zip(parts, settings, strict=True):
        results.append(part.fit_best(each, n_init, rng))
        progress.advance()
    best = max(results, key=lambda result: result.log_likelihood)
    good = results if over == "folds" else _not_stuck(results, settings, whole.rows)
    mixtures = [result.mixture for result in good]
    return replace(best, mixture=mix(mixtures), averaged=mixtures)


def _not_stuck(
    results: list[EMResult], settings: Sequence[FitSettings], rows: KernelRows
) -> list[EMResult]:
    """Leave out the fits that got stuck, judged by others of the same components and floor."""
    groups: dict[tuple[int, float], list[EMResult]] = {}
    for result, each in zip(results, settings, strict=True):
        groups.setdefault((each.n_components, each.floor), []).append(result)
    kept = (successful(group, failure(count, rows)) for (count, _), group in groups.items())
    return [result for group in kept for result in group]
