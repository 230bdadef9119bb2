"""What a model's folder looks like; nothing here needs torch, so that it is read at once."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from deconflow.certificate import Certificate
from deconflow.files import as_path

FORMAT = 4
"""The only format that is read and written."""
DESCRIPTION, WEIGHTS, TABLE = "model.json", "weights.safetensors", "table.json"
CHECKSUMS = "SHA256SUMS"
"""As ``sha256sum`` writes it: ``sha256sum -c SHA256SUMS`` checks a folder without Python."""
LARGEST_TEXT = 2**26
"""Bytes of a file of text: JSON takes about twenty times as much memory when it is read."""
ABOUT_ONE_RUN = ("checkpoint", "verbose")
"""Parameters that are not part of a model."""

NUMBER, NUMBERS = (float, None), [(float, None)]
SAVED_FINDING = {
    "check": str,
    "p": NUMBER,
    "gain": float,
    "columns": [str],
    "numbers": {str: float},
    "reason": str,
    "explains": bool,
}
PARTS_OF_CERTIFICATE = {
    "float | None": NUMBER,
    "int | None": (int, None),
    "bool | None": (bool, None),
    "tuple[float, float] | None": ([float, float], None),
    "tuple[Finding, ...]": [SAVED_FINDING],
}
SAVED_CERTIFICATE = {
    part.name: PARTS_OF_CERTIFICATE[str(part.type)] for part in fields(Certificate)
}
SAVED_DESCRIPTION = {
    "class": str,
    "parameters": {str: object},
    "n_features_in": int,
    "n_latent": int,
    "noise_given": bool,
    "feature_names_in": [str],
    "column_names": ([str], None),
    "units": ([(str, None)], None),
    "rows_of_stream": ([int, int], None),
    "details": {str: object},
}


@dataclass(frozen=True)
class ModelFiles:
    """The files of a model's folder, read at one time and checked.

    Attributes
    ----------
    path : Path
        The folder.
    contents : dict of bytes
        By the names of the files.
    description : dict
        What the estimator wrote of itself.
    """

    path: Path
    contents: dict[str, bytes]
    description: dict[str, Any]


def check_free(path: Path) -> None:
    """Raise if something else than a model is where a model is to be written."""
    if path.exists() and not (path / DESCRIPTION).is_file():
        raise FileExistsError(
            f"Expected {path} to be free or an older model; got something else there. "
            "Choose another path."
        )


def with_checksums(texts: dict[str, str], weights: bytes) -> dict[str, bytes]:
    """Return all files of a folder, by name, from its texts and arrays."""
    contents = {name: text.encode() for name, text in texts.items()} | {WEIGHTS: weights}
    for name, content in contents.items():
        if name != WEIGHTS and len(content) > LARGEST_TEXT:
            raise ValueError(
                f"Expected a {name} of at most {LARGEST_TEXT} bytes; got {len(content)}. Arrays "
                "among the parameters are written there: set those that are long to None."
            )
    return contents | {CHECKSUMS: "".join(map(_line, contents.values(), contents)).encode()}


def read_folder(path: str | Path) -> ModelFiles:
    """Read the files of a model's folder and check them, or say in one line what is wrong."""
    path = as_path(path)
    if path.is_file():
        raise ValueError(
            f"Expected the folder of a model; got the file {path}. Models are folders of JSON and "
            "safetensors; pickles are not loaded."
        )
    if not (path / DESCRIPTION).is_file() or not (path / WEIGHTS).is_file():
        raise FileNotFoundError(
            f"Expected a model folder with {DESCRIPTION} and {WEIGHTS} at {path}; got none."
        )
    contents = _read_at_one_time(path)
    description = parse_json(contents[DESCRIPTION], path / DESCRIPTION)
    _check_format(description, path)
    _check_sums(contents, path)
    check_form(description, SAVED_DESCRIPTION, path / DESCRIPTION)
    for name in ("n_features_in", "n_latent"):
        if description[name] < 1:
            raise _damaged(path / DESCRIPTION, f"{name} is {description[name]}")
    _check_weights(contents[WEIGHTS], path)
    return ModelFiles(path, contents, description)


def parse_json(content: bytes, file: Path) -> dict[str, Any]:
    """Read an object from the content of a model's file, or say in one line why not."""
    try:
        found = json.loads(content.decode())
    except RecursionError as error:
        raise _damaged(file, "it is nested too deeply") from error
    except ValueError as error:  # no JSON, no text, or a number of thousands of digits
        raise _damaged(file, str(error)) from error
    if not isinstance(found, dict):
        raise _damaged(file, "it is no object")
    return found


def check_form(value: Any, form: Any, place: object) -> None:
    """Raise unless a value from JSON has a form.

    A form is a type, a tuple of forms that will do, a list of one form for any number of values
    or of several for as many, or an object with a form for each key, where ``str`` is any.

    Examples
    --------
    >>> check_form({"rows": [1, 2.5]}, {"rows": [float]}, "table.json")
    >>> check_form({"rows": "many"}, {"rows": [float]}, "table.json")
    Traceback (most recent call last):
        ...
    ValueError: Expected a whole model; got a damaged one: rows of table.json is 'many'.
    """
    if isinstance(form, dict) and isinstance(value, dict):
        for key, inner in form.items():
            for name in value if key is str else [key]:
                if name not in value:
                    raise _damaged(place, f"it has no {name}")
                check_form(value[name], inner, f"{name} of {place}")
    elif isinstance(form, list) and isinstance(value, list) and len(form) in (1, len(value)):
        for part, inner in zip(value, form if len(form) > 1 else form * len(value), strict=True):
            check_form(part, inner, place)
    elif not _is(value, form, place):
        shown = repr(value)
        raise ValueError(
            "Expected a whole model; got a damaged one: "
            f"{place} is {shown if len(shown) < 40 else shown[:40] + '...'}."
        )


def _is(value: Any, form: Any, place: object) -> bool:
    """Whether a value is of a type, or has one of several forms."""
    if isinstance(form, tuple):
        return any(_has(value, each, place) for each in form)
    if form is None or isinstance(form, dict | list):
        return form is None and value is None
    if isinstance(value, bool):
        return form in (bool, object)
    return isinstance(value, (int, float) if form is float else form)


def _has(value: Any, form: Any, place: object) -> bool:
    try:
        check_form(value, form, place)
    except ValueError:
        return False
    return True


def _read_at_one_time(path: Path) -> dict[str, bytes]:
    """Read all files that belong together: again, if the folder was replaced meanwhile."""
    while True:
        before = path.stat()
        try:
            contents = {name: _read(path / name) for name in (DESCRIPTION, WEIGHTS)}
            if (path / CHECKSUMS).is_file():
                contents[CHECKSUMS] = _read(path / CHECKSUMS)
            for name in {TABLE, *_listed(contents, path)} - set(contents):
                if (path / name).is_file():
                    contents[name] = _read(path / name)
        except FileNotFoundError:
            if path.stat().st_ino == before.st_ino:
                raise
            continue
        if path.stat().st_ino == before.st_ino:
            return contents


def _read(file: Path) -> bytes:
    if file.name != WEIGHTS and (size := file.stat().st_size) > LARGEST_TEXT:
        raise _damaged(file, f"it has {size} bytes; {LARGEST_TEXT} are the most")
    return file.read_bytes()


def _line(content: bytes, name: str) -> str:
    return f"{hashlib.sha256(content).hexdigest()}  {name}\n"


def _listed(contents: dict[str, bytes], path: Path) -> list[str]:
    """Names of the files whose checksums are given."""
    lines = contents.get(CHECKSUMS, b"").decode(errors="replace").splitlines()
    names = [re.fullmatch(r"[0-9a-f]{64}  (\w[\w. -]*)", line) for line in lines]
    if not all(names):
        raise _damaged(path / CHECKSUMS, "a line is not of its form")
    return [name[1] for name in names if name]


def _check_sums(contents: dict[str, bytes], path: Path) -> None:
    """Raise if a bit of the folder is not as it was written."""
    if CHECKSUMS not in contents:
        raise _damaged(path / CHECKSUMS, "there is none")
    names = _listed(contents, path)
    for name in ({DESCRIPTION, WEIGHTS, TABLE} & set(contents)) - set(names):
        raise _damaged(path / CHECKSUMS, f"it does not name {name}")
    lines = contents[CHECKSUMS].decode().splitlines(keepends=True)
    for name, line in zip(names, lines, strict=True):
        if name not in contents:
            raise _damaged(path / name, "there is none")
        if line != _line(contents[name], name):
            raise _damaged(path / name, f"its checksum is not that in {CHECKSUMS}")


def _check_format(description: dict[str, Any], path: Path) -> None:
    found, writer = description.get("format"), description.get("deconflow")
    if not isinstance(found, int) or isinstance(found, bool):
        raise _damaged(path / DESCRIPTION, f"its format is {found!r}")
    if found != FORMAT:
        raise ValueError(
            f"Expected a model of format {FORMAT} at {path}; got format {found}, written by "
            f"deconflow {writer}. Load it with that version, or fit again."
        )


def _check_weights(content: bytes, path: Path) -> None:
    """Raise if the file of arrays is not whole: its header says more or less than is there."""
    from safetensors import SafetensorError, deserialize

    try:
        deserialize(content)
    except SafetensorError as error:
        raise _damaged(path / WEIGHTS, str(error)) from error


def _damaged(file: object, why: str) -> ValueError:
    name = f"{file.name} at {file.parent}" if isinstance(file, Path) else file
    return ValueError(f"Expected a whole model; got a damaged {name}: {why}.")
