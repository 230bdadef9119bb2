"""Pieces of HTML; whatever text goes into them is escaped."""

import base64
import html
import io
from collections.abc import Iterable, Mapping
from typing import Any

#: How a page looks: light or dark, narrow or wide, on paper.
STYLE = """
:root { color-scheme: light dark;
        --ink: #222; --paper: #fff; --soft: #555; --line: #ddd; --faint: #eee;
        --code: #f5f5f5; --warn: #fff3cd; --warn-line: #d1495b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e4; --paper: #16181c; --soft: #a8acb3; --line: #3b3f46; --faint: #2a2d33;
          --code: #22252b; --warn: #3d3211; --warn-line: #e8727f; }
}
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; color: var(--ink); background: var(--paper); }
h1, h2, h3 { font-weight: 600; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); padding-bottom: .3rem; }
h3 { margin-top: 1.5rem; font-size: 1.05rem; }
p { overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .25rem 1.2rem .25rem 0;
         border-bottom: 1px solid var(--faint); }
td:first-child { white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.caution { background: var(--warn); padding: .5rem .8rem; border-left: 4px solid var(--warn-line); }
img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
figure { margin: 1.5rem 0; }
figcaption, .aside { color: var(--soft); }
pre { background: var(--code); padding: .8rem; overflow-x: auto; }
@media (max-width: 36rem) {
  table { font-size: .85rem; }
  th, td { padding-right: .7rem; }
}
@media print {
  :root { color-scheme: light; --ink: #000; --paper: #fff; --soft: #555; --line: #ddd;
          --faint: #eee; --code: #f5f5f5; --warn: #fff3cd; --warn-line: #d1495b; }
  .wide, pre { overflow: visible; } pre { white-space: pre-wrap; }
  figure, tr { break-inside: avoid; }
}
"""


def document(title: str, beginning: Iterable[str], sections: Mapping[str, list[str]]) -> str:
    """Return a whole page, which may load nothing and run nothing."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    lines = [f"<h1>{safe(title)}</h1>", *beginning]
    for head, content in sections.items():
        lines += ["<section>", f"<h2>{safe(head)}</h2>", *content, "</section>"]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{safe(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(lines)
        + "\n</body>\n</html>\n"
    )


def paragraph(text: Any, kind: str = "") -> str:
    """Return a paragraph, of a class of the style if there is one; a caution has its own."""
    return f"<p{_class('caution' if str(text).startswith('CAUTION') else kind)}>{safe(text)}</p>"


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
    texts = [f"{cell:.4g}" if isinstance(cell, float) else safe(cell) for cell in cells]
    pairs = zip(texts, kinds, strict=True)
    return "<tr>" + "".join(f"<{tag}{_class(k)}>{text}</{tag}>" for text, k in pairs) + "</tr>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
