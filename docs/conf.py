"""Sphinx configuration."""

import sys
from pathlib import Path

from docutils.nodes import Node
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

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


class Room(SphinxDirective):
    """Puts what docs/architecture.py says about a room of the package into its page."""

    required_arguments = 1

    def run(self) -> list[Node]:
        """Return the content as nodes."""
        import architecture

        return self.parse_text_to_nodes(architecture.content(self.arguments[0]))


def setup(app: Sphinx) -> None:
    """Let pages ask for a room."""
    sys.path.insert(0, str(Path(__file__).parent))
    app.add_directive("room", Room)
