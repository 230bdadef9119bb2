"""How far a fit can be trusted, in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deconflow.noise import Noise
from deconflow.predictive import predictive_ranks, rank_gaps
from deconflow.program.posteriors import answer_posterior

ROWS = 1000
SUSPICIOUS = 0.01
LOW_SIZE = 10


def certificate(
    model: Any, w: NDArray[np.float64], noise: Noise, names: Sequence[str]
) -> list[str]:
    """Return lines about a fit: the estimator's own certificate if it has one, then checks."""
    some = np.sort(np.random.default_rng(0).permutation(len(w))[:ROWS])
    w, noise = w[some], noise.bind(len(w))[some]
    ranks = _ranks(model, w, noise, names)
    if hasattr(model, "certificate_"):
        return [*str(model.summary()).splitlines(), *ranks]
    lines = [_likelihood(model, w, noise)]
    if not getattr(model, "converged_", True):
        lines.append("The fit did not converge: raise --set max_iter=...")
    return [*lines, *ranks, *_effective_sizes(model, w, noise)]


def _likelihood(model: Any, w: NDArray[np.float64], noise: Noise) -> str:
    scores = model.score_observations(w, noise=noise)
    error = scores.std() / np.sqrt(len(scores))
    return f"Mean log p(w) of {len(w)} fitted rows: {scores.mean():.4f} +- {error:.4f}."


def _ranks(model: Any, w: NDArray[np.float64], noise: Noise, names: Sequence[str]) -> list[str]:
    """Hold simulated measurements against the real ones."""
    _, p_values = rank_gaps(predictive_ranks(model, w, noise))
    bad = [name for name, p in zip(names, p_values, strict=True) if p < SUSPICIOUS / len(names)]
    if not bad:
        return ["Simulated measurements look like the real ones in every column."]
    return [
        f"Simulated measurements do not look like the real ones in {', '.join(bad)}: "
        "the errors may be wrong, or the model too simple. See `deconflow plot --kind diagnostics`."
    ]


def _effective_sizes(model: Any, w: NDArray[np.float64], noise: Noise) -> list[str]:
    rows = slice(0, 200)
    size = answer_posterior(model, w[rows], noise[rows], n_draws=10).effective_sample_size
    if size is None:
        return []
    rough = float(np.mean(size < LOW_SIZE))
    verdict = "can be used" if rough < 0.05 else "are rough in many rows: try another method"
    return [
        f"Effective sample size of posteriors: median {np.median(size):.0f}, "
        f"below {LOW_SIZE} in {rough:.0%} of rows; they {verdict}."
    ]
