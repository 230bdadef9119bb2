"""Values of a fit as JSON and arrays, and back.

Numbers, text, arrays, dataclasses, and lists, tuples and mappings of these are written as they are.
They are read by the types that the fields of dataclasses declare: no name in a file is looked up,
and nothing is executed but constructors and ``validate``, the method by which a class refuses
values that cannot be its own.
"""

import types
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

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
    if wrong:
        raise ValueError(f"{name} is not {wanted}")


def refuse_if(wrong: object, words: str) -> None:
    """Raise an error with these words."""
    if wrong:
        raise ValueError(words)


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
    array = arrays.get(name) if isinstance(name, str) else None
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
