"""Pictures with matplotlib; they need the ``plots`` extra."""

from deconflow.plots.before_after import before_after
from deconflow.plots.corner import corner
from deconflow.plots.diagnostics import diagnostics
from deconflow.plots.marginals import marginals
from deconflow.plots.row import row

__all__ = ["before_after", "corner", "diagnostics", "marginals", "row"]


def __dir__() -> list[str]:
    return list(__all__)
