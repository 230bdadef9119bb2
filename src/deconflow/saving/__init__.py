"""Saved models: their files, and the values in them."""

from deconflow.saving.model_files import (
    ABOUT_ONE_RUN,
    DESCRIPTION,
    FORMAT,
    TABLE,
    WEIGHTS,
    ModelFiles,
    check_free,
    from_json,
    parse_json,
    read_folder,
    refuse,
    to_json,
    with_checksums,
)

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
