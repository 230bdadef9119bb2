"""Files of a saved model."""

from deconflow.saving.model_files import (
    ABOUT_ONE_RUN,
    DESCRIPTION,
    FORMAT,
    NUMBERS,
    SAVED_CERTIFICATE,
    TABLE,
    WEIGHTS,
    ModelFiles,
    check_form,
    check_free,
    parse_json,
    read_folder,
    with_checksums,
)

__all__ = [
    "ABOUT_ONE_RUN",
    "DESCRIPTION",
    "FORMAT",
    "NUMBERS",
    "SAVED_CERTIFICATE",
    "TABLE",
    "WEIGHTS",
    "ModelFiles",
    "check_form",
    "check_free",
    "parse_json",
    "read_folder",
    "with_checksums",
]
