"""The version, by itself, so that any module may ask for it."""

__version__ = "0.2.0"
