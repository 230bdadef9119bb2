"""Estimators: the library's fronts, in scikit-learn's shape."""

from pathlib import Path

from deconflow.estimators.bands import Band
from deconflow.estimators.base import DensityEstimator
from deconflow.estimators.bayesian import BayesianXDGMM
from deconflow.estimators.blend_fit import BlendFit
from deconflow.estimators.components import Components, components_of
from deconflow.estimators.deconvolver import Deconvolver, UntrustedFitWarning
from deconflow.estimators.fitted import FittedDensity
from deconflow.estimators.flow import FlowDeconvolver
from deconflow.estimators.grid_fit import GridFit
from deconflow.estimators.kde import DeconvolvingKDE
from deconflow.estimators.log_spline import LogSplineDeconvolver
from deconflow.estimators.mixture_fit import MixtureFit
from deconflow.estimators.persistence import read_model
from deconflow.estimators.posterior import Posterior, column_numbers
from deconflow.estimators.refits import run_self_test
from deconflow.estimators.regression import Regression
from deconflow.estimators.replicates import Replicates
from deconflow.estimators.self_test import Refit, SelfTest
from deconflow.estimators.statistics import Figures, Statistics
from deconflow.estimators.wavelet import WaveletDeconvolver
from deconflow.estimators.weighted_fit import WeightedFit
from deconflow.estimators.xd import XDGMM
from deconflow.model_files import ModelFiles, read_folder
from deconflow.observations import OutOfReachError

ESTIMATORS = {
    cls.__name__: cls
    for cls in (
        Deconvolver,
        XDGMM,
        BayesianXDGMM,
        FlowDeconvolver,
        LogSplineDeconvolver,
        DeconvolvingKDE,
        WaveletDeconvolver,
    )
}
"""What a model folder may name; nothing else is ever looked up."""


def load(path: str | Path) -> DensityEstimator:
    """Read a model of any estimator from the folder that ``save`` wrote."""
    return of_files(read_folder(path))


def of_files(files: ModelFiles) -> DensityEstimator:
    """Make a model of the files of its folder, which were read before."""
    name = files.description["class"]
    if name not in ESTIMATORS:
        raise ValueError(
            f"Expected a model of {', '.join(ESTIMATORS)} at {files.path}; got {name!r}. Load it "
            f"with deconflow {files.description.get('deconflow')}, which wrote it."
        )
    return read_model(files, ESTIMATORS[name], {})


__all__ = [
    "ESTIMATORS",
    "XDGMM",
    "Band",
    "BayesianXDGMM",
    "BlendFit",
    "Components",
    "Deconvolver",
    "DeconvolvingKDE",
    "DensityEstimator",
    "Figures",
    "FittedDensity",
    "FlowDeconvolver",
    "GridFit",
    "LogSplineDeconvolver",
    "MixtureFit",
    "OutOfReachError",
    "Posterior",
    "Refit",
    "Regression",
    "Replicates",
    "SelfTest",
    "Statistics",
    "UntrustedFitWarning",
    "WaveletDeconvolver",
    "WeightedFit",
    "column_numbers",
    "components_of",
    "load",
    "of_files",
    "run_self_test",
]
