"""``docs/records.md``: what stands between its markers is written from the records."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.records import pictures, tables

COMMAND = "python -m benchmarks.records --page"


def parts(results: Path) -> dict[str, str]:
    """Return every generated part, with its picture."""
    links = pictures.links(results)
    return {
        name: f"{text}\n\n{links[name]}" if name in links else text
        for name, text in tables.parts(results).items()
    }


def markers(name: str, command: str = COMMAND) -> tuple[str, str]:
    """Return the lines between which a part stands, which a command writes."""
    return f"<!-- {name}: written by {command} -->", f"<!-- end of {name} -->"


def with_parts(text: str, contents: dict[str, str], command: str = COMMAND) -> str:
    """Return a page with the text between its markers replaced.

    Raises
    ------
    ValueError
        If the markers of a part are not there exactly once.
    """
    for name, content in contents.items():
        start, end = markers(name, command)
        if text.count(start) != 1 or text.count(end) != 1:
            raise ValueError(f"Expected the page to have {start!r} and {end!r} once; got others.")
        found = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
        new = f"{start}\n\n{content}\n\n{end}"
        text = found.sub(lambda _, new=new: new, text)  # type: ignore[misc]
    return text


def refresh(document: Path, results: Path) -> bool:
    """Write the generated parts and pictures anew; return whether anything changed."""
    text = document.read_text()
    new = with_parts(text, parts(results))
    if new != text:
        document.write_text(new)
    return bool(pictures.draw_all(results, document.parent / "images")) or new != text


def check(document: Path, results: Path) -> list[str]:
    """Return what of the page does not agree with the records."""
    text, wrong = document.read_text(), []
    for name, content in parts(results).items():
        if with_parts(text, {name: content}) != text:
            wrong.append(f"{document.name}: the part {name!r} is not what the records say")
    for name, data in pictures.shown(results).items():
        if not pictures.is_up_to_date(document.parent / "images" / name, data):
            wrong.append(f"{name} does not show what the records say")
    return [f"{line}; python -m benchmarks.records --page writes it" for line in wrong]
