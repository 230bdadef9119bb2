"""How long fits of mixtures should take, for those who wait."""

from __future__ import annotations

from collections.abc import Sequence

from deconflow._limits import cpus

CHOOSING, FITTING = "choosing components", "fitting mixtures"
"""What those who wait are told."""
PASSES, PASSES_OF_LADDER, PASSES_FROM_SAMPLE = 250, 80, 40
"""Steps of EM in a fit, on average; those of the ladder stop where rows have no more to say, and
sooner if they start where a fit to a sample ended."""
SECONDS_A_PASS, SECONDS_A_COMPONENT = 2e-4, 1.5e-5
"""What a pass takes beside its sums over rows, and for each component."""


def seconds_of_fits(
    n_gaussians: int,
    dim: int,
    components: Sequence[int],
    starts: int,
    threads: int | None,
    passes: int = PASSES,
) -> list[float]:
    """Return the seconds that fits of so many components should take, each from some starts.

    The rows count by the Gaussians that their noise is made of.
    """
    workers = min(cpus(threads), starts)
    each = SECONDS_A_COMPONENT + n_gaussians * seconds_of_pair(dim)
    return [starts / workers * passes * (SECONDS_A_PASS + n * each) for n in components]


def seconds_of_pair(dim: int) -> float:
    """Return what one row costs in one component: see ``results/bayes_speed.json``."""
    return 1e-9 * (5 + 3 * dim + 0.5 * dim**2)
