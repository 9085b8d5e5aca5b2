"""A verdict is told in one voice: console, page, notebook and JSON say the same, and nothing flatters."""

import json
import re
from html import unescape
from io import StringIO

import pytest
from rich.console import Console

from coterie.cli import terminal
from coterie.cli.audit import print_verdict
from coterie.pages.audit import audit_page
from support.leakage.verdicts import KINDS, verdicts

REASSURING = ("nobody's update was given away", "is met:", "as high as required", "hide in groups")


def squeezed(text):
    """Text without differences of white space."""
    return " ".join(text.split())


def console_of(verdict, monkeypatch, width=80):
    """What the terminal shows of a verdict."""
    out = StringIO()
    monkeypatch.setattr(terminal, "Console", lambda **options: Console(file=out, width=width, **options))
    print_verdict(verdict)
    return out.getvalue()


def page_of(verdict):
    """The words of a verdict's page."""
    html = audit_page(verdict, date="2026-01-31")
    return html, squeezed(unescape(re.sub(r"<[^>]+>", " ", html[html.index("<main") : html.index("</main>")])))


def test_every_kind_is_compared():
    """The kinds are those that there are verdicts of."""
    assert set(verdicts()) == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_console_page_and_json_say_the_same(name, monkeypatch):
    """Headline, tone, sentences, key numbers, forecast and assumptions are one text, shown everywhere."""
    verdict = verdicts()[name]
    words, written = verdict.words, verdict.record()
    terminal = squeezed(console_of(verdict, monkeypatch))
    html, page = page_of(verdict)
    assert (written["headline"], written["tone"]) == (words.headline, words.tone)
    assert written["sentences"] == list(words.sentences)
    assert written["assumptions"] == list(words.assumptions)
    assert terminal.startswith(words.headline)
    title = re.search(r'<h1 class="(\w+)">(.*?)</h1>', html, re.DOTALL)
    assert (title[1], unescape(title[2])) == (words.tone, words.headline)
    notebook = unescape(verdict._repr_html_())
    for sentence in (*words.sentences, *words.forecast, *words.assumptions):
        assert squeezed(sentence) in page
        assert squeezed(sentence) in terminal
    for figure in (*words.figures, *words.further_numbers):
        assert squeezed(f"{figure.label} {figure.value} {figure.meaning}") in page
        assert figure.value in terminal
    assert words.headline in notebook
    assert all(figure.value in notebook for figure in words.figures)
    json.dumps(written)


@pytest.mark.parametrize("name", KINDS)
def test_every_sentence_is_one(name):
    """Sentences begin with a capital or a number, end with a full stop, and count without a slip."""
    words = verdicts()[name].words
    for sentence in (words.headline, *words.sentences, *words.forecast, *words.assumptions):
        assert re.match(r"[A-Z0-9'`]", sentence), sentence
        assert sentence.endswith("."), sentence
        assert not re.search(r"\b1 (users|rounds|colluders|sums|batches)\b", sentence), sentence


@pytest.mark.parametrize("name", KINDS)
def test_nothing_reassures_where_a_user_may_be_alone(name):
    """Where the level is 1 no text, anywhere, says that users hide, and the tone warns."""
    verdict = verdicts()[name]
    if verdict.strong > 1:
        return
    text = " ".join((verdict.words.headline, *verdict.words.sentences, *verdict.words.forecast))
    assert not any(phrase in text for phrase in REASSURING if not (verdict.met and phrase != REASSURING[0]))
    assert verdict.words.tone == "warning"
    _, page = page_of(verdict)
    assert "nobody's update was given away" not in page


@pytest.mark.parametrize(
    ("name", "headline"),
    [
        ("plain", "The required level of 6 is not met: the server saw every update by itself in all 40 rounds."),
        (
            "plain once",
            "The required level of 6 is not met: the server saw every update by itself in 1 of 40 rounds.",
        ),
        (
            "unknown",
            (
                "The required level of 6 is not met: nobody can say how private this is, because what the server "
                "learned in 3 of 40 rounds is not known."
            ),
        ),
        ("kept", "The required level of 6 is met: users hide in groups of at least 6."),
        ("batches", "The required level of 6 is not met: with 2 colluders, users hide in groups of at least 4."),
        ("everyone", "The server can compute the update of every user who took part."),
        ("empty", "The required level of 3 is met: no sum is on record, so the log gives nothing away."),
        ("stopped", "It was not decided whether the server can compute single updates."),
        ("apart", "The server can compute no update alone, but it can tell some user apart from all others."),
    ],
)
def test_the_headline_is_the_verdict(name, headline):
    """What a reader in a hurry takes along."""
    assert verdicts()[name].words.headline == headline


def test_plain_and_unknown_rounds_in_every_number():
    """A plain run has both levels 1 and everyone isolated; with unknown rounds nothing is proven."""
    plain = verdicts()["plain"]
    took_part = len(plain.classes.participants)
    assert [figure.value for figure in plain.words.figures] == ["1", "1", f"{took_part} of 60"]
    assert any("aggregation was plain" in sentence for sentence in plain.words.sentences)
    unknown = verdicts()["unknown"]
    assert [figure.value for figure in unknown.words.figures] == ["1", "1..6", "0 to 60"]
    assert "Before round 11 the strong level was 6, for certain." in unknown.words.sentences
    alone = verdicts()["unknown alone"]
    assert alone.met
    assert alone.words.tone == "warning"
    assert any("leave a batch by an override" in text for text in verdicts()["overridden"].words.sentences)
    assert any("sealed round was cut off" in text for text in verdicts()["assumed"].words.assumptions)


@pytest.mark.parametrize("width", [60, 80])
def test_the_console_reads_well_where_it_is_narrow(width, monkeypatch):
    """No line but digests and long proofs is wider than the terminal, and the verdict comes first."""
    text = console_of(verdicts()["exposed"], monkeypatch, width)
    lines = text.splitlines()
    assert lines[0].startswith("The required level of 4 is not met")
    assert all(len(line) <= width or line.startswith("sha256 ") for line in lines)
    assert text.index("Strong privacy level T") < text.index("Isolated users\n") < text.index("What this rests on")
