"""Sphinx configuration."""

import sys
from pathlib import Path

import deconflow

sys.path.insert(0, str(Path(__file__).parent))
import mirror

mirror.install()

project = "deconflow"
author = "the deconflow authors"
copyright = "2026, the deconflow authors"
version = release = deconflow.__version__
extensions = [
    "mathml",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery"]

html_theme = "furo"
html_title = "deconflow"
html_math_renderer = "mathml"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["style.css"]

myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = True
napoleon_use_ivar = False  # `density_` as an ivar would be a link, and lose its underscore

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "backreferences_dir": "examples/backreferences",
    "filename_pattern": r"\.py$",  # all of them run
    "within_subsection_order": "FileNameSortKey",
    "thumbnail_size": (400, 280),
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
}
