"""Pictures; they need the ``plots`` extra."""

from deconflow.plots.checks import diagnostics
from deconflow.plots.corners import corner_figure
from deconflow.plots.marginals import marginals
from deconflow.plots.regression import regression
from deconflow.plots.training import history

__all__ = ["corner_figure", "diagnostics", "history", "marginals", "regression"]


def __dir__() -> list[str]:
    return list(__all__)
