"""Pictures; they need the ``plots`` extra."""

from deconflow.plots.before_after import before_after
from deconflow.plots.checks import diagnostics
from deconflow.plots.corners import corner_figure
from deconflow.plots.kinds import KINDS, picture
from deconflow.plots.look import Look
from deconflow.plots.marginals import marginals
from deconflow.plots.regression import regression
from deconflow.plots.row import row
from deconflow.plots.training import history

__all__ = [
    "KINDS",
    "Look",
    "before_after",
    "corner_figure",
    "diagnostics",
    "history",
    "marginals",
    "picture",
    "regression",
    "row",
]


def __dir__() -> list[str]:
    return list(__all__)
