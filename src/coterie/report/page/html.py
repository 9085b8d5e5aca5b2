"""The one style of all pages: blocks become a single HTML file that needs nothing beside itself.

A page holds its style, its drawings and a small script, so it opens offline, asks no server for anything, and can
be mailed. Its Content-Security-Policy admits the script by its SHA-256 and refuses every request, so not even a
hostile user name can run or fetch anything. Without the script only the numbers under the pointer are missing.
"""

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coterie import __version__
from coterie.errors import UsageError
from coterie.files import check_writable, write_file
from coterie.report.page import blocks
from coterie.report.page.blocks import Page
from coterie.report.page.drawing import drawing, png_address
from coterie.values.text import number

SUFFIXES = (".html", ".htm")


def check_page_path(path: Path) -> None:
    """Refuse a page that could not be written, before any work is done for it."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path} is not a .html file; name the page so that it ends in .html")
    _check_packages()
    check_writable(path)


def can_render() -> bool:
    """Return whether jinja2 and pillow, which pages are made with, are installed."""
    return find_spec("jinja2") is not None and find_spec("PIL") is not None


def _check_packages() -> None:
    if not can_render():
        raise UsageError("pages need jinja2 and pillow: pip install 'coterie[report]'")


def write_page(html: str, path: Path) -> None:
    """Write a page whole or not at all."""
    write_file(path, html.encode())


def render(page: Page, live: str = "") -> str:
    """Return a page as one self-contained HTML file.

    `live` is a script that keeps a served page up to date: it may ask the server that the page came from.
    """
    _check_packages()
    scripts = [_template("page.js"), *([live] if live else [])]
    values = {
        "version": __version__, "style": _template("page.css"), "scripts": scripts, "live": bool(live),
        "policy": _policy(scripts) + ("; connect-src 'self'" if live else ""),
    }  # fmt: skip
    html: str = _environment().get_template("page.html").render(page=page, **values)
    return html


def _policy(scripts: Sequence[str]) -> str:
    """Return the Content-Security-Policy: these scripts, inline styles, images made here, and nothing else.

    Places in a drawing are style attributes, so styles cannot be admitted by hash; without any way to load
    something, a style gives nothing away.
    """
    digests = (b64encode(sha256(script.encode()).digest()).decode() for script in scripts)
    admitted = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {admitted}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _template(name: str) -> str:
    return files("coterie.report.page").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment() -> Any:  # noqa: ANN401 - jinja2 is imported only where a page is made
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("coterie.report.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    filters = {"drawing": drawing, "prose": _prose, "anchor": _anchor, "cell": _cell, "png": png_address}
    environment.filters |= filters
    environment.tests["kind"] = lambda block, name: isinstance(block, getattr(blocks, name))
    return environment


def _prose(text: str) -> str:
    """Escape a text, then set what stands between backticks as code."""
    from markupsafe import Markup, escape

    parts = text.split("`")
    if len(parts) % 2 == 0:  # a lone backtick is a backtick
        return escape(text)
    marked = (f"<code>{escape(part)}</code>" if index % 2 else escape(part) for index, part in enumerate(parts))
    return Markup("").join(Markup(part) for part in marked)  # noqa: S704 - every part is escaped


def _anchor(heading: str) -> str:
    """Return a heading as the name of a place in the page.

    >>> _anchor("What this run guarantees")
    'what-this-run-guarantees'
    """
    return "-".join("".join(c if c.isalnum() else " " for c in heading.lower()).split())


def _cell(value: str | float) -> str:
    """Return a table's value as text.

    >>> _cell(1234), _cell(0.25), _cell("ana")
    ('1234', '0.250', 'ana')
    """
    if isinstance(value, int):
        return number(value)
    return f"{value:.3f}" if isinstance(value, float) else value
