"""Sphinx configuration."""

import deconflow

project = "deconflow"
author = "the deconflow authors"
copyright = "2026, the deconflow authors"
version = release = deconflow.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "deconflow"
exclude_patterns = ["_build"]
myst_heading_anchors = 2
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = True
napoleon_use_ivar = False  # `density_` as an ivar would be a link, and lose its underscore
