r"""Which of some numbers of components and floors: a choice by fits that leave out a fold.

Noisy held-out likelihood hardly sees a density that has collapsed onto spikes narrower than the
noise. Averages of several fits do not collapse together, so these are compared, and the average
takes each setting by its share (:mod:`deconflow.xd.shares`). Of single fits, the one with the
largest entropy is taken among those that the held-out rows cannot tell apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product, repeat

import numpy as np
import torch
from tqdm.auto import tqdm

from deconflow.mixtures import mix
from deconflow.observations import Observations
from deconflow.xd.cross_fits import (
    CrossFits,
    Table,
    held_out_of,
    make_folds,
    successful,
)
from deconflow.xd.em import EMResult
from deconflow.xd.fit import FitSettings, PreparedData
from deconflow.xd.shares import shares_of

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
    progress: bool = False,
) -> tuple[list[FitSettings], Table]:
    """Choose settings for each of ``n_average`` fits by cross-validation on noisy rows.

    Every row is held out once. The differences that matter are a few thousandths of a nat per row,
    as large as the error of one held-out fifth of 20,000 rows. The table is that of
    :meth:`CrossFits.table`.
    """
    cross = CrossFits(data, folds, rng)
    candidates = [
        cross.candidate(replace(settings, n_components=count, floor=floor))
        for count, floor in product(sorted(n_components), sorted(floors))
    ]
    total = len(cross.folds) * len(candidates)
    what = {"desc": "choosing components", "unit": "fit", "smoothing": 0}
    with tqdm(total=total, disable=not progress, **what) as bar:
        for fold in cross:
            for candidate in candidates:
                cross.add(candidate, fold, [None] * STARTS_TO_COMPARE, averaged=n_average > 1)
                bar.update()
    behind, error = cross.behind(candidates)
    entropy = [each.entropy(20_000) for each in candidates]
    if n_average > 1:
        shares = shares_of(held_out_of(candidates), cross.weights, rng, 0.5 / n_average)
    else:
        shares = np.eye(len(candidates))[np.argmax(np.where(behind <= error, entropy, -np.inf))]
    edges = np.cumsum(shares)
    places = (np.arange(n_average) + 0.5) / n_average * edges[-1]
    chosen = [candidates[i].settings for i in np.searchsorted(edges, places)]
    return chosen, cross.table(candidates, shares, entropy)


def fit_average(
    data: Observations,
    settings: Sequence[FitSettings],
    over: str,
    n_init: int,
    rng: np.random.RandomState,
    progress: bool = False,
) -> EMResult:
    """Average the densities of several fits, one for each of the settings.

    They differ by their random ``"starts"``, or by the one of ``"folds"`` that each leaves out. The
    fit of largest likelihood reports.
    """
    parts: Iterable[PreparedData]
    if over == "folds":
        folds = make_folds(len(data), len(settings), rng)
        parts = (PreparedData(data[torch.from_numpy(fold.kept)]) for fold in folds)
    else:
        parts = repeat(PreparedData(data), len(settings))
    each_part = tqdm(
        zip(parts, settings, strict=True), "mixtures to average", len(settings),
        unit="fit", disable=not progress,
    )  # fmt: skip
    results = [part.fit_best(each, n_init, rng) for part, each in each_part]
    best = max(results, key=lambda result: result.log_likelihood)
    good = results if over == "folds" else _not_stuck(results, settings)
    mixtures = [result.mixture for result in good]
    return replace(best, mixture=mix(mixtures), averaged=mixtures)


def _not_stuck(results: list[EMResult], settings: Sequence[FitSettings]) -> list[EMResult]:
    """Leave out the fits that got stuck, judged by others of the same components and floor."""
    pairs = list(zip(results, settings, strict=True))
    kinds = sorted({(each.n_components, each.floor) for each in settings})
    groups = [
        [result for result, each in pairs if (each.n_components, each.floor) == kind]
        for kind in kinds
    ]
    return [result for group in groups for result in successful(group)]
