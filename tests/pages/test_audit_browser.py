"""The page of an audit in a real browser: drawn, quiet, readable, and as wide as the window."""

import pytest

from coterie.pages.audit import audit_page
from coterie.pages.render import write_page
from support.browser import visit
from support.leakage.verdicts import verdicts
from support.pages import DRAWN

UNFOLD = "document.querySelectorAll('details').forEach((details) => { details.open = true; })"
# Cells whose text is wider than the cell itself.
SPILLED = """[...document.querySelectorAll('td, th, dd, summary')]
  .filter((cell) => cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.textContent.slice(0, 40))"""
PLOTS = {"exposed": 4, "batches": 2, "breached": 4, "hostile": 3, "long": 3, "empty": 0, "plain": 3, "unknown": 2}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The page of each verdict, as a file."""
    folder = tmp_path_factory.mktemp("audits")
    cases = verdicts()
    for name in PLOTS:
        write_page(audit_page(cases[name], date="2026-01-31"), folder / f"{name}.html")
    return folder


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        *(("exposed", width, scheme) for width in (390, 1400) for scheme in ("light", "dark")),
        ("hostile", 390, "light"),
        ("hostile", 1400, "dark"),
        ("long", 390, "dark"),
        ("batches", 1400, "light"),
        ("breached", 390, "dark"),
        ("empty", 390, "light"),
        ("plain", 390, "light"),
        ("unknown", 1400, "dark"),
    ],
)
def test_a_page_is_drawn_quietly_and_fits(chromium, pages, name, width, scheme):
    """Every plot is drawn in its box; nothing spills or scrolls sideways, folded or not; no complaint."""
    file = pages / f"{name}.html"
    with visit(chromium, file, width, scheme) as visited:
        page = visited.page
        assert page.evaluate(DRAWN) == [True] * PLOTS[name]
        assert page.evaluate("document.documentElement.scrollWidth") == width
        page.evaluate(UNFOLD)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate(SPILLED) == []
        assert visited.requests == [file.as_uri()]
        assert visited.complaints == []


def test_markup_in_names_makes_no_element(chromium, pages):
    """Hostile names stand in tables and proofs letter by letter."""
    with visit(chromium, pages / "hostile.html") as visited:
        page = visited.page
        page.evaluate(UNFOLD)
        text = page.locator("main").inner_text()
        assert "<b>bea</b>" in text
        assert "</script><script>alert(2)</script>" in text
        assert (
            page.locator("main img, main b, main a, main section script:not([type='application/json'])").count()
            == 0
        )
        assert visited.complaints == []


def test_a_proof_unfolds_inside_the_proofs(chromium, pages):
    """Proofs are folded away twice: the list, then each; the keyboard opens both."""
    with visit(chromium, pages / "exposed.html") as visited:
        page = visited.page
        proof = page.get_by_text("Proof 1: device-16")
        assert not proof.is_visible()
        page.get_by_text("The proofs, and how to check them by hand").focus()
        page.keyboard.press("Enter")
        assert proof.is_visible()
        proof.focus()
        page.keyboard.press("Enter")
        assert page.get_by_text("Proof 1: the sums, and the factor of each.").is_visible()
