"""Options that belong together: written once, as the fields of a dataclass."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command that takes dataclasses have an option for each of their fields.

    Its parameters are all taken by name.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Size:
    ...     width: int
    ...     height: int = 1
    >>> @with_option_groups
    ... def draw(*, size: Size, colour: str = "blue") -> None:
    ...     print(size, colour)
    >>> print(inspect.signature(draw))
    (*, width: int, height: int = 1, colour: str = 'blue') -> None
    >>> draw(width=2, height=3, colour="red")
    Size(width=2, height=3) red
    """
    whole = inspect.signature(command, eval_str=True)
    annotations = {name: each.annotation for name, each in whole.parameters.items()}
    kinds: dict[str, Any] = {n: kind for n, kind in annotations.items() if is_dataclass(kind)}
    options: list[inspect.Parameter] = []
    for name, parameter in whole.parameters.items():
        options += _options(kinds[name]) if name in kinds else [parameter]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, kind in kinds.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        command(**given)

    run.__signature__ = whole.replace(parameters=options)  # type: ignore[attr-defined]
    return run


def _options(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(
            each.name, keyword,
            default=inspect.Parameter.empty if each.default is MISSING else each.default,
            annotation=hints[each.name],
        )
        for each in fields(kind)
    ]  # fmt: skip
