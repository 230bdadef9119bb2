"""Classical deconvolution in few dimensions, by kernels and wavelets; densities on a grid."""

from deconflow.classical.empirical import FourierRows
from deconflow.classical.grid import UNBOUNDED, GridDensity
from deconflow.classical.grid_mixture import grid_mixture
from deconflow.classical.kde import fit_kde
from deconflow.classical.lattice import MOST_ORDERS, FourierFit, enclose
from deconflow.classical.posterior import WeightedPoints, resample, weighted_points
from deconflow.classical.suitable import refuse_unsuitable
from deconflow.classical.wavelets import COARSEST, FINEST, fit_wavelets

__all__ = [
    "COARSEST",
    "FINEST",
    "MOST_ORDERS",
    "UNBOUNDED",
    "FourierFit",
    "FourierRows",
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
