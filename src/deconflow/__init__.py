"""deconflow: the density of the truth, from measurements with known noise."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from deconflow._version import __version__

if TYPE_CHECKING:
    from deconflow import noise, plots, tables, xd
    from deconflow.certificate import Certificate, Finding
    from deconflow.core import observe
    from deconflow.estimators import (
        XDGMM,
        Band,
        BayesianXDGMM,
        Deconvolver,
        DeconvolvingKDE,
        FittedDensity,
        FlowDeconvolver,
        LogSplineDeconvolver,
        Posterior,
        Regression,
        SelfTest,
        Statistics,
        UntrustedFitWarning,
        WaveletDeconvolver,
        load,
        self_test,
    )
    from deconflow.measuring import Efficiency, Selection
    from deconflow.mixtures import GaussianMixture
    from deconflow.observations import Observations
    from deconflow.streams import RowStream, open_rows

_HOMES = {
    "Certificate": "deconflow.certificate",
    "Efficiency": "deconflow.measuring",
    "Finding": "deconflow.certificate",
    "GaussianMixture": "deconflow.mixtures",
    "Observations": "deconflow.observations",
    "Selection": "deconflow.measuring",
    "RowStream": "deconflow.streams",
    "open_rows": "deconflow.streams",
    "observe": "deconflow.core",
}
_PACKAGES = ("noise", "plots", "tables", "xd")

__all__ = [
    "XDGMM",
    "Band",
    "BayesianXDGMM",
    "Certificate",
    "Deconvolver",
    "DeconvolvingKDE",
    "Efficiency",
    "Finding",
    "FittedDensity",
    "FlowDeconvolver",
    "GaussianMixture",
    "LogSplineDeconvolver",
    "Observations",
    "Posterior",
    "Regression",
    "RowStream",
    "Selection",
    "SelfTest",
    "Statistics",
    "UntrustedFitWarning",
    "WaveletDeconvolver",
    "__version__",
    "load",
    "noise",
    "observe",
    "open_rows",
    "plots",
    "self_test",
    "tables",
    "xd",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is first asked for: torch takes seconds."""
    if name in _PACKAGES:
        return import_module(f"deconflow.{name}")
    if name in __all__ or name[:1].isupper():  # a new estimator is found by itself
        home = import_module(_HOMES.get(name, "deconflow.estimators"))
        if name in __all__ or name in home.ESTIMATORS:
            return getattr(home, name)
    raise AttributeError(f"module 'deconflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
