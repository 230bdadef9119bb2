"""Functions for scripts written for other libraries: change one import."""

from deconflow.compat.bovy import extreme_deconvolution

__all__ = ["extreme_deconvolution"]


def __dir__() -> list[str]:
    return list(__all__)
