"""The one style of all pages: blocks become a single HTML file that needs nothing beside itself.

A page holds its style, its script and plotly.js (about 5 MB of its size), so it opens offline, asks no server for
anything, and can be mailed. Its Content-Security-Policy admits the scripts by their SHA-256 and refuses every
request, so not even a hostile user name can run or fetch anything.
"""

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coterie.errors import UsageError
from coterie.report.page.blocks import Page
from coterie.report.page.words import number
from coterie.storage.files import atomic_write, check_writable

SUFFIXES = (".html", ".htm")


def check_page_path(path: Path) -> None:
    """Refuse a page that could not be written, before any work is done for it."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path} is not a .html file; name the page so that it ends in .html")
    if not can_render():
        raise UsageError("pages need jinja2 and plotly: pip install 'coterie[report]'")
    check_writable(path)


def can_render() -> bool:
    """Return whether jinja2 and plotly, which pages are made with, are installed."""
    return find_spec("jinja2") is not None and find_spec("plotly") is not None


def write_page(html: str, path: Path) -> None:
    """Write a page whole or not at all."""
    check_page_path(path)
    with atomic_write(path) as file:
        file.write(html.encode())


def render(page: Page) -> str:
    """Return a page as one self-contained HTML file."""
    if not can_render():
        raise UsageError("pages need jinja2 and plotly: pip install 'coterie[report]'")
    scripts = (_plotly(), _template("page.js"))
    html: str = (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            style=_template("page.css"),
            scripts=scripts,
            policy=_policy(scripts),
        )
    )
    return html


def _policy(scripts: tuple[str, ...]) -> str:
    """Return the Content-Security-Policy: these scripts, inline styles, images made here, and nothing else.

    plotly.js writes style attributes, so styles cannot be told by hash; without any way to load something, a style
    gives nothing away.
    """
    hashes = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    source: str = get_plotlyjs()
    return source


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
    environment.filters |= {"data": _data, "prose": _prose, "anchor": _anchor, "cell": _cell}
    environment.tests["kind"] = lambda block, name: type(block).__name__ == name
    return environment


def _data(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a value as JSON that cannot end the script element it stands in."""
    from markupsafe import Markup

    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))  # noqa: S704 - no "<" is left


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
