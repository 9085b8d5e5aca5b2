"""Pages in a real browser: drawn, quiet, offline, readable in both schemes and at both ends of widths."""

import json

import pytest

from coterie.pages.render import write_page
from coterie.pages.run import run_page
from support.browser import until, visit
from support.pages import DRAWN, FAINT
from support.runs import simulated

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    '<a href="javascript:alert(3)">ana</a>',
    "<b>bea</b>",
    "%{x}{{ 7 * 7 }}",
    "n" * 5000,
)
RUNS = {
    "sealed": {"names": [*HOSTILE, *(f"user-{number}" for number in range(len(HOSTILE), 120))]},
    "random": {"privacy": None, "sealed": False, "aggregation": "secagg", "rounds": 140},
    "large": {"users": 3000, "per_round": 150, "rounds": 700, "privacy": 10, "aggregation": "open"},
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The report of each run, as a file."""
    folder = tmp_path_factory.mktemp("pages")
    for name, options in RUNS.items():
        run = simulated(**options, notes=("A note.",))
        write_page(run_page(run, "2025-03-01"), folder / f"{name}.html")
    return folder


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        *(("sealed", width, scheme) for width in (390, 1400) for scheme in ("light", "dark")),
        ("random", 390, "dark"),
        ("large", 1400, "light"),
    ],
)
def test_a_page_is_drawn_quietly_and_fits(chromium, pages, name, width, scheme):
    """Every plot is drawn inside its box; no sideways scrolling, complaint or request; all text can be read."""
    file = pages / f"{name}.html"
    with visit(chromium, file, width, scheme) as visited:
        page = visited.page
        drawn = page.evaluate(DRAWN)
        assert len(drawn) >= 6
        assert all(drawn)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        seen, faint = page.evaluate(FAINT)
        assert seen > 100
        assert faint == []
        assert visited.requests == [file.as_uri()]
        assert visited.complaints == []


def test_markup_in_names_is_only_text(chromium, pages):
    """Hostile names stand in the page and in a plot's labels letter by letter, and make no element."""
    with visit(chromium, pages / "sealed.html") as visited:
        page = visited.page
        page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
        text = page.locator("main").inner_text()
        assert "<b>bea</b>" in text
        assert page.locator("main img, main b, main a").count() == 0
        picture = page.locator(".area:has(.heat)")
        picture.scroll_into_view_if_needed()
        rows = picture.evaluate("(area) => JSON.parse(area.querySelector('script').textContent).rows")
        box = picture.bounding_box()
        for name in HOSTILE[:4]:
            (row,) = [row for row, text in enumerate(rows) if text.startswith(name)]
            page.mouse.move(box["x"] + 9, box["y"] + (row + 0.5) * box["height"] / len(rows))
            until(page, f"document.querySelector('.heat ~ .tip').textContent.includes({json.dumps(name)})")
            assert picture.locator(".tip a, .tip img, .tip b").count() == 0
        assert visited.complaints == []


def test_the_pointer_shows_the_numbers_of_the_plots(chromium, pages):
    """A curve's value at the nearest round, a bar's parts, and the share of a cell of the picture."""
    run = simulated(**RUNS["sealed"])
    with visit(chromium, pages / "sealed.html") as visited:
        page = visited.page

        def tip(title, x, y):
            area = page.locator(f".chart[aria-label='{title}'] .area")
            area.scroll_into_view_if_needed()
            box = area.bounding_box()
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
            return area.locator(".tip p").all_inner_texts()

        last = run.record.rows[-1]
        assert tip("Accuracy", 0.999, 0.5) == [f"round {last.round}", f"{100 * last.accuracy:.1f} %"]
        assert tip("Privacy level T", 0.999, 0.5) == [f"round {last.round}", str(last.strong)]
        asked, done, lost = (
            int(values[0]) for values in (run.health.asked, run.health.completed, run.health.lost)
        )
        assert asked == done + lost
        assert tip("Rounds of each batch", 0.001, 0.5) == [
            "batch 0",
            f"completed: {done}",
            f"lost on the way: {lost}",
        ]
        first = int(run.plan.members[0])
        for column in (0, 30):
            part = first in [user for round_, users in run.log.sets() if round_ == column for user in users]
            until(page, "document.querySelector('.heat ~ .tip')")
            *_, share = tip("Users and rounds", (column + 0.5) / 60, 0.001)
            assert share == f"took part: {100 * part} %"


def test_the_policy_stops_what_a_hostile_page_would_do(chromium, pages):
    """An inline script that is not the page's own does not run, and nothing can be fetched."""
    with visit(chromium, pages / "sealed.html") as visited:
        visited.page.evaluate("""() => {
          const script = document.createElement('script');
          script.textContent = 'window.ran = true';
          document.body.append(script);
          const picture = document.createElement('img');
          picture.src = 'https://example.invalid/x.png';
          document.body.append(picture);
        }""")
        visited.page.wait_for_timeout(200)
        assert visited.page.evaluate("window.ran") is None
        assert len([text for text in visited.complaints if "Content Security Policy" in text]) == 2
        assert visited.refused == {"https://example.invalid/x.png": "csp"}


LINE = "getComputedStyle(document.querySelector('.area path.line')).stroke"


def colours(page):
    """The ground's colour and that of the first curve."""
    return page.evaluate(f"[getComputedStyle(document.body).backgroundColor, {LINE}]")


@pytest.mark.parametrize(("scheme", "other"), [("light", "dark"), ("dark", "light")])
def test_the_button_and_the_system_change_the_colours_of_page_and_plots(chromium, pages, scheme, other):
    """The button gives exactly the colours that the system's other scheme gives, and back."""
    with visit(chromium, pages / "sealed.html", scheme=scheme) as visited:
        page, button = visited.page, visited.page.locator("#scheme")
        before = colours(page)
        page.emulate_media(color_scheme=other)
        until(page, f"{LINE} !== '{before[1]}'")
        after = colours(page)
        page.emulate_media(color_scheme=scheme)
        until(page, f"{LINE} === '{before[1]}'")
        assert before[0] != after[0]
        assert button.inner_text() == f"{other.capitalize()} colours"
        button.click()
        assert colours(page) == after
        button.click()
        assert colours(page) == before


def test_a_page_can_be_used_with_the_keyboard(chromium, pages):
    """Tab leads to the skip link, then to links, the button, tables and folded parts, which Enter unfolds."""
    with visit(chromium, pages / "sealed.html") as visited:
        page = visited.page
        reached = []
        for _ in range(30):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.className || document.activeElement.tagName"))
            if reached[-1] == "SUMMARY":
                break
        assert reached[0] == "skip"
        assert {"A", "BUTTON", "table", "SUMMARY"} <= set(reached)
        page.keyboard.press("Enter")
        assert page.locator("details[open]").count() == 1


def test_a_page_on_paper_is_short_and_light(chromium, pages):
    """Printing from the dark scheme gives the light one's colours, without links, folded parts and commands."""
    with visit(chromium, pages / "sealed.html", scheme="light") as visited:
        light = colours(visited.page)[1]
    with visit(chromium, pages / "sealed.html", scheme="dark") as visited:
        page = visited.page
        dark = colours(page)
        page.emulate_media(media="print")
        assert colours(page) == ["rgb(255, 255, 255)", light]
        for hidden in ("nav", "details", ".commands", "button"):
            assert not any(each.is_visible() for each in page.locator(hidden).all())
        assert page.locator("h1").is_visible()
        assert page.get_by_text("What is not guaranteed").last.is_visible()
        page.emulate_media(media="screen")
        assert colours(page) == dark
        assert page.pdf().startswith(b"%PDF")
        assert visited.complaints == []


def test_without_scripts_a_page_lacks_nothing_but_the_pointer(chromium, pages):
    """With scripts off, every plot is drawn, and the sentence under each says what it shows."""
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((pages / "sealed.html").as_uri())
    captions = page.locator("figcaption").all_inner_texts()
    assert len(captions) >= 6
    assert all(any(letter.isdigit() for letter in caption) for caption in captions)
    assert all(line.bounding_box()["width"] > 100 for line in page.locator("path.line").all())
    assert page.locator("#scheme").is_hidden()
    context.close()


def test_a_table_that_is_too_wide_says_so_until_its_end(chromium, pages):
    """On a phone the cue stands above the table, and goes when the reader has reached the other side."""
    with visit(chromium, pages / "sealed.html", width=390) as visited:
        page = visited.page
        table, cue = page.locator(".table").first, page.locator(".cue").first
        until(page, "!document.querySelector('.cue').hidden")
        assert cue.is_visible()
        table.evaluate("(box) => { box.scrollLeft = box.scrollWidth; }")
        until(page, "document.querySelector('.cue').hidden")
    with visit(chromium, pages / "sealed.html", width=1400) as visited:
        assert visited.page.locator(".cue").first.is_hidden()
