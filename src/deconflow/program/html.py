"""Pieces of HTML; whatever text goes into them is escaped."""

import base64
import html
import io
from collections.abc import Iterable
from typing import Any

from deconflow.program.page_style import STYLE


def document(title: str, content: Iterable[str]) -> str:
    """Return a whole page, which may load nothing and run nothing."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{safe(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(content)
        + "\n</body>\n</html>\n"
    )


def section(title: str, *content: str) -> str:
    """Return a part of the page, under a heading."""
    return "\n".join(["<section>", f"<h2>{safe(title)}</h2>", *content, "</section>"])


def heading(title: str) -> str:
    """Return a heading within a section."""
    return f"<h3>{safe(title)}</h3>"


def paragraph(text: Any, kind: str = "") -> str:
    """Return a paragraph, of a class of the style if there is one."""
    return f"<p{_class(kind)}>{safe(text)}</p>"


def table(header: Iterable[str], rows: Iterable[Iterable[Any]], figures: Iterable[int] = ()) -> str:
    """Return a table, in a box of its own that scrolls if it is wide.

    Columns of numbers lean to the right, and so do those in ``figures``, by their place: numbers
    that are written out already.
    """
    names, body, written = list(header), [list(row) for row in rows], set(figures)
    kinds = [
        "number" if i in written or all(isinstance(row[i], int | float) for row in body) else ""
        for i in range(len(names))
    ]
    lines = [_row("th", names, kinds), *(_row("td", row, kinds) for row in body)]
    return "\n".join(['<div class="wide">', "<table>", *lines, "</table>", "</div>"])


def figure(picture: Any, caption: str) -> str:
    """Return a matplotlib figure, inside the page, and close it."""
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    picture.savefig(buffer, format="png", dpi=110)
    plt.close(picture)
    address = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
    return (
        f'<figure>\n<img src="{address}" alt="{safe(caption)}">\n'
        f"<figcaption>{safe(caption)}</figcaption>\n</figure>"
    )


def code(text: str) -> str:
    """Return lines of code."""
    return f"<pre>{safe(text)}</pre>"


def safe(text: Any) -> str:
    """Escape text, so that it is shown as it is written."""
    return html.escape(str(text))


def _row(tag: str, cells: list[Any], kinds: list[str]) -> str:
    pairs = zip(cells, kinds, strict=True)
    return "<tr>" + "".join(f"<{tag}{_class(k)}>{_text(c)}</{tag}>" for c, k in pairs) + "</tr>"


def _text(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else safe(cell)


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
