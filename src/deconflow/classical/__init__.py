"""Classical deconvolution in few dimensions, by kernels and wavelets; densities on a grid."""

from deconflow.classical.fourier import MOST_ORDERS, FourierFit, enclose
from deconflow.classical.grid import UNBOUNDED, GridDensity, grid_mixture, refuse_unsuitable
from deconflow.classical.kde import fit_kde
from deconflow.classical.posterior import WeightedPoints, resample, weighted_points
from deconflow.classical.wavelets import COARSEST, FINEST, fit_wavelets

__all__ = [
    "COARSEST",
    "FINEST",
    "MOST_ORDERS",
    "UNBOUNDED",
    "FourierFit",
    "GridDensity",
    "WeightedPoints",
    "enclose",
    "fit_kde",
    "fit_wavelets",
    "grid_mixture",
    "refuse_unsuitable",
    "resample",
    "weighted_points",
]
