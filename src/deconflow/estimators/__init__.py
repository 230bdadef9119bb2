"""Estimators: the library's fronts, in scikit-learn's shape, from each module of this package."""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from deconflow.answers import (
    Components,
    Figures,
    Refit,
    Regression,
    SelfTest,
    Statistics,
    components_of,
)
from deconflow.estimators.base import DensityEstimator, self_test
from deconflow.estimators.deconvolver import UntrustedFitWarning
from deconflow.fits import (
    Band,
    BlendFit,
    FittedDensity,
    GridFit,
    MixtureFit,
    Posterior,
    Replicates,
    column_numbers,
)
from deconflow.models import read_model
from deconflow.observations import OutOfReachError
from deconflow.saving import ModelFiles, read_folder

if TYPE_CHECKING:
    from deconflow.estimators.deconvolver import Deconvolver
    from deconflow.estimators.flow import FlowDeconvolver
    from deconflow.estimators.grids import (
        DeconvolvingKDE,
        LogSplineDeconvolver,
        WaveletDeconvolver,
    )
    from deconflow.estimators.xd import XDGMM, BayesianXDGMM

for _each in iter_modules(__path__):
    import_module(f"{__name__}.{_each.name}")
#: What a model folder may name; nothing else is ever looked up.
ESTIMATORS = {cls.__name__: cls for cls in DensityEstimator.__subclasses__()}
globals().update(ESTIMATORS)


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
    "column_numbers",
    "components_of",
    "load",
    "of_files",
    "self_test",
]
