"""Sphinx configuration."""

import coterie

project = "Coterie"
author = "The Coterie authors"
copyright = "The Coterie authors"  # noqa: A001 - Sphinx's name for it
release = coterie.__version__
# sphinx-mathjax-offline puts MathJax beside the pages, so that formulas need no network.
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx-mathjax-offline"]
myst_enable_extensions = ["dollarmath"]
exclude_patterns = ["_build", "pictures"]
html_theme = "furo"
html_title = "Coterie"
html_static_path = ["look"]
html_css_files = ["pictures.css"]
# Docstrings are plain text with `code` in single quotes, as in Markdown.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
