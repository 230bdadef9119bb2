"""Classical deconvolution in few dimensions: kernels and wavelets in Fourier space."""

from deconflow.classical.bandwidths import RULES
from deconflow.classical.conditioning import condition_on_grid
from deconflow.classical.empirical import FourierRows
from deconflow.classical.grid import GridDensity, clip_and_normalise
from deconflow.classical.grid_mixture import grid_mixture
from deconflow.classical.kde import FourierFit, fit_kde
from deconflow.classical.kernels import KERNELS
from deconflow.classical.lattice import MOST_ORDERS, enclose
from deconflow.classical.posterior import WeightedPoints, resample, weighted_points
from deconflow.classical.shrinkage import COARSEST, FINEST, fit_wavelets

__all__ = [
    "COARSEST",
    "FINEST",
    "KERNELS",
    "MOST_ORDERS",
    "RULES",
    "FourierFit",
    "FourierRows",
    "GridDensity",
    "WeightedPoints",
    "clip_and_normalise",
    "condition_on_grid",
    "enclose",
    "fit_kde",
    "fit_wavelets",
    "grid_mixture",
    "resample",
    "weighted_points",
]
