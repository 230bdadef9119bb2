"""Pictures with matplotlib; they need the ``plots`` extra."""

from deconflow.plots.pictures import before_after, corner, diagnostics, marginals, row

__all__ = ["before_after", "corner", "diagnostics", "marginals", "row"]


def __dir__() -> list[str]:
    return list(__all__)
