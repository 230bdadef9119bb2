"""Values of a fit as JSON and arrays, and back; and what a model's folder looks like.

Numbers, text, arrays, dataclasses, and lists, tuples and mappings of these are written as they are.
They are read by the types that the fields of dataclasses declare: no name in a file is looked up,
and nothing is executed but constructors and ``validate``, the method by which a class refuses
values that cannot be its own. Nothing here needs torch, so that a folder is read at once.
"""

import hashlib
import json
import re
import types
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from deconflow.checks import refuse_if
from deconflow.files import as_path

Arrays = dict[str, Any]
#: The only key of what stands in JSON for an array: its name in the other file.
ARRAY = "array"


def to_json(value: Any, arrays: Arrays, place: str) -> Any:
    """Return what JSON holds of a value; arrays are put under the names of their places."""
    if hasattr(value, "detach"):  # a tensor of torch
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        arrays[place] = np.array(value, order="C")
        return {ARRAY: place}
    if isinstance(value, np.generic):
        value = value.item()
    if is_dataclass(value) and not isinstance(value, type):
        if hasattr(value, "validate"):
            value.validate()
        value = {name: getattr(value, name) for name in _types(type(value))}
    if isinstance(value, Mapping):
        return {str(key): to_json(each, arrays, f"{place}.{key}") for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(each, arrays, f"{place}.{i}") for i, each in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(
        f"Expected numbers, text and arrays in a model that is saved; got {value!r} as {place}, "
        "which JSON cannot hold."
    )


def from_json(value: Any, kind: Any, arrays: Arrays, place: str) -> Any:
    """Return the value that :func:`to_json` was given, or raise an error that names the place.

    Parameters
    ----------
    value
        What JSON holds.
    kind
        A type; a dictionary with the type of each entry that a mapping must have; or a list of one
        of these.
    arrays
        Arrays by their names.
    place
        What errors call the value.

    Examples
    --------
    >>> from_json({"rows": [1, 2]}, {"rows": tuple[int, ...]}, {}, "table")
    {'rows': (1, 2)}
    >>> from_json({"rows": "many"}, {"rows": list[int]}, {}, "table")
    Traceback (most recent call last):
        ...
    ValueError: table.rows is 'many'
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _one_of(value, inner, arrays, place)
    if isinstance(kind, dict) and isinstance(value, dict):
        return value | _entries(value, kind, arrays, place)
    if is_dataclass(kind) and isinstance(value, dict):
        return _made(kind, value, arrays, place)
    if isinstance(kind, list) and isinstance(value, list):
        return [from_json(v, kind[0], arrays, f"{place}.{i}") for i, v in enumerate(value)]
    if origin in (list, tuple) and isinstance(value, list):
        each = inner[:1] * len(value) if origin is list or inner[-1] is ... else inner
        if len(each) == len(value):
            parts = enumerate(zip(value, each, strict=True))
            return origin(from_json(v, k, arrays, f"{place}.{i}") for i, (v, k) in parts)
    if origin is dict and isinstance(value, dict):
        key, kinds = inner[0], dict.fromkeys(value, inner[1])
        return {key(k): v for k, v in _entries(value, kinds, arrays, place).items()}
    if isinstance(value, dict) and value.keys() == {ARRAY}:
        return _array(value[ARRAY], kind, arrays, place)
    if _is_plain(value, kind):
        return value
    shown = repr(value)
    raise ValueError(f"{place} is {shown if len(shown) < 40 else shown[:40] + '...'}")


def refuse(name: str, wrong: Any, wanted: str) -> None:
    """Raise if a value is not what it must be."""
    refuse_if(wrong, f"{name} is not {wanted}")


def _entries(value: dict[str, Any], kinds: dict[str, Any], arrays: Arrays, place: str) -> Any:
    for name in kinds:
        refuse_if(name not in value, f"{place} has no {name}")
    return {k: from_json(value[k], kind, arrays, f"{place}.{k}") for k, kind in kinds.items()}


def _made(cls: Any, value: dict[str, Any], arrays: Arrays, place: str) -> Any:
    kinds = _types(cls)
    others = value.keys() - kinds.keys()
    refuse_if(others, f"{place} has {', '.join(others)}")
    made = cls(**_entries(value, kinds, arrays, place))
    try:
        if hasattr(made, "validate"):
            made.validate()
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    return made


def _one_of(value: Any, kinds: tuple[Any, ...], arrays: Arrays, place: str) -> Any:
    """Return a value of the first of several types that will do."""
    errors = []
    for kind in kinds:
        try:
            return from_json(value, kind, arrays, place)
        except ValueError as error:
            errors.append(str(error))
    inside = [error for error in errors if not error.startswith(f"{place} is ")]
    raise ValueError((inside or errors)[0])


def _array(name: Any, kind: Any, arrays: Arrays, place: str) -> Any:
    array: Any = arrays.get(name) if isinstance(name, str) else None
    refuse_if(array is None, f"{place} is not among the arrays")
    if kind is Any:
        return array
    if getattr(kind, "__module__", "").startswith("torch"):
        import torch

        return torch.from_numpy(array)
    refuse_if(get_origin(kind) is not np.ndarray, f"{place} is an array")
    dtype = get_args(get_args(kind)[1])[0]
    refuse_if(
        dtype is not Any and not np.issubdtype(array.dtype, dtype),
        f"{place} has numbers of type {array.dtype}, not {getattr(dtype, '__name__', dtype)}",
    )
    return array


def _is_plain(value: Any, kind: Any) -> bool:
    """Whether a value from JSON is of a plain type; ``Hashable`` stands for a number or text."""
    if kind in (Any, object, Hashable):
        return kind is not Hashable or isinstance(value, str | int | float)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(kind, type) and isinstance(value, (int, float) if kind is float else kind)


@cache
def _types(cls: type) -> dict[str, Any]:
    """Types of the fields that are saved, by their names; what begins with a line is made again."""
    kinds = get_type_hints(cls)
    return {f.name: kinds[f.name] for f in fields(cls) if f.init and not f.name.startswith("_")}


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
        refuse_if(
            len(content) > LARGEST_TEXT,
            f"Expected a {name} of at most {LARGEST_TEXT} bytes; got {len(content)}. Arrays "
            "among the parameters are written there: set those that are long to None.",
        )
    contents[WEIGHTS] = weights
    return contents | {CHECKSUMS: _sums(contents, contents).encode()}


def read_folder(path: str | Path) -> ModelFiles:
    """Read the files of a model's folder and check them, or say in one line what is wrong."""
    path = as_path(path)
    refuse_if(
        path.is_file(),
        f"Expected the folder of a model; got the file {path}. Models are folders of JSON and "
        "safetensors; pickles are not loaded.",
    )
    if not (path / DESCRIPTION).is_file() or not (path / WEIGHTS).is_file():
        raise FileNotFoundError(
            f"Expected a model folder with {DESCRIPTION} and {WEIGHTS} at {path}; got none."
        )
    contents = _read_at_one_time(path)
    said = parse_json(contents[DESCRIPTION], path / DESCRIPTION)
    found = said.get("format")
    if not isinstance(found, int) or isinstance(found, bool):
        raise _damaged(path / DESCRIPTION, f"its format is {found!r}")
    refuse_if(
        found != FORMAT,
        f"Expected a model of format {FORMAT} at {path}; got format {found}, written by "
        f"deconflow {said.get('deconflow')}. Load it with that version, or fit again.",
    )
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
        return dict(from_json(json.loads(content.decode()), kinds or {}, {}, "it"))
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


def _damaged(file: Path, why: str) -> ValueError:
    return ValueError(f"Expected a whole model; got a damaged {file.name} at {file.parent}: {why}.")
