"""Pieces of HTML; whatever text goes into them is escaped."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; color: #222; background: #fff; }
h1, h2 { font-weight: 600; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd; padding-bottom: .3rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { text-align: left; vertical-align: top; padding: .25rem 1.2rem .25rem 0;
         border-bottom: 1px solid #eee; }
td:first-child { white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.caution { background: #fff3cd; padding: .5rem .8rem; border-left: 4px solid #d1495b; }
img { max-width: 100%; height: auto; }
figure { margin: 1.5rem 0; }
figcaption { color: #555; }
pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; }
@media print { section { break-inside: avoid-page; } }
"""


def document(title: str, content: Iterable[str]) -> str:
    """Return a whole page, which may load nothing and run nothing."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{safe(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(content)
        + "\n</body>\n</html>\n"
    )


def section(title: str, *content: str) -> str:
    """Return a part of the page, under a heading."""
    return "\n".join(["<section>", f"<h2>{safe(title)}</h2>", *content, "</section>"])


def paragraph(text: Any, kind: str = "") -> str:
    """Return a paragraph, of a class of the style if there is one."""
    return f"<p{_class(kind)}>{safe(text)}</p>"


def table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table, in which columns of numbers lean to the right."""
    names, body = list(header), [list(row) for row in rows]
    kinds = [
        "number" if all(isinstance(row[i], int | float) for row in body) else ""
        for i in range(len(names))
    ]
    lines = [_row("th", names, kinds), *(_row("td", row, kinds) for row in body)]
    return "\n".join(["<table>", *lines, "</table>"])


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
