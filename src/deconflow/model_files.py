"""What a model's folder looks like; nothing here needs torch, so that it is read at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FORMAT = 1
DESCRIPTION, WEIGHTS = "model.json", "weights.safetensors"
ABOUT_ONE_RUN = ("checkpoint", "verbose")
"""Parameters that are not part of a model."""
RENAMED = {"members": "n_members", "folds": "n_folds"}
"""Parameters that models of version 0.1 know by another name."""


def check_free(path: Path) -> None:
    """Raise if something else than a model is where a model is to be written."""
    if path.exists() and not (path / DESCRIPTION).is_file():
        raise FileExistsError(
            f"Expected {path} to be free or an older model; got something else there. "
            "Choose another path."
        )


def read_description(path: Path) -> dict[str, Any]:
    """Read what a model folder says of itself, or say in one line why not."""
    if path.is_file():
        raise ValueError(
            f"Expected the folder of a model; got the file {path}. Models are folders of JSON and "
            "safetensors; pickles are not loaded."
        )
    if not (path / DESCRIPTION).is_file() or not (path / WEIGHTS).is_file():
        raise FileNotFoundError(
            f"Expected a model folder with {DESCRIPTION} and {WEIGHTS} at {path}; got none."
        )
    description = read_json(path / DESCRIPTION)
    if description.get("format") != FORMAT:
        raise ValueError(
            f"Expected a model of format {FORMAT} at {path}; got {description.get('format')} "
            f"(deconflow {description.get('deconflow')}). Load it with that version of deconflow."
        )
    _check_weights(path)
    return description


def read_json(file: Path) -> dict[str, Any]:
    """Read an object from a file of a model's folder, or say in one line why not."""
    try:
        content = json.loads(file.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"Expected a whole model at {file.parent}; got a damaged {file.name}: {error}"
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"Expected a whole model at {file.parent}; got a damaged {file.name}.")
    return content


def _check_weights(path: Path) -> None:
    """Raise if the file of arrays is not whole; its arrays are not read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path / WEIGHTS, framework="np"):
            pass
    except SafetensorError as error:
        raise ValueError(
            f"Expected a whole model at {path}; got a damaged {WEIGHTS}: {error}"
        ) from error
