"""Formulas as MathML, which every browser draws by itself: no script, no font, no network.

docutils translates them; Sphinx has no renderer of its own that does.
"""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)


def visit_math(page: HTML5Translator, node: nodes.Element) -> None:
    """Write a formula, within a line or on lines of its own."""
    block, formula = isinstance(node, nodes.math_block), node.astext()
    try:
        page.body.append(latex2mathml.tex2mathml(formula, as_block=block))
    except MathError as error:
        logger.warning("%s In the formula %s", error, formula, location=node)
        page.body.append(f"<code>{page.encode(formula)}</code>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
