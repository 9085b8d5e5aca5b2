"""A page is one file that needs nothing else, says its structure, and takes names as text only."""

import base64
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from coterie import UsageError
from coterie.pages.blocks import (
    Commands,
    Curve,
    Curves,
    Details,
    Footer,
    Listing,
    Page,
    Picture,
    Pictures,
    Plot,
    Plots,
    Points,
    Section,
    Table,
    Text,
)
from coterie.pages.render import check_page_path, render, write_page
from coterie.values.text import KeyNumber


class Outline(HTMLParser):
    """Reads a page back: its elements, its headings, its scripts and its text."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.scripts, self.words = [], [], []
        self._inside = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in {"script", "style", "code", "title"}:
            self._inside.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data):
        if "script" in self._inside:
            self.scripts[-1] += data
        elif "style" not in self._inside:
            self.words.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def levels(self):
        return [int(tag[1]) for tag, _ in self.elements if re.fullmatch("h[1-6]", tag)]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def page(word="plain"):
    """A page with every block, and one word everywhere that a word can stand."""
    table = Table(f"Table {word}", ("name", f"column {word}"), ((word, 1), (word, 2)))
    picture = Picture(np.full((2, 3, 1), 7, dtype=np.uint8), word)
    pictures = Pictures(f"Pictures {word}", (word, word), ((word, (picture, Picture(None, word))),))
    plot = Plot(f"Plot {word}", Curves((Curve(word, [1, 2], [3, 4]),), across=word), f"It shows {word}.")
    return Page(
        kind=f"Kind {word}",
        title=f"Title {word}",
        subject=word,
        date=word,
        answer=f"Answer {word}",
        tiles=(KeyNumber(word, word, word),),
        sections=(
            Section(
                f"First {word}", (Text((word, "see `coterie audit`")), Points(((word, word),)), Plots((plot,)))
            ),
            Section(
                f"Second {word}",
                (table, pictures, Details(word, (Text((word,)),)), Listing(word, word), Commands(((word, word),))),
            ),
        ),
        footer=Footer(((word, word),), (word,)),
    )


HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<!--<script>",
    '"><img src=x onerror=alert(1)>',
    "' onclick='alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "`<b>bold</b>`",
    "]]>&lt;&amp;",
]


@pytest.mark.parametrize("word", HOSTILE)
def test_a_hostile_word_changes_no_element(word):
    """Whatever stands in a name, the page has the same elements in the same order and shows the word as it is."""
    tame, hostile = Outline(render(page())), Outline(render(page(word)))
    codes = word.count("`") // 2
    without_code = [tag for tag, _ in hostile.elements if tag != "code"]
    assert without_code == [tag for tag, _ in tame.elements if tag != "code"]
    assert codes or len(hostile.all("code")) == len(tame.all("code"))
    assert word.replace("`", "") in hostile.text.replace("` ", "").replace(" `", "").replace("`", "")
    assert "49" not in hostile.text


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=40))
def test_any_text_comes_back_from_a_plot_as_it_went_in(word):
    """A figure's data are the same after the page is read as HTML and the data as JSON."""
    outline = Outline(render(page(word)))
    data = [
        json.loads(script)
        for script, attributes in zip(outline.scripts, outline.all("script"), strict=True)
        if attributes.get("type") == "application/json"
    ]
    assert [figure["lines"][0]["name"] for figure in data] == [word]


def test_the_policy_admits_the_scripts_by_their_digest_and_nothing_else():
    """Each script that runs has its SHA-256 in the policy; nothing may be fetched from anywhere."""
    outline = Outline(render(page()))
    (policy,) = [meta["content"] for meta in outline.all("meta") if meta.get("http-equiv")]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    running = [
        script
        for script, attributes in zip(outline.scripts, outline.all("script"), strict=True)
        if "type" not in attributes
    ]
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in running]
    assert rules["script-src"] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert len(running) == 1
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "connect-src" not in rules
    assert "http" not in policy


def test_a_page_refers_to_nothing_outside_itself():
    """Every address in the page is a place in it or data."""
    outline = Outline(render(page()))
    addresses = [
        attributes[key] for _, attributes in outline.elements for key in ("href", "src") if key in attributes
    ]
    assert addresses
    assert all(address.startswith(("#", "data:")) for address in addresses)
    places = {attributes["id"] for _, attributes in outline.elements if "id" in attributes}
    assert all(address[1:] in places for address in addresses if address.startswith("#"))


def test_headings_go_down_one_level_at_a_time():
    """There is one first heading, and none that skips a level."""
    levels = Outline(render(page())).levels
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_plots_and_tables_have_names_for_those_who_do_not_see_them():
    """A plot is an image with a name and a sentence; a table names its columns and rows."""
    outline = Outline(render(page()))
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    (plot,) = [attributes for _, attributes in outline.elements if attributes.get("role") == "img"]
    assert plot["aria-label"] == "Plot plain"
    assert plot["aria-describedby"] in ids
    table, pictures = outline.all("table")
    assert pictures["aria-labelledby"] in ids
    assert table["aria-labelledby"] in ids
    assert [cell["scope"] for cell in outline.all("th")] == ["col", "col", "row", "row", "col", "col", "row"]
    assert outline.all("html") == [{"lang": "en"}]


def test_a_picture_stands_in_the_page_with_its_note():
    """The image is in the page itself, pixel for pixel, and its note is there for those who do not see it."""
    (image,) = Outline(render(page())).all("img")
    assert image["alt"] == "plain"
    png = base64.b64decode(image["src"].removeprefix("data:image/png;base64,"))
    assert np.asarray(Image.open(io.BytesIO(png))).tolist() == [[7] * 3] * 2


def test_text_between_backticks_is_code_and_a_lone_backtick_is_itself():
    """Backticks come in pairs or stand for themselves."""
    html = render(page("a ` b"))
    assert "<code>coterie audit</code>" in html
    assert "<p>a ` b</p>" in html


@pytest.mark.parametrize(("name", "message"), [("report.pdf", "not a .html"), ("no/report.html", "folder")])
def test_a_page_that_cannot_be_written_is_refused_first(name, message, tmp_path):
    """A wrong suffix or a missing folder is named before any work is done."""
    with pytest.raises(UsageError, match=message):
        check_page_path(Path(tmp_path / name))


def test_a_page_is_written_whole(tmp_path):
    """The file holds the page's bytes, and nothing else is left in the folder."""
    html = render(page("é"))
    write_page(html, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == html
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
