"""What each candidate of a ``Deconvolver`` would have answered alone."""

from __future__ import annotations

from typing import Any

from benchmarks.laws import Array


def log_densities(model: Any, v: Array) -> dict[str, Array]:
    """Return ``log p(v)`` of every candidate of a fitted model by its name; empty without any."""
    candidates = getattr(model, "candidates_", {})
    return {name: density.log_prob(v) for name, density in candidates.items()}


def shares(model: Any) -> dict[str, float] | None:
    """Return the weight of every candidate; None where a model has none."""
    weights = getattr(model, "weights_", None)
    return {k: float(w) for k, w in weights.items()} if isinstance(weights, dict) else None
