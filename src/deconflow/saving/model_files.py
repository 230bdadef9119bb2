"""What a model's folder looks like; nothing here needs torch, so that it is read at once."""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deconflow.files import as_path
from deconflow.saving.values import from_json

#: The only format that is read and written.
FORMAT = 5
DESCRIPTION, WEIGHTS, TABLE = "model.json", "weights.safetensors", "table.json"
#: As ``sha256sum`` writes it: ``sha256sum -c SHA256SUMS`` checks a folder without Python.
CHECKSUMS = "SHA256SUMS"
#: Bytes of a file of text: JSON takes about twenty times as much memory when it is read.
LARGEST_TEXT = 2**26
#: Parameters that are not part of a model.
ABOUT_ONE_RUN = ("checkpoint", "verbose")

SAVED_DESCRIPTION = {
    "class": str,
    "parameters": dict[str, Any],
    "n_features_in": int,
    "fit": {"names": list[str]},
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
    contents = {name: text.encode() for name, text in texts.items()}
    for name, content in contents.items():
        if len(content) > LARGEST_TEXT:
            raise ValueError(
                f"Expected a {name} of at most {LARGEST_TEXT} bytes; got {len(content)}. Arrays "
                "among the parameters are written there: set those that are long to None."
            )
    contents[WEIGHTS] = weights
    return contents | {CHECKSUMS: _sums(contents, contents).encode()}


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
    _check_format(parse_json(contents[DESCRIPTION], path / DESCRIPTION), path)
    _check_sums(contents, path)
    description = parse_json(contents[DESCRIPTION], path / DESCRIPTION, SAVED_DESCRIPTION)
    if description["n_features_in"] < 1:
        raise _damaged(path / DESCRIPTION, f"n_features_in is {description['n_features_in']}")
    from safetensors import SafetensorError, deserialize

    try:  # whether the header says more or less than is there
        deserialize(contents[WEIGHTS])
    except SafetensorError as error:
        raise _damaged(path / WEIGHTS, str(error)) from error
    return ModelFiles(path, contents, description)


def parse_json(content: bytes, file: Path, kinds: dict[str, Any] | None = None) -> dict[str, Any]:
    """Read an object, with entries of these types, or say in one line why not."""
    try:
        found = from_json(json.loads(content.decode()), dict[str, Any], {}, "it")
        return dict(from_json(found, kinds or {}, {}, "it"))
    except RecursionError as error:
        raise _damaged(file, "it is nested too deeply") from error
    except ValueError as error:  # no JSON, no text, a number of thousands of digits, another value
        raise _damaged(file, str(error)) from error


def _read_at_one_time(path: Path) -> dict[str, bytes]:
    """Read all files that belong together: again, if the folder was replaced meanwhile."""
    while True:
        before = path.stat().st_ino
        try:
            contents = {name: _read(path / name) for name in (DESCRIPTION, WEIGHTS)}
            if (path / CHECKSUMS).is_file():
                contents[CHECKSUMS] = _read(path / CHECKSUMS)
            for name in {TABLE, *_listed(contents, path)} - set(contents):
                if (path / name).is_file():
                    contents[name] = _read(path / name)
            if path.stat().st_ino == before:
                return contents
        except FileNotFoundError:
            if path.stat().st_ino == before:
                raise


def _read(file: Path) -> bytes:
    if file.name != WEIGHTS and (size := file.stat().st_size) > LARGEST_TEXT:
        raise _damaged(file, f"it has {size} bytes; {LARGEST_TEXT} are the most")
    return file.read_bytes()


def _sums(contents: dict[str, bytes], names: Iterable[str]) -> str:
    """Write the checksums of these files, a line for each."""
    return "".join(f"{hashlib.sha256(contents[name]).hexdigest()}  {name}\n" for name in names)


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
        if line != _sums(contents, [name]):
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


def _damaged(file: Path, why: str) -> ValueError:
    return ValueError(f"Expected a whole model; got a damaged {file.name} at {file.parent}: {why}.")
