"""Densities of true values that fits give, and what each returns: posteriors, bands, columns."""

from typing import TYPE_CHECKING

from deconflow.extras import of_flows
from deconflow.fits.bands import (
    FINE_POINTS,
    POINTS,
    Band,
    Replicates,
    checked_points,
    fine_grid,
    quantiles_of,
)
from deconflow.fits.fitted import FittedDensity
from deconflow.fits.mixture_fit import BlendFit, GridFit, MixtureFit
from deconflow.fits.posterior import Posterior, column_numbers
from deconflow.fits.reduced_fits import (
    BoundedFit,
    GivenFit,
    PartsFit,
    folded,
    log_densities_of_parts,
)

if TYPE_CHECKING:
    from deconflow.fits.weighted_fit import WeightedFit

__all__ = [
    "FINE_POINTS",
    "POINTS",
    "Band",
    "BlendFit",
    "BoundedFit",
    "FittedDensity",
    "GivenFit",
    "GridFit",
    "MixtureFit",
    "PartsFit",
    "Posterior",
    "Replicates",
    "WeightedFit",
    "checked_points",
    "column_numbers",
    "fine_grid",
    "folded",
    "log_densities_of_parts",
    "quantiles_of",
]

__getattr__ = of_flows(__name__, {"WeightedFit": "weighted_fit"})
