"""Pictures with matplotlib; they need the ``plots`` extra."""

from deconflow.plots.corner import corner, row
from deconflow.plots.marginals import before_after, diagnostics, marginals

__all__ = ["before_after", "corner", "diagnostics", "marginals", "row"]


def __dir__() -> list[str]:
    return list(__all__)
