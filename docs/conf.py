"""Sphinx configuration."""

import coterie

project = "Coterie"
author = "The Coterie authors"
copyright = "The Coterie authors"  # noqa: A001 - Sphinx's name for it
release = coterie.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["dollarmath"]
exclude_patterns = ["_build", "pictures"]
html_theme = "furo"
html_title = "Coterie"
# Docstrings are plain text with `code` in single quotes, as in Markdown.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
