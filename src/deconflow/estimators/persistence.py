"""Saving and loading fitted models: safetensors and JSON, never a pickle."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

import deconflow

FORMAT = 1
DESCRIPTION, WEIGHTS = "model.json", "weights.safetensors"


def write_model(path: str | Path, description: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Write a model folder, all or nothing; an older model of that name is replaced."""
    path = Path(path)
    if path.exists() and not (path / DESCRIPTION).is_file():
        raise FileExistsError(
            f"Expected {path} to be free or an older model; got something else there. "
            "Choose another path."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        header = {"format": FORMAT, "deconflow": deconflow.__version__, **description}
        (new / DESCRIPTION).write_text(json.dumps(header, indent=1) + "\n")
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, new / WEIGHTS)
        new.chmod(0o755)
        _swap(new, path)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def read_model(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a model folder, or say in one line why not."""
    path = Path(path)
    if not (path / DESCRIPTION).is_file() or not (path / WEIGHTS).is_file():
        raise FileNotFoundError(
            f"Expected a model folder with {DESCRIPTION} and {WEIGHTS} at {path}; got none."
        )
    try:
        description = json.loads((path / DESCRIPTION).read_text())
        weights = load_file(path / WEIGHTS)
    except (json.JSONDecodeError, UnicodeDecodeError, SafetensorError) as error:
        raise ValueError(
            f"Expected a whole model at {path}; got a damaged file: {error}"
        ) from error
    if not isinstance(description, dict):
        raise ValueError(f"Expected a whole model at {path}; got a damaged {DESCRIPTION}.")
    if description.get("format") != FORMAT:
        raise ValueError(
            f"Expected a model of format {FORMAT} at {path}; got {description.get('format')} "
            f"(deconflow {description.get('deconflow')}). Load it with that version of deconflow."
        )
    return description, weights


def _swap(new: Path, path: Path) -> None:
    """Move the new folder into place, with the old one aside until that has worked."""
    if not path.exists():
        os.replace(new, path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent)) / "model"
    os.replace(path, old)
    try:
        os.replace(new, path)
    except OSError:
        os.replace(old, path)
        raise
    finally:
        shutil.rmtree(old.parent, ignore_errors=True)
