"""Saved models: their files, and the values in them."""

from deconflow.saving.model_files import (
    ABOUT_ONE_RUN,
    DESCRIPTION,
    FORMAT,
    TABLE,
    WEIGHTS,
    ModelFiles,
    check_free,
    parse_json,
    read_folder,
    with_checksums,
)
from deconflow.saving.values import from_json, refuse, to_json

__all__ = [
    "ABOUT_ONE_RUN",
    "DESCRIPTION",
    "FORMAT",
    "TABLE",
    "WEIGHTS",
    "ModelFiles",
    "check_free",
    "from_json",
    "parse_json",
    "read_folder",
    "refuse",
    "to_json",
    "with_checksums",
]
